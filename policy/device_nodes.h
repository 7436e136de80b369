// SPDX-License-Identifier: Apache-2.0
// The names of GPU device nodes in /dev. Pure; thread-safe, allocation-free.
#pragma once

#include <string_view>

namespace cudaguard {

struct DeviceNode {
  std::string_view name;  ///< in /dev: a node or a directory; "nvidia*": each name with this start
  const char* maker;      ///< "all": a kernel interface that several makers use
};

inline constexpr DeviceNode kDeviceNodes[] = {
    // CUDA, NVML, OpenGL and Vulkan: nvidia0, nvidiactl, nvidia-uvm, nvidia-modeset, and for MIG
    // and the fabric nvidia-caps/ and nvidia-caps-imex-channels/.
    {"nvidia*", "NVIDIA"},
    // DRM: OpenGL and Vulkan of Mesa and of NVIDIA, AMD's ROCm, Intel's Level Zero.
    {"dri", "all"},
    // ROCm and HIP.
    {"kfd", "AMD"},
    // The GPUs of the Windows host, in WSL.
    {"dxg", "Microsoft"},
    // CUDA on Jetson: nvhost-gpu, nvhost-ctrl, nvhost-as-gpu, …
    {"nvhost*", "NVIDIA"},
    // Memory of the GPU on Jetson.
    {"nvmap", "NVIDIA"},
    // CUDA on Jetson with the module nvgpu.
    {"nvgpu*", "NVIDIA"},
    // The kernel's accelerators (accel/accel0), such as Intel's Gaudi and NPUs.
    {"accel*", "all"},
    // OpenCL and Vulkan of Arm's own driver.
    {"mali*", "Arm"},
    // A GPU that a program drives by itself over PCI.
    {"vfio", "all"},
};

/// The row of this entry of /dev, or null.
constexpr const DeviceNode* device_node(std::string_view name) {
  for (const DeviceNode& node : kDeviceNodes) {
    const std::string_view start = node.name.substr(0, node.name.size() - 1);
    if (node.name.ends_with('*') ? name.starts_with(start) : name == node.name) return &node;
  }
  return nullptr;
}

}  // namespace cudaguard
