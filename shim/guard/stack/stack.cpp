// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/stack/stack.h"

namespace cudaguard {

void read_stack(StackRoom& room, const void* caller, PythonFrames& frames, Attempt& attempt) {
  room.maps.fill();
  const auto address = reinterpret_cast<uint64_t>(caller);
  // A return address follows its call, which may be the last instruction of a mapping.
  if (const Mapping* mapping = room.maps.find(address - 1)) {
    attempt.caller = mapping->place(address);
    attempt.file = lasting_name(attempt.caller.module, room.file, sizeof room.file);
  }
  room.stack.python_missing = read_python(room.maps, room.stack, room.python, frames);
  attempt.stack = &room.stack;
}

uint64_t call_of(const char* api, const void* caller, const PythonFrames& frames) {
  Hash hash;
  hash.add(std::string_view(api)).add(caller);
  return add_python(frames, hash) ? hash.result() : 0;
}

}  // namespace cudaguard
