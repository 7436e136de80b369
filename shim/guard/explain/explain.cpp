// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/explain/explain.h"

#include <cstring>
#include <string_view>

#include "policy/decision.h"
#include "policy/device_list.h"
#include "policy/driver_api.h"
#include "shim/guard/record/call_site.h"
#include "shim/guard/record/record.h"
#include "shim/guard/stack/hash.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"

namespace cudaguard {

namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";

void note(Process& process, Moment& moment, const char* api, const void* caller, unsigned count) {
  int none = 0;
  if (!moment.state.compare_exchange_strong(none, 1, std::memory_order_relaxed)) return;
  const char* now = variable(kVariable);
  copy_text(api, moment.api, sizeof moment.api);
  moment.count = count;
  if (process.decision.log != Log::kOff) copy_call_site(process, caller, moment.by);
  moment.set = now != nullptr;
  copy_text(now != nullptr ? now : "", moment.value, sizeof moment.value);
  moment.state.store(2, std::memory_order_release);
}

/// The machine's numbers of the visible GPUs: "4,5"; empty if they are not known.
std::string_view visible_numbers(const Process& process, char (&room)[1024]) {
  if (!process.explain.visible_known.load(std::memory_order_acquire)) return {};
  const VisibleGpus& visible = process.explain.visible;
  Text are(room, sizeof room);
  for (int i = 0; i < visible.count; ++i) {
    if (i != 0) are.put(",");
    are.put_decimal(static_cast<uint64_t>(visible.devices[i].physical));
  }
  return are.view();
}

bool happened(const Moment& moment) { return moment.state.load(std::memory_order_acquire) == 2; }

bool differs(const Moment& moment, const char* now) {
  if (!moment.set || now == nullptr) return moment.set != (now != nullptr);
  return whole_head(now, sizeof moment.value - 1) != std::string_view(moment.value);
}

/// True if the program was started with this value, and it names the GPUs of the machine: inside a
/// run, the launcher has made positions of them, and has said what they leave, except of UUIDs.
bool is_from_outside(const Process& process, const char* now) {
  const char* start = inherited.start.cuda_visible;
  if (now == nullptr || start == nullptr) return false;
  const bool translated = process.decision.in_run &&
                          process.decision.allow_list.by != ListBy::kRule && *now != 'G' &&
                          *now != 'M';
  return !translated && head(now, sizeof Moment::value - 1) == std::string_view(start);
}

size_t count_of(std::string_view list) {
  size_t count = 0;
  for (bool last = false; !last; ++count) take_entry(list, last);
  return count;
}

/// `moment` is the time when the program got a count, null if it got none. `sees` is the number of
/// GPUs that cuInit found after the change, null if cuInit came before the change. Returns false if
/// nothing has changed since `moment`.
bool compare(Process& process, const Moment* moment, const unsigned* sees) {
  const char* now = variable(kVariable);
  LateWriteFacts facts;
  if (moment != nullptr) {
    if (!differs(*moment, now)) return false;
    facts.was_set = moment->set;
    facts.was = moment->value;
    facts.api = moment->api;
    facts.by = moment->by;
    facts.reported = moment->count;
    // NVML counts all GPUs. CUDA counts those of the variable's old value.
    const bool all = !moment->set || std::string_view(moment->api).starts_with("nvml");
    if (all) facts.gpus = moment->count;
  }
  facts.is_set = now != nullptr;
  if (now != nullptr) facts.is = now;
  facts.read_already = sees == nullptr;
  if (sees != nullptr) facts.sees = *sees;
  char room[1024];
  if (moment == nullptr) facts.left = visible_numbers(process, room);
  facts.allow_list = process.decision.allow_list.text;
  facts.list_by = process.decision.allow_list.by;
  facts.in_run = process.decision.in_run;
  print_message(process, Message::kLateWrite, write_line_of<write_late_write, LateWriteFacts>,
                &facts);
  return true;
}

/// A number that identifies this case.
uint64_t case_of(const BadIndex& facts) {
  return Hash()
      .add(std::string_view(facts.api))
      .add(static_cast<uint64_t>(static_cast<uint32_t>(facts.asked)))
      .add(static_cast<uint64_t>(static_cast<uint32_t>(facts.count)))
      .result();
}

/// Returns the time since 1970.
uint64_t milliseconds() {
  const timespec time = sys::now();
  return static_cast<uint64_t>(time.tv_sec) * 1000 + static_cast<uint64_t>(time.tv_nsec) / 1000000;
}

/// Remembers who has called cuInit in this process, for check_fork() in a forked child.
void remember_init(const Moment& initialised) {
  ExplainInherited& first = inherited.explain;
  const uint32_t pid = sys::getpid();
  if (first.pid.load(std::memory_order_relaxed) == pid) return;
  memcpy(first.by, initialised.by, sizeof first.by);
  first.at = milliseconds();
  first.pid.store(pid, std::memory_order_release);
}

}  // namespace

