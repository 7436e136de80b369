// SPDX-License-Identifier: Apache-2.0
// The device nodes that a fence of devices leaves to a list of GPUs. NVIDIA's kernel module says in
// /proc/driver/nvidia which node is which GPU's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "shim/launcher/fence/fence.h"

namespace cudaguard::launcher {

/// How many GPUs NVIDIA's kernel module has, whose indices are all smaller; 0: it does not say.
/// Only names are read, because the module's answer about a GPU may hang like the GPU.
size_t count_of_gpus();

struct NeededNode {
  std::string path;
  bool optional = false;
  bool gpu = false;          ///< of one GPU; others may do without it
  std::string made_by = {};  ///< the command that makes it
};
/// The nodes that CUDA needs for all GPUs of this machine, whether they are there or not.
std::vector<NeededNode> nodes_of_cuda();

struct ListedGpus {
  std::vector<std::string> nodes;  ///< those of the list, and those that all GPUs share
  /// The list for the guard inside: UUIDs. The driver there numbers the GPUs that it can open
  /// from 0, so the user's indices would choose others.
  std::string list;
  std::string mistake;  ///< what is wrong with the list; empty if nothing is
  std::string why_not;  ///< a clause that says what this machine lacks; empty if nothing
};

/// Finds the GPUs of an allow-list whose syntax is right (policy/device_list.h).
ListedGpus find_listed_gpus(const std::string& list);

/// Installs a fence that allows NVIDIA's ioctls, and of all GPU device nodes only these.
/// Fence::devices says whether it holds.
Fence put_up_fence_around(const std::vector<std::string>& nodes);

}  // namespace cudaguard::launcher
