// SPDX-License-Identifier: Apache-2.0
#include "policy/device_nodes.h"

#include <gtest/gtest.h>

#include <string>

#include "shim/launcher/fence/devices.h"

namespace cudaguard {
namespace {

TEST(DeviceNodes, NamesOfGpuNodesAreKnown) {
  for (const char* name :
       {"nvidia0",    "nvidiactl",    "nvidia-uvm", "nvidia-caps", "dri",     "kfd",    "dxg",
        "nvhost-gpu", "nvmap",        "nvgpu",      "accel",       "accel0",  "mali0",  "ump",
        "kgsl-3d0",   "pvrsrvkm",     "pvr_sync",   "galcore",     "mtgpu.0", "mkfd",   "mxcd",
        "hl0",        "hl_controlD0", "vfio",       "iluvatar0",   "biren",   "biren-m"}) {
    EXPECT_NE(device_node(name), nullptr) << name;
  }
}

TEST(DeviceNodes, OtherNamesAreNot) {
  for (const char* name : {"", "null", "dri2", "kfd0", "xnvidia0", "nvi", "nvme0", "hpet", "kvm",
                           "galcore2", "vfio2", "shm", "video0", "fb0", "Nvidia0"}) {
    EXPECT_EQ(device_node(name), nullptr) << name;
  }
}

TEST(DeviceNodes, MountsWithoutANodeSplitNothing) {
  const launcher::GpuNodes nodes = launcher::find_gpu_nodes(
      "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "23 22 0:6 /dri /mnt/none rw,nodev shared:1 master:2 - devtmpfs udev rw\n"
      "24 22 0:7 / /mnt/no\\040such rw - tmpfs none rw\n"
      "25 22 0:8 / /mnt/far rw - nfs4 far:/ rw\n"
      "short line\n");
  EXPECT_TRUE(nodes.left_out.empty());
  EXPECT_EQ(nodes.split, (std::vector<std::string>{"/", "/dev"}));
}

}  // namespace
}  // namespace cudaguard
