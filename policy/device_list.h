// SPDX-License-Identifier: Apache-2.0
// The allow-list (CUDAGUARD_VISIBLE_DEVICES): the GPUs that a program may see. It is strict: a
// mistake is an error with its reason, never a shorter list. selection.h has what the program's own
// list selects among them. Pure; thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

inline constexpr size_t kMostGpus = 64;
/// Bytes with the final zero (NVML_DEVICE_UUID_V2_BUFFER_SIZE).
inline constexpr size_t kMostUuid = 96;
/// Largest number that an allow-list may hold; no machine has a GPU with a larger one.
inline constexpr uint32_t kMostIndex = 1'000'000;

/// Where an allow-list was given.
enum class ListBy : uint8_t {
  kVariable,
  kOption,  ///< run --gpus
  kRule,    ///< gpus= of a rule
};
inline constexpr char kListNames[][26] = {"CUDAGUARD_VISIBLE_DEVICES", "--gpus", "gpus="};
constexpr const char* name_of(ListBy by) { return kListNames[static_cast<size_t>(by)]; }

/// The allow-list as the user has given it.
struct GivenList {
  std::string_view text;  ///< syntax checked; empty: every GPU
  ListBy by = ListBy::kVariable;
  std::string_view place = {};  ///< if a rule of the machine's file has it: "/etc/cudaguard.conf:7"
};

/// What is wrong with an allow-list.
struct ListError {
  enum class Why : uint8_t {
    kNone,
    kEmptyEntry,
    kNotUnderstood,
    kNegative,
    kTooMany,
    kDuplicate,
    kNoSuchIndex,
    kUnknownUuid,
    kAmbiguousUuid,
    kNeedsNvml,
    kTooLong,  ///< the whole text
  };
  Why why = Why::kNone;
  size_t position = 0;     ///< 1-based
  std::string_view entry;  ///< as written, without outer blanks (points into the text given)
};

struct AllowEntry {
  enum class Kind : uint8_t { kIndex, kGpu, kMig };
  Kind kind = Kind::kIndex;
  uint32_t index = 0;     ///< for kIndex
  std::string_view text;  ///< points into the text given; shorter than kMostUuid for UUIDs
};

struct AllowList {
  AllowEntry entries[kMostGpus];
  size_t count = 0;
  bool none = false;  ///< empty, blanks, or "-1": no GPU at all, and no mistake
  ListError error;    ///< the first error; the entries before it are counted
};

/// Returns the value of `digits` (digits only), or kMostIndex + 1 if it is larger than kMostIndex.
uint32_t number_of(std::string_view digits);

/// Checks what needs no machine: the syntax, and whether an index comes twice or a UUID starts
/// another (kDuplicate). resolve() finds the devices.
AllowList parse_allow_list(std::string_view text);

/// True if both entries name the same device by what they say alone: an index twice, or a UUID and
/// its beginning.
bool repeats(const AllowEntry& entry, const AllowEntry& earlier);

/// The machine's devices as NVML lists them: GPUs in PCI order, then MIG devices.
struct Machine {
  static constexpr uint16_t kUnknownGpu = 0xffff;
  struct Device {
    char uuid[kMostUuid];  ///< ends in a zero byte; empty: not known
    uint16_t gpu;          ///< NVML index of the GPU, or of the MIG device's parent
    bool mig;

    /// The characters before the zero byte; the whole field if there is none.
    std::string_view name() const;
  };
  Device devices[4 * kMostGpus];
  size_t count = 0;
  /// False if built from the list alone (no NVML). An index entry then has an empty UUID. A UUID
  /// entry has the text of the list, perhaps only a prefix, and kUnknownGpu.
  bool known = true;
};

/// Makes one device per entry, for use without NVML. A list that mixes indices and UUIDs, or GPU-
/// and MIG-, cannot be checked: kNeedsNvml. `machine` is overwritten; after an error it has no
/// devices.
ListError machine_from_list(const AllowList& list, Machine& machine);

/// The allowed devices, in the list's order.
struct View {
  uint16_t devices[kMostGpus];  ///< positions in Machine::devices
  size_t count = 0;             ///< 0 after an error
  ListError error;
};

/// Finds the devices of the list. A UUID entry is the case-sensitive start of exactly one UUID of
/// its kind. If a device comes twice (also as an index and its UUID), or a GPU and one of its MIG
/// devices, the error is kDuplicate.
View resolve(const AllowList& list, const Machine& machine);

}  // namespace cudaguard
