// SPDX-License-Identifier: Apache-2.0
// What the guard does when it is loaded.
#include "policy/library.h"
#include "shim/hook/null_drivers.h"
#include "shim/proxy_loader/proxies.h"
#include "shim/record/output.h"
#include "shim/state/process.h"
#include "shim/sys/system.h"

namespace cudaguard {
namespace {

/// True if the program was started with NVIDIA's driver or NVML, because it is linked to it or to a
/// library that is. A null driver that the launcher preloads does not count.
bool is_linked_to_driver() {
  return start_objects().visit([](const link_map& object) {
    const Library library = classify(object.l_name).library;
    return (library == Library::kDriver || library == Library::kNvml) &&
           !is_null_driver(object);
  });
}

/// Loads what such a program may need in a forked child, where ld.so may not be able to load a
/// library. Other programs need nothing of ours before a request that loads a library anyway.
[[gnu::cold, gnu::noinline]] void prepare_linked_program() {
  Process& here = process();
  if (allows_cuda(here.policy())) load_proxies_early(here);
  if (here.policy() == Policy::kForceCpu) null_driver(NullDriverKind::kDriver);
}

/// Makes no system call, unless a start record is wanted or the program is linked to the driver.
/// Only glibc gives a constructor these arguments; with another libc the first call reads the
/// kernel's copy.
[[gnu::constructor]] void on_load(int, char** words, char** variables) {
  if (!sys::is_glibc()) return;
  read_start_environment(inherited.start, variables);
  report_start(words, variables);
  if (is_linked_to_driver()) prepare_linked_program();
}

}  // namespace
}  // namespace cudaguard
