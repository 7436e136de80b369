// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/kernel.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "shim/launcher/doctor/libraries.h"
#include "shim/launcher/elf/elf_file.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kModules = "/sys/module";
constexpr const char* kVersion = "/proc/driver/nvidia/version";

/// The names in a folder, sorted; the folder itself may be missing.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(folder.c_str()), closedir);
  while (stream != nullptr) {
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void add_node(const std::string& path, KernelFacts& facts) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) {
    const std::string folder = path + "/";
    for (const std::string& name : names_in(path)) add_node(folder + name, facts);
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
std::string version_of(const std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
    std::string word = text.substr(at, end - at);
    if (is_driver_version(word)) return word;
    at = end + 1;
  }
  return {};
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

std::string beginning_of(const std::string& path) {
  // By reading: /proc says that its files are empty.
  const std::unique_ptr<FILE, int (*)(FILE*)> stream(fopen(path.c_str(), "re"), fclose);
  if (stream == nullptr) return {};
  char buffer[512];
  const size_t got = fread(buffer, 1, sizeof buffer, stream.get());
  return {buffer, got};
}

const DeviceNode* KernelFacts::node(const std::string& path) const {
  for (const DeviceNode& node : nodes) {
    if (node.path == path) return &node;
  }
  return nullptr;
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
  for (const std::string& name : names_in("/dev")) {
    if (name.starts_with("nvidia")) add_node("/dev/" + name, facts);
  }
  const std::string modules = kModules;
  facts.version = version_of(beginning_of(kVersion));
  if (facts.version.empty()) {
    facts.version = version_of(beginning_of(modules + "/nvidia/version"));
  }
  if (exists(kVersion) || exists(modules + "/nvidia")) {
    facts.loaded = true;
  } else if (!names_in(modules).empty()) {
    facts.loaded = false;
  }
  facts.uvm = exists(modules + "/nvidia_uvm");
  facts.nouveau = exists(modules + "/nouveau");
  facts.wsl = exists("/dev/dxg");
  return facts;
}

}  // namespace cudaguard::launcher
