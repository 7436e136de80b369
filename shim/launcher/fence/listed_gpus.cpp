// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/fence/listed_gpus.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "policy/device_list.h"
#include "shim/guard/text/message.h"
#include "shim/launcher/fence/devices.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

constexpr const char* kGpus = "/proc/driver/nvidia/gpus";
constexpr const char* kCapabilities = "/proc/driver/nvidia/capabilities";
constexpr size_t kWholeUuid = sizeof "GPU-12345678-1234-1234-1234-123456789abc" - 1;
constexpr const char* kOnlyBeforehand = "; nothing inside can make it, so run ";

/// A GPU of NVIDIA's kernel module, as /proc/driver/nvidia/gpus/ADDRESS/information has it.
struct NvidiaGpu {
  std::string uuid;    ///< "GPU-..."; empty: the module does not know it yet
  unsigned minor = 0;  ///< of its node: /dev/nvidia<minor>
};

/// The nodes that CUDA needs for each GPU; without the optional ones, something else fails.
struct SharedNode {
  const char* path;
  bool optional;
  const char* made_by;  ///< the command that makes it
};
constexpr SharedNode kSharedNodes[] = {{"/dev/nvidiactl", false, "nvidia-modprobe -c 255"},
                                       {"/dev/nvidia-uvm", false, "nvidia-modprobe -u -c 0"},
                                       {"/dev/nvidia-uvm-tools", true, "nvidia-modprobe -u -c 0"},
                                       {"/dev/nvidia-modeset", true, "nvidia-modprobe -m"}};

/// The numbers of a PCI address in the order in which addresses are compared.
using Address = std::array<unsigned, 4>;

std::optional<Address> address_of(const std::string& text) {
  Address numbers;
  auto& [domain, bus, device, function] = numbers;
  const int found = sscanf(text.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function);
  return found == 4 ? std::optional(numbers) : std::nullopt;
}

/// Returns the value of "KEY:  value" in a file of /proc; empty if it has none.
std::string value_in(const std::string& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || std::string_view(line).substr(0, colon) != key) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos
               ? ""
               : line.substr(first, line.find_last_not_of(" \t") + 1 - first);
  }
  return {};
}

std::optional<unsigned> number_in(const std::string& file, std::string_view key) {
  const std::string text = value_in(file, key);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return {};
  const uint32_t number = number_of(text);
  return number > kMostIndex ? std::nullopt : std::optional(number);
}

/// Returns what is wrong with a device node that should have this minor number (-1: any); empty if
/// it is right.
std::string fault_of(const std::string& path, long number, const std::string& made_by) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return path + " is missing" + kOnlyBeforehand + made_by;
  const bool node = S_ISCHR(status.st_mode);
  if (node && (number < 0 || minor(status.st_rdev) == number)) return {};
  return path + " is not the node of " +
         (number < 0 ? "the driver" : "minor " + std::to_string(number)) + "; remove it, and run " +
         made_by;
}

std::string node_of(const NvidiaGpu& gpu) { return "/dev/nvidia" + std::to_string(gpu.minor); }

std::string made_by(const NvidiaGpu& gpu) {
  return "nvidia-modprobe -c " + std::to_string(gpu.minor);
}

std::string fault_of(const NvidiaGpu& gpu) {
  return fault_of(node_of(gpu), gpu.minor, made_by(gpu));
}

/// A node that the GPU's MIG devices need.
struct Capability {
  std::string file;                ///< in /proc, which says the node's number
  std::optional<unsigned> number;  ///< nothing: the file does not say it
  std::string node() const {
    return "/dev/nvidia-caps/nvidia-cap" + std::to_string(number.value_or(0));
  }
};

std::string made_by(const Capability& one) { return "nvidia-modprobe -f " + printable(one.file); }

/// Those of all MIG devices of the GPU.
std::vector<Capability> capabilities_of(const NvidiaGpu& gpu) {
  std::vector<Capability> found;
  const auto add = [&](const std::string& directory) {
    const std::string file = directory + "/access";
    found.push_back({file, number_in(file, "DeviceFileMinor")});
  };
  const std::string parts =
      std::string(kCapabilities) + "/gpu" + std::to_string(gpu.minor) + "/mig";
  for (const std::string& part : names_in(parts)) {
    if (!part.starts_with("gi")) continue;
    add(parts + "/" + part);
    for (const std::string& unit : names_in(parts + "/" + part)) {
      if (unit.starts_with("ci")) add(parts + "/" + part + "/" + unit);
    }
  }
  return found;
}

/// Adds the nodes of all MIG devices of the GPU. Returns what is wrong with one.
std::string add_capabilities(const NvidiaGpu& gpu, std::vector<std::string>& nodes) {
  for (const Capability& one : capabilities_of(gpu)) {
    const std::string file = printable(one.file);
    if (!one.number) return file + " has no DeviceFileMinor, so its node is not known";
    std::string fault = fault_of(one.node(), *one.number, made_by(one));
    if (!fault.empty()) return fault;
    nodes.push_back(one.node());
  }
  return {};
}

/// What policy/device_list.h knows of these GPUs.
std::unique_ptr<Machine> machine_of(const std::vector<NvidiaGpu>& gpus) {
  auto machine = std::make_unique<Machine>();
  machine->count = std::min(gpus.size(), kMostGpus);
  for (size_t i = 0; i < machine->count; ++i) {
    Machine::Device& device = machine->devices[i];
    device = {.uuid = {}, .gpu = static_cast<uint16_t>(i), .mig = false};
    gpus[i].uuid.copy(device.uuid, kMostUuid - 1);
  }
  return machine;
}

