// SPDX-License-Identifier: Apache-2.0
// A machine with 8 GPUs, of which 6 and 7 are divided into MIG devices. The UUIDs of GPUs 2 and 3
// have a common beginning, and so have the UUIDs of GPU 6's MIG devices.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "policy/selection.h"

namespace cudaguard::testing {

inline constexpr const char* kGpuUuids[] = {
    "GPU-00a1c2d3-0000-0000-0000-000000000000", "GPU-11b2c3d4-0000-0000-0000-000000000001",
    "GPU-aabb0000-0000-0000-0000-000000000002", "GPU-aabb0001-0000-0000-0000-000000000003",
    "GPU-44e5f607-0000-0000-0000-000000000004", "GPU-55f60718-0000-0000-0000-000000000005",
    "GPU-66071829-0000-0000-0000-000000000006", "GPU-7718293a-0000-0000-0000-000000000007",
};
inline constexpr const char* kMigUuids[] = {
    "MIG-cc000000-0000-0000-0000-000000000000",  // belongs to GPU 6
    "MIG-cc000001-0000-0000-0000-000000000001",  // belongs to GPU 6
    "MIG-dd000000-0000-0000-0000-000000000002",  // belongs to GPU 7
};

inline void add_device(Machine& machine, std::string_view uuid, uint16_t gpu, bool mig) {
  Machine::Device& device = machine.devices[machine.count++];
  std::memset(device.uuid, 0, sizeof device.uuid);
  std::memcpy(device.uuid, uuid.data(), uuid.size());
  device.gpu = gpu;
  device.mig = mig;
}

inline std::unique_ptr<Machine> eight_gpus() {
  auto machine = std::make_unique<Machine>();
  for (uint16_t i = 0; i < 8; ++i) add_device(*machine, kGpuUuids[i], i, false);
  add_device(*machine, kMigUuids[0], 6, true);
  add_device(*machine, kMigUuids[1], 6, true);
  add_device(*machine, kMigUuids[2], 7, true);
  return machine;
}

/// A copy of exactly the text's size, so that ASan detects a read beyond it.
class Exact {
 public:
  explicit Exact(std::string_view text) : size_(text.size()), bytes_(new char[text.size() + 1]) {
    std::memcpy(bytes_.get(), text.data(), size_);
    bytes_[size_] = '\0';
    unterminated_.reset(new char[size_ == 0 ? 1 : size_]);
    std::memcpy(unterminated_.get(), text.data(), size_);
  }
  const char* c_str() const { return bytes_.get(); }
  std::string_view view() const { return {unterminated_.get(), size_}; }

 private:
  size_t size_;
  std::unique_ptr<char[]> bytes_;
  std::unique_ptr<char[]> unterminated_;
};

inline std::vector<int> devices_of(const View& view) {
  return {view.devices, view.devices + view.count};
}
inline std::vector<int> indices_of(const Selection& selection) {
  return {selection.view, selection.view + selection.count};
}

inline std::string driver_list(const Selection& selection, const View& view,
                               const Machine& machine) {
  std::vector<char> buffer(kMostGpus * kMostUuid);
  Text out(buffer.data(), buffer.size());
  return write_driver_list(out, selection, view, machine) ? std::string(out.view()) : "(false)";
}

}  // namespace cudaguard::testing
