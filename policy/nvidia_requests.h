// SPDX-License-Identifier: Apache-2.0
// The ioctls of NVIDIA's kernel modules. Pure; thread-safe, allocation-free.
//
// Sources: NVIDIA's open kernel modules (kernel-open/common/inc/nv-ioctl-numbers.h and
// nv-ioctl-numa.h, src/nvidia/arch/nvalloc/unix/include/nv_escape.h,
// kernel-open/nvidia-uvm/uvm_linux_ioctl.h). Other users of type 'F': the kernel's
// Documentation/userspace-api/ioctl/ioctl-number.rst.
#pragma once

#include <cstdint>

namespace cudaguard {

/// The parts of an ioctl number, as in <asm-generic/ioctl.h> on x86 and Arm.
constexpr uint32_t number_of(uint32_t request) { return request & 0xff; }
constexpr uint32_t type_of(uint32_t request) { return request >> 8 & 0xff; }
constexpr uint32_t size_of(uint32_t request) { return request >> 16 & 0x3fff; }
constexpr uint32_t direction_of(uint32_t request) { return request >> 30; }
inline constexpr uint32_t kBothWays = 3;  ///< _IOWR, as in all of NVIDIA's ioctls

/// NV_IOCTL_MAGIC, the type for nvidiactl and nvidiaN.
inline constexpr uint32_t kNvidiaType = 'F';
struct NumberRange {
  uint8_t first;
  uint8_t last;
};
inline constexpr NumberRange kResourceManager = {0x27, 0x5f};  ///< NV_ESC_RM_*
inline constexpr NumberRange kFrontEnd = {200, 218};           ///< from NV_IOCTL_BASE on
/// Framebuffers have type 'F', too. Most have other numbers (0x00 to 0x20, 0x80 to 0x8f, 0xdd).
/// Electronic paper (mxcfb.h, hwtcon) has some of the resource manager's numbers, one way, or both
/// ways with eight bytes at most. NVIDIA's smallest ioctl there is NVOS00_PARAMETERS, and its
/// module refuses a wrong size.
inline constexpr uint32_t kSmallestOfResourceManager = 16;
/// The first ioctl on each descriptor of nvidia-uvm, whose ioctls are plain numbers.
inline constexpr uint32_t kUvmInitialize = 0x30000001;

/// Returns NVIDIA's ioctl with this number and size (_IOWR).
constexpr uint32_t nvidia_request(uint32_t number, uint32_t size) {
  return kBothWays << 30 | size << 16 | kNvidiaType << 8 | number;
}

/// An ioctl that no driver has, because none has a size of zero. The filter treats it as NVIDIA's.
inline constexpr uint32_t kNobodysRequest = nvidia_request(kFrontEnd.first, 0);

/// RM_CONTROL, which a guard sends to descriptor -1 if a filter refuses its beacon. The third
/// argument is the Beacon.
inline constexpr uint32_t kGuardsRequest = nvidia_request(0x2a, 32);

constexpr bool is_in(NumberRange range, uint32_t number) {
  return number >= range.first && number <= range.last;
}

constexpr bool is_nvidia_request(uint32_t request) {
  if (request == kUvmInitialize) return true;
  if (type_of(request) != kNvidiaType || direction_of(request) != kBothWays) return false;
  return is_in(kFrontEnd, number_of(request)) || (is_in(kResourceManager, number_of(request)) &&
                                                  size_of(request) >= kSmallestOfResourceManager);
}

struct NvidiaRequest {
  uint8_t number;
  const char* name;  ///< without NV_ESC_
};
/// All ioctls that the modules know today, in order.
inline constexpr NvidiaRequest kNvidiaRequests[] = {
    {0x27, "RM_ALLOC_MEMORY"},
    {0x28, "RM_ALLOC_OBJECT"},
    {0x29, "RM_FREE"},
    {0x2a, "RM_CONTROL"},
    {0x2b, "RM_ALLOC"},
    {0x32, "RM_CONFIG_GET"},
    {0x33, "RM_CONFIG_SET"},
    {0x34, "RM_DUP_OBJECT"},
    {0x35, "RM_SHARE"},
    {0x37, "RM_CONFIG_GET_EX"},
    {0x38, "RM_CONFIG_SET_EX"},
    {0x39, "RM_I2C_ACCESS"},
    {0x41, "RM_IDLE_CHANNELS"},
    {0x4a, "RM_VID_HEAP_CONTROL"},
    {0x4d, "RM_ACCESS_REGISTRY"},
    {0x4e, "RM_MAP_MEMORY"},
    {0x4f, "RM_UNMAP_MEMORY"},
    {0x52, "RM_GET_EVENT_DATA"},
    {0x54, "RM_ALLOC_CONTEXT_DMA2"},
    {0x56, "RM_ADD_VBLANK_CALLBACK"},
    {0x57, "RM_MAP_MEMORY_DMA"},
    {0x58, "RM_UNMAP_MEMORY_DMA"},
    {0x59, "RM_BIND_CONTEXT_DMA"},
    {0x5c, "RM_EXPORT_OBJECT_TO_FD"},
    {0x5d, "RM_IMPORT_OBJECT_FROM_FD"},
    {0x5e, "RM_UPDATE_DEVICE_MAPPING_INFO"},
    {0x5f, "RM_LOCKLESS_DIAGNOSTIC"},
    {200, "CARD_INFO"},
    {201, "REGISTER_FD"},
    {206, "ALLOC_OS_EVENT"},
    {207, "FREE_OS_EVENT"},
    {209, "STATUS_CODE"},
    {210, "CHECK_VERSION_STR"},
    {211, "IOCTL_XFER_CMD"},
    {212, "ATTACH_GPUS_TO_FD"},
    {213, "QUERY_DEVICE_INTR"},
    {214, "SYS_PARAMS"},
    {215, "NUMA_INFO"},
    {216, "SET_NUMA_STATUS"},
    {217, "EXPORT_TO_DMABUF_FD"},
    {218, "WAIT_OPEN_COMPLETE"},
};

/// Returns "RM_CONTROL", "UVM_INITIALIZE", …, or "request" if the ioctl has no name.
constexpr const char* name_of_request(uint32_t request) {
  if (request == kUvmInitialize) return "UVM_INITIALIZE";
  for (const NvidiaRequest& one : kNvidiaRequests) {
    if (one.number == number_of(request)) return one.name;
  }
  return "request";
}

}  // namespace cudaguard
