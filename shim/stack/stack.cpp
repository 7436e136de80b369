// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/stack.h"

namespace cudaguard {

void read_stack(StackRoom& room, const void* caller, Attempt& attempt) {
  room.maps.fill();
  const auto address = reinterpret_cast<uint64_t>(caller);
  // A return address follows its call, which may be the last instruction of a mapping.
  if (const Mapping* here = room.maps.find(address - 1)) attempt.caller = here->place(address);
  room.stack.python_missing = read_python(room.maps, room.stack, room.python);
  attempt.stack = &room.stack;
}

}  // namespace cudaguard
