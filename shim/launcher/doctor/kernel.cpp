// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/kernel.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kVersion = "/proc/driver/nvidia/version";

/// Sorted; the folder itself may be missing.
std::set<std::string> paths_in(const std::string& folder) {
  std::set<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    paths.insert(entry->path().string());
  }
  return paths;
}

void add_node(const std::string& path, KernelFacts& facts) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) {
    for (const std::string& inside : paths_in(path)) add_node(inside, facts);
    return;
  }
  DeviceNode node;
  node.path = path;
  if (S_ISCHR(status.st_mode)) {
    node.device =
        std::to_string(major(status.st_rdev)) + ":" + std::to_string(minor(status.st_rdev));
  }
  // MIG's capabilities are for reading.
  const int wanted = path.starts_with("/dev/nvidia-caps/") ? R_OK : R_OK | W_OK;
  node.usable = !node.device.empty() && access(path.c_str(), wanted) == 0;
  facts.nodes.push_back(std::move(node));
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Thu Jun ...": the first such word.
std::string version_in(const char* path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (is_driver_version(word)) return word;
  }
  return {};
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

}  // namespace

bool KernelFacts::has_node(const std::string& path) const {
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const DeviceNode& node) { return node.path == path; });
}

const DeviceNode* KernelFacts::left_behind() const {
  if (loaded != false) return nullptr;
  for (const DeviceNode& node : nodes) {
    if (is_needed(node.path) && !node.device.empty()) return &node;
  }
  return nullptr;
}

bool is_gpu_node(std::string_view path) {
  constexpr std::string_view kStart = "/dev/nvidia";
  return path.starts_with(kStart) && path.size() > kStart.size() &&
         path.find_first_not_of("0123456789", kStart.size()) == std::string_view::npos;
}

bool is_needed(std::string_view path) {
  return is_gpu_node(path) || path == "/dev/nvidiactl" || path == "/dev/nvidia-uvm";
}

KernelFacts examine_kernel() {
  KernelFacts facts;
  for (const std::string& path : paths_in("/dev")) {
    if (path.starts_with("/dev/nvidia")) add_node(path, facts);
  }
  facts.version = version_in(kVersion);
  if (facts.version.empty()) facts.version = version_in("/sys/module/nvidia/version");
  if (exists(kVersion) || exists("/sys/module/nvidia")) {
    facts.loaded = true;
  } else if (!paths_in("/sys/module").empty()) {
    facts.loaded = false;
  }
  facts.uvm = exists("/sys/module/nvidia_uvm");
  facts.nouveau = exists("/sys/module/nouveau");
  facts.wsl = exists("/dev/dxg");
  return facts;
}

Rows rows_of(const KernelFacts& kernel) {
  std::string module = !kernel.loaded ? "not known" : *kernel.loaded ? "loaded" : "not loaded";
  if (!kernel.version.empty()) module += ", " + kernel.version;
  if (kernel.uvm) module += ", with nvidia_uvm";
  if (kernel.nouveau) module += "; nouveau is";
  std::string text;
  Json nodes = Json::array();
  for (const DeviceNode& node : kernel.nodes) {
    text += (text.empty() ? "" : " ") + printable(node.path);
    if (!node.usable) text += node.device.empty() ? " (no device)" : " (not for this user)";
    nodes.push_back(
        {{"path", node.path}, {"device", or_null(node.device)}, {"usable", node.usable}});
  }
  return {{"kernel_module",
           {{"loaded", or_null(kernel.loaded)},
            {"version", or_null(kernel.version)},
            {"uvm", kernel.uvm},
            {"nouveau", kernel.nouveau}},
           named("kernel module", {module})},
          {"nodes", nodes, named("device nodes", {text.empty() ? "none" : text})},
          {"wsl", kernel.wsl, {}}};
}

bool is_driver_version(std::string_view text) {
  const std::string_view major = text.substr(0, text.find('.'));
  // NVIDIA's are at 96 and beyond; WSL's and Jetson's libcuda.so.1.1 has none.
  if (major.size() < 2 || major.size() == text.size()) return false;
  if (text.ends_with('.') || text.find("..") != std::string_view::npos) return false;
  return text.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace cudaguard::launcher
