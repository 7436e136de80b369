// SPDX-License-Identifier: Apache-2.0
// The proxy turns the list's entries into full UUIDs, with the help of NVML (policy/device_list,
// policy/selection). It replaces getenv in the driver's import table, so that the driver reads
// these UUIDs as its CUDA_VISIBLE_DEVICES. After the real cuInit, it asks the driver which GPUs it
// shows. If they are not exactly those of the list, FORCE_CPU applies from then on.
#include "shim/proxy/visible_devices.h"

#include <cstdlib>
#include <cstring>

#include "policy/device_list.h"
#include "policy/selection.h"
#include "shim/guard/sys/system.h"
#include "shim/guard/text/message.h"
#include "shim/proxy/getenv_slot.h"
#include "shim/proxy/gpus.h"

namespace cudaguard {

struct Plan {
  Allowed allowed;
  Selection selection;
  /// The CUDA_VISIBLE_DEVICES that the driver reads. All UUIDs and their commas fit.
  char list[kMostGpus * kMostUuid + 1];
  bool ready;  ///< `list` is valid
};

namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES";
constexpr char kNoneOfThem[] = "-1";

/// The plan for what the driver shall read now; null if memory is short. A program may change its
/// variable and repeat a failed cuInit. It then gets another plan, and the old plan stays, because
/// the driver may still be reading its text.
const Plan* make_plan() {
  auto* plan = static_cast<Plan*>(sys::map(sizeof(Plan)));
  if (plan == nullptr) return nullptr;
  resolve_list(plan->allowed);
  if (plan->allowed.view.error.why == ListError::Why::kNone) {
    plan->selection =
        select(the_guard().variable(kVariable), &plan->allowed.view, &plan->allowed.machine);
    Text list(plan->list, sizeof plan->list - 1);
    plan->ready =
        write_driver_list(list, plan->selection, plan->allowed.view, plan->allowed.machine);
    plan->list[list.view().size()] = '\0';
    // A lost GPU is listed without a UUID. By its index the driver would show another GPU.
    for (size_t i = 0; plan->allowed.machine.known && i < plan->selection.count; ++i) {
      const size_t at = plan->allowed.view.devices[plan->selection.view[i]];
      if (plan->allowed.machine.devices[at].uuid[0] == '\0') plan->ready = false;
    }
  }
  const Plan* old = driver.plan.load(std::memory_order_acquire);
  if (old == nullptr || old->ready != plan->ready || strcmp(old->list, plan->list) != 0) {
    return plan;
  }
  sys::unmap(plan, sizeof(Plan));
  return old;
}

void print_why(Process& process, const char* why) {
  const NotEnforcedFacts facts = {why, process.decision.allow_list.by,
                                  process.decision.allow_list.place};
  the_guard().print_message(process, Message::kList,
                            write_line_of<write_not_enforced, NotEnforcedFacts>, &facts);
}

void print_in_vain(Process& process, const char* why, int error = 0) {
  const ListInVainFacts facts = {process.decision.allow_list.text, why,
                                 process.decision.allow_list.by, error,
                                 process.decision.allow_list.place};
  the_guard().print_message(process, Message::kListInVain,
                            write_line_of<write_list_in_vain, ListInVainFacts>, &facts);
}

constexpr char kNoUuid[] = ": a chosen GPU reports no UUID";

bool list_is_set(const Process& process) { return !process.decision.allow_list.text.empty(); }

/// Replaces getenv in the driver. Our cuInit makes the plan. If the driver's cuInit was reached
/// without us (a plug-in loaded with RTLD_DEEPBIND), this function makes the plan. A forked child
/// that narrows to FORCE_CPU sees no GPU.
char* answer(const char* name) {
  Process& process = the_guard().process();
  const bool list = list_is_set(process);
  if (strcmp(name, "CUDA_DEVICE_ORDER") == 0 && list) {
    return const_cast<char*>("PCI_BUS_ID");
  }
  if (strcmp(name, kVariable) != 0) return getenv(name);  // NOLINT(concurrency-mt-unsafe)
  driver.times_asked.fetch_add(1, std::memory_order_relaxed);
  const Policy policy = the_guard().policy(process);
  if (policy == Policy::kForceCpu) return const_cast<char*>(kNoneOfThem);
  if (policy == Policy::kOff || !list) {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe)
  }
  const Plan* plan = driver.plan.load(std::memory_order_acquire);
  if (plan == nullptr) {
    plan = make_plan();
    if (plan == nullptr) return const_cast<char*>(kNoneOfThem);
    driver.plan.store(plan, std::memory_order_release);
    if (!plan->ready) print_why(process, kNoUuid);  // a wrong list has its message already
  }
  return const_cast<char*>(plan->ready ? plan->list : kNoneOfThem);
}