/// Returns all GPUs that the driver uses, in PCI order, as NVML counts them. Sets `unknown` to the
/// file of one of which this is not known, so that no index is.
std::vector<NvidiaGpu> nvidia_gpus(std::string& unknown) {
  std::vector<std::pair<Address, NvidiaGpu>> found;
  for (const std::string& name : names_in(kGpus)) {
    const std::string file = std::string(kGpus) + "/" + name + "/information";
    if (value_in(file, "GPU Excluded") == "Yes") continue;  // no program can use it
    const std::optional<Address> address = address_of(name);
    const std::optional<unsigned> number = number_in(file, "Device Minor");
    if (!address || !number) {
      unknown = file;
      continue;
    }
    std::string uuid = value_in(file, "GPU UUID");
    if (uuid.find('?') != std::string::npos || !uuid.starts_with("GPU-")) uuid.clear();
    found.push_back({*address, {uuid, *number}});
  }
  std::ranges::sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<NvidiaGpu> gpus;
  for (const auto& [address, gpu] : found) gpus.push_back(gpu);
  return gpus;
}

}  // namespace

size_t count_of_gpus() { return names_in(kGpus).size(); }

std::vector<NeededNode> nodes_of_cuda() {
  std::vector<NeededNode> nodes;
  for (const SharedNode& node : kSharedNodes) {
    nodes.push_back({node.path, node.optional, false, node.made_by});
  }
  std::string unknown;
  for (const NvidiaGpu& gpu : nvidia_gpus(unknown)) {
    nodes.push_back({node_of(gpu), false, true, made_by(gpu)});
    for (const Capability& one : capabilities_of(gpu)) {
      if (one.number) nodes.push_back({one.node(), false, true, made_by(one)});
    }
  }
  return nodes;
}

ListedGpus find_listed_gpus(const std::string& list) {
  ListedGpus found;
  std::string unknown;
  const std::vector<NvidiaGpu> gpus = nvidia_gpus(unknown);
  if (!unknown.empty()) {
    found.why_not =
        printable(unknown) + " does not give the GPU's \"Device Minor\", so no node is known";
    return found;
  }
  if (gpus.empty()) {
    found.why_not = std::string(kGpus) +
                    " names no GPU, so no node is known; load NVIDIA's kernel module, or do not "
                    "hide this directory";
    return found;
  }
  const AllowList entries = parse_allow_list(list);
  const auto any = [&](AllowEntry::Kind kind) {
    return std::any_of(entries.entries, entries.entries + entries.count,
                       [&](const AllowEntry& entry) { return entry.kind == kind; });
  };
  if (any(AllowEntry::Kind::kMig)) {
    found.mistake = "which nodes a MIG device has is not known; name its GPU";
    return found;
  }
  const View view = resolve(entries, *machine_of(gpus));
  const bool all_known = std::ranges::none_of(gpus, &std::string::empty, &NvidiaGpu::uuid);
  // Another GPU's UUID could begin in the same way.
  const bool has_beginning =
      std::any_of(entries.entries, entries.entries + entries.count, [](const AllowEntry& entry) {
        return entry.kind == AllowEntry::Kind::kGpu && entry.text.size() < kWholeUuid;
      });
  const ListError::Why why = view.error.why;
  const bool may_be_another =
      why == ListError::Why::kUnknownUuid || (why == ListError::Why::kNone && has_beginning);
  if (!all_known && may_be_another) {
    found.why_not =
        "the driver does not say which GPU has this UUID yet; run nvidia-smi -L beforehand, or "
        "give "
        "indices";
    return found;
  }
  if (why != ListError::Why::kNone) {
    found.mistake = text_of([&](Text& out) { put_list_error(out, view.error, gpus.size()); });
    return found;
  }
  const bool uuids = std::all_of(view.devices, view.devices + view.count,
                                 [&](uint16_t at) { return !gpus[at].uuid.empty(); });
  for (size_t i = 0; i < view.count; ++i) {
    const NvidiaGpu& gpu = gpus[view.devices[i]];
    if (found.why_not.empty()) found.why_not = fault_of(gpu);
    if (found.why_not.empty()) found.why_not = add_capabilities(gpu, found.nodes);
    found.nodes.push_back(node_of(gpu));
    // The module learns a UUID when it first uses the GPU. Until then, the list has the GPU's
    // number among those that are left.
    const auto before = std::count_if(view.devices, view.devices + view.count,
                                      [&](uint16_t at) { return at < view.devices[i]; });
    found.list.append(i == 0 ? "" : ",").append(uuids ? gpu.uuid : std::to_string(before));
  }
  // For NVML, a GPU without a node is not there, as in some containers, and has no index.
  if (found.why_not.empty() && any(AllowEntry::Kind::kIndex)) {
    for (const NvidiaGpu& gpu : gpus) {
      const std::string fault = fault_of(gpu);
      if (fault.empty()) continue;
      found.why_not = fault + ", or name the GPUs by UUID";
      break;
    }
  }
  for (const SharedNode& node : kSharedNodes) {
    const std::string fault = fault_of(node.path, -1, node.made_by);
    if (!fault.empty() && !node.optional && found.why_not.empty()) found.why_not = fault;
    if (fault.empty()) found.nodes.emplace_back(node.path);
  }
  return found;
}

}  // namespace cudaguard::launcher
