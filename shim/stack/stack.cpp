// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/stack.h"

namespace cudaguard {

bool begin_stack(StackRoom& room, const void* caller) {
  room.maps.fill();
  room.unwinder.caller = reinterpret_cast<uint64_t>(caller);
  room.stack.native_missing = find_unwinder(room.maps, room.unwinder);
  return room.stack.native_missing == nullptr;
}

void end_stack(StackRoom& room, Touch& touch) {
  Stack& stack = room.stack;
  if (room.unwinder.count == 0 && stack.native_missing == nullptr) {
    stack.native_missing = "no unwind tables";
  }
  find_places(room.maps, room.unwinder, stack);
  stack.python_missing = read_python(room.maps, stack, room.names);
  touch.caller = stack.native[0];
  touch.stack = &stack;
}

}  // namespace cudaguard