/// Returns false if the real driver returns an error.
bool ask_count(int& count) {
  const auto get_count = real_function<Result (*)(int*)>(k_cuDeviceGetCount);
  return get_count != nullptr && get_count(&count) == kSuccess;
}

/// Compares "GPU-8932f937-408d-4ae7-8c16-9166cea1225c" with the 16 bytes of cuDeviceGetUuid. If
/// `whole` is false, the text may be a prefix.
bool same_uuid(const char* text, bool whole, const unsigned char (&bytes)[16]) {
  const char* at = strchr(text, '-');
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) {
      while (at != nullptr && *at == '-') ++at;
      if (at != nullptr && *at == '\0' && !whole) return true;
      if (at == nullptr || *at != "0123456789abcdef"[digit]) return false;
      ++at;
    }
  }
  return *at == '\0';
}

/// Returns what is wrong with the GPUs that the driver shows now, or null.
const char* check_what_is_visible(const Plan& plan, uint32_t asked_before) {
  if (driver.times_asked.load(std::memory_order_relaxed) == asked_before) {
    return " cannot be enforced: the driver did not read "
           "CUDA_VISIBLE_DEVICES in cuInit";
  }
  int count = 0;
  if (!ask_count(count) || static_cast<size_t>(count) != plan.selection.count) {
    return ": the driver does not show the GPUs that were chosen (one is "
           "gone or unusable)";
  }
  const auto get_device = real_function<Result (*)(int*, int)>(k_cuDeviceGet);
  // cuDeviceGetUuid_v2 has other answers for MIG devices only. For whole GPUs both are the same.
  const auto get_uuid = real_function<Result (*)(void*, int)>(k_cuDeviceGetUuid);
  if (get_uuid == nullptr || get_device == nullptr) return nullptr;
  const Allowed& allowed = plan.allowed;
  for (int i = 0; i < count; ++i) {
    const Machine::Device& wanted =
        allowed.machine.devices[allowed.view.devices[plan.selection.view[i]]];
    unsigned char bytes[16] = {};
    int device = 0;
    if (get_device(&device, i) != kSuccess || get_uuid(bytes, device) != kSuccess) continue;
    // CUDA reports another UUID for a MIG device. An index without NVML has no UUID.
    if (wanted.mig || wanted.uuid[0] == '\0') continue;
    // Without NVML the list's entry may be only a prefix of the UUID.
    if (!same_uuid(wanted.uuid, allowed.machine.known, bytes)) {
      return ": the driver shows other GPUs than were chosen";
    }
  }
  return nullptr;
}

Result deny(Process& process, const char* why, const void* caller) {
  if (why != nullptr) print_why(process, why);
  the_guard().fall_back(process, why != nullptr ? Fallen::kNotEnforced : Fallen::kNotAccepted);
  the_guard().record_attempt(process, "cuInit", nullptr, caller);
  return kNoDevice;
}

/// Takes the numbers in CUDA_VISIBLE_DEVICES. A wrong one ends the list, so CUDA shows the first.
void read_numbers(const char* text, size_t count, VisibleGpus& visible) {
  const Selection written = select(text, nullptr, nullptr);
  visible.by_variable = true;
  if (!written.numbers || written.count < count) return;
  for (; visible.count < count; ++visible.count) {
    const auto number = static_cast<int16_t>(written.view[visible.count]);
    visible.devices[visible.count] = {.physical = number, .written = number};
  }
}

