// SPDX-License-Identifier: Apache-2.0
// The fence of devices is a Landlock domain: in this process and in all that it starts, no GPU
// device node (policy/device_nodes.h) can be opened, except those of listed GPUs.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

/// The names in a directory, sorted; none if it cannot be read.
std::vector<std::string> names_in(const std::string& directory);

/// The directories that a fence of devices grants entry by entry, and the entries that it leaves
/// out. Both grow from mounts by which GPU nodes are also elsewhere than in /dev.
struct GpuNodes {
  std::vector<std::string> left_out;
  std::vector<std::string> split = {"/", "/dev"};
  std::vector<std::string> kept = {};  ///< nodes in /dev that can be opened (fence/listed_gpus.h)
};

/// `mounts` has the text of /proc/self/mountinfo.
GpuNodes find_gpu_nodes(const std::string& mounts);

/// Puts this process, which must have no other threads, into the domain. Returns a clause that says
/// why it cannot, or an empty string. Sets no_new_privs only if the kernel requires it, and
/// `ioctls` if the kernel cannot refuse the ioctls of a node that was opened anyway (before
/// Linux 6.10).
std::string enter_device_fence(const GpuNodes& nodes, bool& no_new_privs, bool& ioctls);

/// How many Landlock domains this process is in. A child process tries how many more it can enter.
int landlock_domains();

}  // namespace cudaguard::launcher
