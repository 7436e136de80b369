// SPDX-License-Identifier: Apache-2.0
#include "shim/stack/stacks.h"

namespace cudaguard {

void read_stacks(Stacks& room, const void* caller, Touch& touch) {
  room.maps.fill();
  touch.stack.native_missing = unwind(room.maps, caller, room.native);
  touch.stack.native = room.native.places;
  touch.stack.native_count = room.native.count;
  if (room.native.count != 0) touch.caller = room.native.places[0];
  touch.stack.python_missing = read_python(room.maps, room.python);
  touch.stack.python = room.python.at;
  touch.stack.python_count = room.python.count;
  touch.stack.python_cut = room.python.cut;
  touch.stack.shown = room.python.shown;
}

}  // namespace cudaguard