void tell_guard(Process& process, const Plan* plan, const void* caller) {
  const int count = real_count();
  VisibleGpus visible;
  if (plan != nullptr) {
    bool known = true;
    for (size_t i = 0; i < plan->selection.count; ++i) {
      visible.devices[i] =
          visible_device(i, plan->selection, plan->allowed.view, plan->allowed.machine);
      known = known && visible.devices[i].physical >= 0;  // unknown for a UUID without NVML
    }
    if (known) visible.count = static_cast<uint16_t>(plan->selection.count);
  } else {
    read_numbers(the_guard().variable(kVariable), static_cast<size_t>(count), visible);
  }
  the_guard().note_init(process, caller, static_cast<unsigned>(count), visible);
  the_guard().record_event(process, {.kind = Event::Kind::kInit,
                                     .api = "cuInit",
                                     .caller = caller,
                                     .object = plan != nullptr ? plan->list : nullptr});
}

}  // namespace

int real_count() {
  int count = 0;
  return ask_count(count) && count > 0 ? count : 0;
}

void bind_visible_devices(const Process& process, const RealLibrary& real) {
  // This is necessary without a list as well, because a forked child may be narrowed to FORCE_CPU.
  if (real.found() && the_guard().policy(process) != Policy::kOff) {
    driver.redirected = redirect_getenv(*real.map(), &answer);
  }
}

bool list_is_enforced(Process& process) {
  if (driver.redirected || !list_is_set(process)) return true;
  print_why(process, " cannot be enforced: libcuda.so.1 does not import getenv");
  the_guard().fall_back(process, Fallen::kNotEnforced);
  return false;
}

Result init_inside_list(Process& process, const void* caller) {
  const auto real_init = real_function<Result (*)(unsigned)>(k_cuInit);
  if (!list_is_set(process)) {
    const Result result = real_init(0);
    if (result == kSuccess) tell_guard(process, nullptr, caller);
    if (result == kNoDevice) the_guard().note_no_device(process);
    return result;
  }
  // A plug-in that is bound to the driver itself (RTLD_DEEPBIND) may have initialised the driver
  // without us. The plan of that time still applies, whatever the program's variable is now.
  int count = 0;
  const Plan* plan = driver.plan.load(std::memory_order_acquire);
  const bool already = plan != nullptr && ask_count(count);
  if (!already) plan = make_plan();
  if (plan == nullptr) return deny(process, ": out of memory", caller);
  if (!plan->ready) {
    const bool reported = plan->allowed.view.error.why != ListError::Why::kNone;
    return deny(process, reported ? nullptr : kNoUuid, caller);
  }
  driver.plan.store(plan, std::memory_order_release);
  const uint32_t asked_before = already ? 0 : driver.times_asked.load(std::memory_order_relaxed);
  const Result result = real_init(0);
  const bool read = driver.times_asked.load(std::memory_order_relaxed) != asked_before;
  if (result == kNoDevice && read && plan->selection.count != 0) {
    // A driver without any GPU fails before it reads the variable (measured, 535).
    return deny(process, ": the driver shows none of the GPUs that were chosen", caller);
  }
  if (result == kNoDevice) {
    the_guard().note_no_device(process);
    if (plan->selection.count != 0 || has_no_gpu(plan->allowed)) {
      print_in_vain(process, "this machine shows no GPU");
    }
  } else if (result != kSuccess && result != kNotInitialized) {  // a forked child's answer
    print_in_vain(process, "the driver fails with error", result);
  }
  if (result != kSuccess) return result;
  const char* wrong = check_what_is_visible(*plan, asked_before);
  if (wrong != nullptr) return deny(process, wrong, caller);
  tell_guard(process, plan, caller);
  return kSuccess;
}

}  // namespace cudaguard