void note_count(Process& process, const char* api, const void* caller, unsigned count) {
  if (happened(process.explain.initialised)) return check_late_write(process);
  note(process, process.explain.counted, api, caller, count);
}

void note_init(Process& process, const void* caller, unsigned count, const VisibleGpus& visible) {
  process.explain.visible = visible;
  process.explain.visible_known.store(visible.count != 0, std::memory_order_release);
  ExplainProcess& late = process.explain;
  note(process, late.initialised, "cuInit", caller, count);
  remember_init(late.initialised);
  const std::string_view list = process.decision.allow_list.text;
  if (!list.empty() && count < count_of(list) && is_from_outside(process, variable(kVariable))) {
    compare(process, nullptr, &count);
  }
  if (!happened(late.counted)) return;
  // The count is the earlier one, and the variable had no list then, so nothing disagrees.
  if (!late.counted.set && late.counted.count == count) return;
  compare(process, &late.counted, &count);
}

void note_no_device(Process& process) {
  const unsigned none = 0;
  const Moment& counted = process.explain.counted;
  if (happened(counted) && compare(process, &counted, &none)) return;
  // Without a change since an earlier count, report numbers that name no GPU of the list. The
  // program's own "" and -1 mean no GPU.
  const char* now = variable(kVariable);
  const bool number = now != nullptr && is_digit(*now);
  if (process.decision.allow_list.text.empty()) return;
  if (number || is_from_outside(process, now)) compare(process, nullptr, &none);
}

void check_late_write(Process& process) {
  const ExplainProcess& late = process.explain;
  if (happened(late.initialised)) compare(process, &late.initialised, nullptr);
}

void check_fork(Process& process, const char* api, const void* caller) {
  if (process.explain.fork_checked.load(std::memory_order_relaxed)) return;
  process.explain.fork_checked.store(true, std::memory_order_relaxed);
  const ExplainInherited& first = inherited.explain;
  const uint32_t parent = first.pid.load(std::memory_order_acquire);
  if (parent == 0 || parent == sys::getpid()) return;
  ForkFacts facts;
  facts.api = api;
  facts.parent = parent;
  facts.by = first.by;
  facts.milliseconds = milliseconds() - first.at;
  print_message(process, Message::kForkPoison, write_line_of<write_fork_poison, ForkFacts>, &facts);
  // init() records a cuInit, together with its caller. CUDA answers 3 to all other calls as well.
  if (std::string_view(api) != "cuInit") {
    record_event(process, {.api = api, .caller = caller, .result = kNotInitialized});
  }
}

void print_bad_index(Process& process, const BadIndex& facts) {
  check_late_write(process);
  const uint64_t key = case_of(facts);
  if (process.decision.log == Log::kOff || process.record.reported.has(key)) return;
  const CallSite site(process, facts.caller);
  IndexFacts line = {.site = site.attempt()};
  line.api = facts.api;
  line.asked = facts.asked;
  line.count = facts.count;
  line.used = facts.used;
  char room[1024];
  if (process.explain.visible_known.load(std::memory_order_acquire)) {
    const VisibleGpus& visible = process.explain.visible;
    line.meant = did_you_mean(facts.asked, visible.devices, visible.count);
    line.are = visible_numbers(process, room);
    line.are_whose = visible.by_variable ? "CUDA_VISIBLE_DEVICES=" : "GPUs ";
  }
  print_case(process, key, write_line_of<write_bad_index, IndexFacts>, &line);
}

}  // namespace cudaguard
