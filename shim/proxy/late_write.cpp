// SPDX-License-Identifier: Apache-2.0
#include "shim/proxy/late_write.h"

#include <string_view>

#include "policy/config.h"
#include "policy/text/message.h"
#include "shim/proxy/guard.h"

namespace cudaguard {

namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

void note(LateWrite::Moment& moment, const char* api, unsigned count) {
  int none = 0;
  if (!moment.state.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
  const char* now = the_guard().variable(kVariable);
  moment.api = api;
  moment.count = count;
  moment.set = now != nullptr;
  for (size_t i = 0; now != nullptr && now[i] != '\0' && i + 1 < sizeof moment.value; ++i) {
    moment.value[i] = now[i];
  }
  moment.state.store(2, std::memory_order_release);
}

bool happened(const LateWrite::Moment& moment) {
  return moment.state.load(std::memory_order_acquire) == 2;
}

bool differs(const LateWrite::Moment& moment, const char* now) {
  if (!moment.set || now == nullptr) return moment.set != (now != nullptr);
  return head(now, sizeof moment.value - 1) != std::string_view(moment.value);
}

/// `moment` is the time when the program got a count, null if it got none. `sees` is the number of
/// GPUs that cuInit found after the change, null if cuInit came before the change.
void compare(Process& process, const LateWrite::Moment* moment, const unsigned* sees) {
  const char* now = the_guard().variable(kVariable);
  LateWriteFacts facts;
  if (moment != nullptr) {
    if (!differs(*moment, now)) return;
    facts.was_set = moment->set;
    facts.was = moment->value;
    facts.api = moment->api;
    facts.reported = moment->count;
    // NVML counts all GPUs. CUDA counts those of the variable's old value.
    const bool all = !moment->set || std::string_view(moment->api).starts_with("nvml");
    if (all) facts.gpus = moment->count;
  }
  facts.is_set = now != nullptr;
  if (now != nullptr) facts.is = now;
  facts.read_already = sees == nullptr;
  if (sees != nullptr) facts.sees = *sees;
  facts.allow_list = process.config->visible_devices;
  facts.by_option = process.config->by_option;
  facts.in_run = process.config->in_run;
  the_guard().print_message(process, Process::kLateWrite,
                            write_line_of<write_late_write, LateWriteFacts>, &facts);
}

}  // namespace

void note_count(Process& process, const char* api, unsigned count) {
  LateWrite& late = process.late_write;
  if (happened(late.initialised)) return compare(process, &late.initialised, nullptr);
  note(late.counted, api, count);
}

void note_init(Process& process, const char* api, unsigned count) {
  LateWrite& late = process.late_write;
  note(late.initialised, api, count);
  if (!happened(late.counted)) return;
  // The count is the earlier one, and the variable had no list then, so nothing disagrees.
  if (!late.counted.set && late.counted.count == count) return;
  compare(process, &late.counted, &count);
}

void note_no_device(Process& process) {
  const unsigned none = 0;
  const LateWrite::Moment& counted = process.late_write.counted;
  if (happened(counted)) return compare(process, &counted, &none);
  // Without an earlier count, report numbers that name no GPU of the list ("" and -1 mean no GPU).
  const char* now = the_guard().variable(kVariable);
  const bool number = now != nullptr && *now >= '0' && *now <= '9';
  if (number && !process.config->visible_devices.empty()) compare(process, nullptr, &none);
}

void check_late_write(Process& process) {
  const LateWrite& late = process.late_write;
  if (happened(late.initialised)) compare(process, &late.initialised, nullptr);
}

}  // namespace cudaguard
