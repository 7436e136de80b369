// SPDX-License-Identifier: Apache-2.0
// What the guard does when it is loaded.
#include <string_view>

#include "policy/library.h"
#include "shim/guard/elf/object.h"
#include "shim/guard/elf/own_symbols.h"
#include "shim/guard/hook/null_drivers.h"
#include "shim/guard/proxy_loader/proxies.h"
#include "shim/guard/record/output.h"
#include "shim/guard/record/record.h"
#include "shim/guard/state/process.h"
#include "shim/guard/sys/literal.h"
#include "shim/guard/sys/memory.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {
namespace {

/// True for NVIDIA's driver or NVML. A null driver that the launcher preloads does not count.
[[gnu::hot]] bool is_driver(const link_map& object) {
  const std::string_view name = object.l_name;
  if (!may_be_ours(name) || sys::ends_with(name, "c.so.6")) return false;  // almost always
  const Library library = classify(name).library;
  return (library == Library::kDriver || library == Library::kNvml) && !is_null_driver(object);
}

/// Nothing in NVIDIA's libraries opens a device before one of these functions was called.
constexpr char kFirstCalls[][20] = {"cuInit",   "cuGetProcAddress", "cuGetProcAddress_v2",
                                    "nvmlInit", "nvmlInit_v2",      "nvmlInitWithFlags"};

/// Lets a name in the library's symbol table lead to our function. All other names stay, so that
/// ld.so can bind each of them. Returns false if the kernel does not allow the write.
bool redirect(const link_map& library, const char* name) {
  const ElfW(Sym)* symbol =
      elf_detail::find(elf_detail::read_tables(library.l_ld, library.l_addr), name);
  const void* ours = elf_symbol(_DYNAMIC, own_base(), name);
  if (symbol == nullptr || ours == nullptr) return true;
  const auto at = reinterpret_cast<ElfW(Addr)>(symbol) - library.l_addr;
  const auto* segment = find_segment(library, [=](const ElfW(Phdr) & header) {
    return header.p_type == PT_LOAD && at - header.p_vaddr < header.p_memsz;
  });
  if (segment == nullptr) return false;
  const int protection = PROT_READ | ((segment->p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                         ((segment->p_flags & PF_X) != 0 ? PROT_EXEC : 0);
  const ElfW(Addr) value = reinterpret_cast<ElfW(Addr)>(ours) - library.l_addr;
  return overwrite(&symbol->st_value, &value, sizeof value, protection);
}

/// Under FORCE_CPU, a look-up in a handle finds our functions even in NVIDIA's own library. ld.so
/// has mapped that library before we could act, and nothing has initialised it. The other objects
/// of the start that need it are bound to our exports.
void redirect_first_calls(Process& process) {
  start_objects().visit([&](const link_map& object) {
    if (!is_driver(object)) return false;
    bool all = true;
    for (const char* name : kFirstCalls) all = redirect(object, name) && all;
    if (!all) report_exposed(process, object.l_name);
    return false;
  });
}

/// Serves a program that was started with NVIDIA's driver or NVML, because it is linked to it or to
/// a library that is. Loads what it may need in a forked child, where ld.so may not be able to load
/// a library. Other programs need nothing of ours before a request that loads a library anyway.
[[gnu::cold, gnu::noinline]] void prepare_linked_program() {
  // Another copy of the guard that comes first serves the program.
  const ElfW(Dyn)* first_guard = nullptr;
  bool has_proxies = false;
  start_objects().visit([&](const link_map& object) {
    const char* soname = elf_soname(object.l_ld, object.l_addr);
    const std::string_view name = soname != nullptr ? soname : "";
    if (name == "libcudaguard.so" && first_guard == nullptr) first_guard = object.l_ld;
    has_proxies = has_proxies || name.starts_with("libcudaguard-");
    return false;
  });
  if (first_guard != _DYNAMIC) return;
  Process& process = cudaguard::process();
  // The launcher preloads the proxies, and the program's children inherit them. A rule, or
  // CUDAGUARD_CHILDREN, may still say FORCE_CPU for one of these.
  if (allows_cuda(process.loads()) && !has_proxies) load_proxies_early(process);
  if (process.loads() != Policy::kForceCpu) return;
  null_driver(Library::kDriver);
  redirect_first_calls(process);
}

/// Makes no system call, unless a start record is wanted, the program is linked to the driver, or
/// CUDAGUARD_RULES is set. Only glibc gives a constructor these arguments; with another libc the
/// first call reads the kernel's copy.
[[gnu::constructor]] void on_load(int, char** words, char** variables) {
  if (!sys::is_glibc()) return;
  read_start_environment(inherited.start, variables);
  if (inherited.start.wants_start) report_start(words, variables);
  // The rules see the program before it can change its command line (setproctitle).
  if (inherited.start.variables.rules != nullptr) process();
  if (start_objects().visit(is_driver)) prepare_linked_program();
}

}  // namespace
}  // namespace cudaguard
