// SPDX-License-Identifier: Apache-2.0
//
// The driver's log, by which a program learns why cuInit has failed. It has one entry, the guard's
// message, which is the newest entry after each refused call. A callback gets the entry once, so a
// callback that calls cuInit does not recurse. No lock, no allocation; thread-safe,
// async-signal-safe. A forked child has its parent's log and callbacks.
#include "shim/null_driver/log.h"

#include <fcntl.h>
#include <stdlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/api/cuda.h"
#include "shim/null_driver/export.h"
#include "shim/null_driver/guard_function.h"
#include "shim/sys/system.h"

extern "C" [[gnu::weak, gnu::visibility("default")]] const char* cudaguard_refusal_v1(
    unsigned* count);

namespace cudaguard {
namespace {

using Refusal = const char* (*)(unsigned*);
[[gnu::section(".data")]] constinit GuardFunction elsewhere;
[[gnu::section(".data")]] constinit std::atomic<bool> is_in_file{false};
// Counts the refused calls without a guard, too.
[[gnu::section(".data")]] constinit std::atomic<unsigned> refused{0};

/// The only entry of the log.
class Entry {
 public:
  Entry() {
    Refusal refusal = &cudaguard_refusal_v1;
    if (refusal == nullptr) refusal = elsewhere.find<Refusal>("cudaguard_refusal_v1");
    unsigned by_guard = 0;
    const char* message = refusal != nullptr ? refusal(&by_guard) : nullptr;
    number_ = refused.load(std::memory_order_relaxed) + by_guard;
    put("cudaguard: ");
    put(message != nullptr ? message : "no CUDA here (FORCE_CPU)");
    text_[size_] = '\n';
  }

  /// Changes with each refused call, and is 0 before the first one.
  CUlogIterator number() const { return number_; }
  bool is_after(const CUlogIterator* iterator) const {
    return number_ != 0 && (iterator == nullptr || *iterator != number_);
  }
  /// Without a newline.
  size_t size() const { return size_; }
  std::string_view line() const { return {text_, size_ + 1}; }
  /// For one callback, which may change it.
  char* text() {
    text_[size_] = '\0';
    return text_;
  }

 private:
  void put(const char* text) {
    for (; *text != '\0' && size_ < sizeof text_ - 1; ++text) text_[size_++] = *text;
  }

  CUlogIterator number_ = 0;
  size_t size_ = 0;
  char text_[576];
};

/// A place for a callback. A place that was used before has another `state`, so that no other
/// callback is called or removed in its stead.
struct Place {
  // The two lowest bits of `state`. The others count how often the place was used.
  static constexpr uintptr_t kFree = 0;
  static constexpr uintptr_t kBusy = 1;
  static constexpr uintptr_t kUsed = 2;
  static constexpr uintptr_t kTold = 3;  // the callback has got the entry
  static constexpr uintptr_t kBits = 3;

