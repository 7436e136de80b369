// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/native.h"

#include <sys/auxv.h>

#include "shim/sys/system.h"

namespace cudaguard {

namespace {

/// A process that was forked and has called no other program: another thread of its parent may have
/// held the loader's lock then.
bool is_forked() {
  char text[512] = {};  // the analyzer does not know that read(2) fills it
  const sys::File file("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const long size = file.ok() ? sys::read(file.fd(), text, sizeof text) : 0;
  // "7 (a name) S 1 7 7 0 -1 4194304 ...": the name may hold anything.
  const char* end = text + (size > 0 ? size : 0);
  const char* at = end;
  while (at != text && at[-1] != ')') --at;
  uint64_t flags = 0;
  for (int spaces = 0; at != end; ++at) {
    if (*at != ' ') {
      flags = flags * 10 + static_cast<uint64_t>(*at - '0');
      continue;
    }
    if (++spaces == 8) break;
    flags = 0;
  }
  return (flags & 0x40) != 0;  // PF_FORKNOEXEC
}

/// The unwinder reads wherever a return address points to, and what is outermost on the stack of a
/// coroutine may be anything (minicoro's: 0xdeaddeaddeaddead). Greenlets take turns on their
/// thread's own stack: what lies outside theirs is another one's.
bool is_coroutine(const Maps& maps) {
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const Mapping* stack = maps.find(here);
  if (stack == nullptr || maps.next_object(nullptr, "_greenlet.") != nullptr) return true;
  // A thread's stack has its descriptor above, the first one's what the kernel has left there.
  uint64_t thread = 0;
#if defined(__x86_64__)
  asm("mov %%fs:0, %0" : "=r"(thread));
#else
  asm("mrs %0, tpidr_el0" : "=r"(thread));
#endif
  const uint64_t above = stack->to - here;
  return thread - here >= above && getauxval(AT_RANDOM) - here >= above;
}

}  // namespace

const char* find_unwinder(const Maps& maps, Unwinder& to) {
  for (const Mapping* it = nullptr; (it = maps.next_object(it, "libgcc_s.so")) != nullptr;) {
    const LoadedObject library(maps, *it);
    to.backtrace = library.code<decltype(to.backtrace)>("_Unwind_Backtrace");
    to.address_of = library.code<decltype(to.address_of)>("_Unwind_GetIP");
    if (to.backtrace == nullptr || to.address_of == nullptr) continue;
    if (is_coroutine(maps)) return "coroutines";
    // Without it the unwinder takes a lock of the loader's.
    return !library.imports("_dl_find_object") && is_forked() ? "forked child" : nullptr;
  }
  return "no libgcc_s";
}

int collect_frame(void* frame, void* unwinder) {
  auto& to = *static_cast<Unwinder*>(unwinder);
  const uint64_t here = to.address_of(frame);
  if (here == 0 || to.count == Stack::kMostNative) return 5;  // _URC_END_OF_STACK
  // What is in front is ours.
  if (to.count != 0 || here == to.caller) to.addresses[to.count++] = here;
  return 0;  // _URC_NO_REASON
}

void find_places(const Maps& maps, Unwinder& from, Stack& to) {
  if (from.count == 0) from.addresses[from.count++] = from.caller;
  for (unsigned i = 0; i < from.count; ++i) {
    // A return address stands behind the call.
    const Mapping* here = maps.find(from.addresses[i] - 1);
    if (here != nullptr) to.native[i] = here->place(from.addresses[i]);
  }
  to.native_count = from.count;
}

}  // namespace cudaguard
