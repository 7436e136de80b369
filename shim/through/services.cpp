// SPDX-License-Identifier: Apache-2.0
// The guard's side of shim/through/services.h.
#include "shim/through/services.h"

#include "shim/elf/loader.h"
#include "shim/record/record.h"
#include "shim/state/process.h"
#include "shim/through/fork_poison.h"
#include "shim/through/late_write.h"

namespace cudaguard {

namespace {

void set_visible(const VisibleGpus& gpus) {
  Process& here = process();
  here.visible = gpus;
  here.visible_known.store(gpus.count != 0, std::memory_order_release);
}

constexpr Services kServices = {
    .policy = [] { return process().policy(); },
    .allow_list = [] { return process().config.visible_devices; },
    .variable = &variable,
    .fall_back = [](Process::Fallen because) { process().fall_back(because); },
    .wants_events = [] { return wants_events(process()); },
    .record_event = [](const Event& event) { record_event(process(), event); },
    .record_touch = [](const char* api,
                       const void* caller) { record_touch(process(), api, nullptr, caller); },
    .say = [](Process::Said bit, Writer write,
              const void* context) { say(process(), bit, write, context); },
    .say_bad_index = [](const BadIndex& facts) { say_bad_index(process(), facts); },
    .note_count = [](const char* api, unsigned count) { note_count(process(), api, count); },
    .note_init =
        [](const char* api, unsigned count, const void* caller) {
          remember_init(caller);
          note_init(process(), api, count);
        },
    .note_no_device = [] { note_no_device(process()); },
    .check_fork = [](const char* api) { check_fork_once(process(), api); },
    .set_visible = &set_visible,
    .locks = []() -> Process::Locks& { return process().locks; },
    .loader = []() -> const Loader& { return loader(); },
};

}  // namespace

const Services& own_services() { return kServices; }

}  // namespace cudaguard

const cudaguard::Services* cudaguard_services_v1() { return &cudaguard::kServices; }
