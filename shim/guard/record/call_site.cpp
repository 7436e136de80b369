// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/record/call_site.h"

#include "shim/guard/elf/own_maps.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

CallSite::CallSite(Process& process, const void* caller) {
  if (!room_) return;
  read_stack(room_->stack, caller, process.python_frames, attempt_);
  if (attempt_.caller.module.empty()) {
    attempt_.caller = place_of(caller, room_->path, sizeof room_->path);
  }
  read_program(room_->program, attempt_);
}

void copy_call_site(Process& process, const void* caller, char (&to)[kMostSite]) {
  const CallSite site(process, caller);
  Text out(to, sizeof to - 1);
  put_call_site(out, site.attempt());
  to[out.view().size()] = '\0';
}

}  // namespace cudaguard
