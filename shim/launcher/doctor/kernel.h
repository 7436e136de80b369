// SPDX-License-Identifier: Apache-2.0
// The kernel's side of NVIDIA's driver. Looks, and opens nothing: to open a node may load a module.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/launcher/doctor/rows.h"

namespace cudaguard::launcher {

struct DeviceNode {
  std::string path;
  std::string device;   ///< "195:255"; empty: it is no character device
  bool usable = false;  ///< may this user open it, as far as the file system says?
};

struct KernelFacts {
  std::vector<DeviceNode> nodes;  ///< /dev/nvidia*, /dev/nvidia-caps/*
  std::optional<bool> loaded;     ///< the nvidia module; nothing: this system does not say
  std::string version;            ///< the module's: "535.261.03"
  bool uvm = false;               ///< nvidia_uvm is loaded
  bool nouveau = false;           ///< the other driver for these cards is
  bool wsl = false;               ///< /dev/dxg

  bool has_node(const std::string& path) const;
  /// A node that CUDA would open, though the module is not loaded; or null.
  const DeviceNode* left_behind() const;
};

/// "/dev/nvidia0"
bool is_gpu_node(std::string_view path);
/// The same, and what else CUDA opens.
bool is_needed(std::string_view path);

KernelFacts examine_kernel();
Rows rows_of(const KernelFacts& kernel);

/// Is it like "535.261.03"?
bool is_driver_version(std::string_view text);

}  // namespace cudaguard::launcher