  std::atomic<uintptr_t> state{kFree};
  std::atomic<CUlogsCallback> function{nullptr};
  std::atomic<void*> data{nullptr};
};
constexpr uintptr_t kPlaces = 16;
[[gnu::section(".data")]] constinit Place places[kPlaces];
// Almost no program has a callback, and some call cuInit very often.
[[gnu::section(".data")]] constinit std::atomic<bool> has_had_callback{false};

CUlogsCallbackHandle handle_of(uintptr_t used, uintptr_t place) {
  return reinterpret_cast<CUlogsCallbackHandle>(used * kPlaces + place);
}

/// Returns false if all places are used.
bool add(CUlogsCallback function, void* data, CUlogsCallbackHandle* handle) {
  for (uintptr_t i = 0; i < kPlaces; ++i) {
    Place& place = places[i];
    uintptr_t state = place.state.load(std::memory_order_relaxed);
    if ((state & Place::kBits) != Place::kFree) continue;
    if (!place.state.compare_exchange_strong(state, state + Place::kBusy)) continue;
    place.function.store(function, std::memory_order_relaxed);
    place.data.store(data, std::memory_order_relaxed);
    // Before another thread or a handler can call the function.
    if (handle != nullptr) *handle = handle_of(state + Place::kUsed, i);
    has_had_callback.store(true, std::memory_order_relaxed);
    place.state.store(state + Place::kUsed, std::memory_order_release);
    return true;
  }
  return false;
}

/// Returns false if there is no such callback.
bool remove(CUlogsCallbackHandle handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  const uintptr_t used = value / kPlaces;
  if ((used & Place::kBits) != Place::kUsed) return false;
  std::atomic<uintptr_t>& state = places[value % kPlaces].state;
  constexpr uintptr_t kNext = Place::kBits + 1;
  for (uintptr_t now : {used, used + (Place::kTold - Place::kUsed)}) {
    if (state.compare_exchange_strong(now, used - Place::kUsed + kNext)) return true;
  }
  return false;
}

void call_back() {
  for (Place& place : places) {
    uintptr_t state = place.state.load(std::memory_order_acquire);
    if ((state & Place::kBits) != Place::kUsed) continue;
    const CUlogsCallback function = place.function.load(std::memory_order_relaxed);
    void* const data = place.data.load(std::memory_order_relaxed);
    const uintptr_t told = state + (Place::kTold - Place::kUsed);
    if (!place.state.compare_exchange_strong(state, told)) continue;
    Entry entry;
    function(data, CU_LOG_LEVEL_ERROR, entry.text(), entry.size());
  }
}

/// Returns false if the file cannot be written.
bool append(const char* path, std::string_view text) {
  const sys::File file(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                       0644);
  if (!file.ok()) return false;
  return text.empty() ||
         sys::quiet_write(file.fd(), text.data(), text.size()) == static_cast<long>(text.size());
}

/// Writes the entry once, also if forked children are refused CUDA, too.
void write_to_log_file() {
  if (is_in_file.exchange(true)) return;
  const char* path = secure_getenv("CUDA_LOG_FILE");
  if (path == nullptr || *path == '\0') return;
  const Entry entry;
  const std::string_view name = path;
  if (name == "stdout" || name == "stderr") {
    sys::quiet_write(name == "stdout" ? 1 : 2, entry.line().data(), entry.line().size());
  } else {
    append(path, entry.line());
  }
}

}  // namespace

void log_refusal() {
  refused.fetch_add(1, std::memory_order_relaxed);
  if (has_had_callback.load(std::memory_order_relaxed)) call_back();
  if (!is_in_file.load(std::memory_order_relaxed)) write_to_log_file();
}

}  // namespace cudaguard

// The contract is that of cuda.h, which names no other errors than CUDA_ERROR_INVALID_VALUE.

CG_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback function, void* data,
                                          CUlogsCallbackHandle* handle) {
  return function != nullptr && cudaguard::add(function, data, handle) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_INVALID_VALUE;
}

// Another thread may still be in the callback, or about to call it.
CG_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  return cudaguard::remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CG_EXPORT CUresult cuLogsCurrent(CUlogIterator* iterator, unsigned int flags) {
  if (iterator == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator = cudaguard::Entry().number();
  return CUDA_SUCCESS;
}

// Appends, because the header does not allow to remove what is in the file.
CG_EXPORT CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* path, unsigned int flags) {
  if (path == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const cudaguard::Entry entry;
  const bool is_new = entry.is_after(iterator);
  if (!cudaguard::append(path, is_new ? entry.line() : "")) return CUDA_ERROR_INVALID_VALUE;
  if (iterator != nullptr) *iterator = entry.number();
  return CUDA_SUCCESS;
}

CG_EXPORT CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                                      unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const cudaguard::Entry entry;
  const std::string_view text = entry.is_after(iterator) ? entry.line() : "";
  const size_t room = *size;
  *size = 0;
  if (room != 0) *buffer = '\0';
  // The terminator needs a byte, too, unless there is nothing to dump.
  if (!text.empty() && room <= text.size()) return CUDA_ERROR_INVALID_VALUE;
  for (const char c : text) *buffer++ = c;
  if (!text.empty()) *buffer = '\0';
  *size = text.size();
  if (iterator != nullptr) *iterator = entry.number();
  return CUDA_SUCCESS;
}

CG_OWN_NAME(cuLogsRegisterCallback);
CG_OWN_NAME(cuLogsUnregisterCallback);
CG_OWN_NAME(cuLogsCurrent);
CG_OWN_NAME(cuLogsDumpToFile);
CG_OWN_NAME(cuLogsDumpToMemory);
