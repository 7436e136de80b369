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
    // OpenCL and Vulkan of Arm's own driver; ump is the memory of its older GPUs.
    {"mali*", "Arm"},
    {"ump", "Arm"},
    // Adreno with Qualcomm's own kernel driver (drivers/gpu/msm/kgsl.c): kgsl-3d0.
    {"kgsl*", "Qualcomm"},
    // PowerVR with Imagination's own kernel driver: pvrsrvkm, pvr_sync.
    {"pvr*", "Imagination"},
    // Vivante with VeriSilicon's own kernel driver (NXP's drivers/mxc/gpu-viv).
    {"galcore", "VeriSilicon"},
    // MUSA with Moore Threads' kernel driver: mtgpu.0.
    {"mtgpu*", "Moore Threads"},
    // CoreX with Iluvatar's kernel driver: iluvatar0.
    {"iluvatar*", "Iluvatar"},
    // SUPA with Biren's kernel driver: biren/card_0, biren-m.
    {"biren*", "Biren"},
    // ROCm's derivative for Hygon's GPUs, beside kfd.
    {"mkfd", "Hygon"},
    // MACA with MetaX's kernel driver.
    {"mxcd", "MetaX"},
    // Gaudi before Linux 6.5 (drivers/accel/habanalabs, once drivers/misc): hl0, hl_controlD0.
    {"hl*", "Intel"},
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
