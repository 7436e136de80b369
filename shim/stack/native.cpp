// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/native.h"

#include "shim/sys/system.h"

namespace cudaguard {

namespace {

// <unwind.h>, of the Itanium C++ ABI.
struct Context;
using Visit = int(Context*, void*);
using Backtrace = int(Visit*, void*);
using GetIp = uint64_t(Context*);

struct Walk {
  GetIp* ip = nullptr;
  uint64_t caller = 0;
  NativeStack* to = nullptr;
};

int visit(Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  NativeStack& to = *walk.to;
  const uint64_t here = walk.ip(context);
  if (here == 0 || to.count == NativeStack::kMost) return 5;  // _URC_END_OF_STACK
  // What is in front is ours.
  if (to.count != 0 || here == walk.caller) to.addresses[to.count++] = here;
  return 0;  // _URC_NO_REASON
}

/// A process that was forked and has called no other program: another thread of its parent may have
/// held the loader's lock then.
bool is_forked() {
  char text[512];
  const sys::File file("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const long size = file.ok() ? sys::read(file.fd(), text, sizeof text) : 0;
  // "7 (a name) S 1 7 7 0 -1 4194304 ...": the name may hold anything.
  long at = size;
  while (at > 0 && text[at - 1] != ')') --at;
  if (at == 0) return true;
  for (int spaces = 0; at < size && spaces < 7; ++at) spaces += text[at] == ' ' ? 1 : 0;
  uint64_t flags = 0;
  for (; at < size && is_digit(text[at]); ++at) {
    flags = flags * 10 + static_cast<uint64_t>(text[at] - '0');
  }
  return (flags & 0x40) != 0;  // PF_FORKNOEXEC
}

const char* backtrace(const Maps& maps, Walk& walk) {
  for (unsigned i = 0; i < maps.count; ++i) {
    const Mapping& first = maps.at[i];
    if (first.offset != 0 || !base_name(first.file()).starts_with("libgcc_s.so")) continue;
    const LoadedObject library(maps, first);
    Backtrace* run = nullptr;
    if (!library.function("_Unwind_Backtrace", run) ||
        !library.function("_Unwind_GetIP", walk.ip)) {
      continue;
    }
    // Without it the unwinder takes a lock of the loader's.
    if (!library.imports("_dl_find_object") && is_forked()) return "forked child";
    run(visit, &walk);
    return walk.to->count != 0 ? nullptr : "no unwind tables";
  }
  return "no libgcc_s in the process";
}

}  // namespace

const char* unwind(const Maps& maps, const void* caller, NativeStack& to) {
  Walk walk = {.caller = reinterpret_cast<uint64_t>(caller), .to = &to};
  const char* missing = backtrace(maps, walk);
  if (to.count == 0 && caller != nullptr) to.addresses[to.count++] = walk.caller;
  for (unsigned i = 0; i < to.count; ++i) {
    // A return address stands behind the call.
    const Mapping* here = maps.find(to.addresses[i] - 1);
    if (here != nullptr) to.places[i] = here->place(to.addresses[i]);
  }
  return missing;
}

}  // namespace cudaguard
