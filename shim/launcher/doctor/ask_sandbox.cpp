// SPDX-License-Identifier: Apache-2.0
// Finds what keeps programs of this process from a GPU: permissions, mounts, cgroups and sandboxes.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "policy/device_nodes.h"
#include "policy/driver_api.h"
#include "shim/launcher/doctor/doctor.h"
#include "shim/launcher/fence/devices.h"
#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

constexpr int kOperatingSystem = 304;
constexpr const char* kCapabilities = "/dev/nvidia-caps/";
constexpr const char* kLandlockForbids = "Landlock forbids it";
constexpr const char* kNodev = "its mount is nodev";
constexpr const char* kWritingOfComm = "writing of /proc/self/task/*/comm";

std::string error_name(int error) {
  const char* const name = strerrorname_np(error);
  return name == nullptr ? std::to_string(error) : name;
}

/// Opens the node in a child process, because the driver's part of an open may hang. Returns 0, an
/// errno value, or ETIMEDOUT.
int try_open(const std::string& path, int access_mode, std::chrono::seconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(path.c_str(), access_mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const int error = file < 0 ? errno : 0;
    const ssize_t written = write(ends[1], &error, sizeof error);
    _exit(written < 0);
  }
  close(ends[1]);
  int error = child < 0 ? errno : ETIMEDOUT;
  pollfd ready = {ends[0], POLLIN, 0};
  if (child > 0 && poll(&ready, 1, static_cast<int>(limit.count()) * 1000) > 0 &&
      read(ends[0], &error, sizeof error) != sizeof error) {
    error = ECHILD;
  }
  close(ends[0]);
  if (child < 0) return error;
  kill(child, SIGKILL);
  // A process that hangs in the kernel does not end, and is left to init.
  waitpid(child, nullptr, error == ETIMEDOUT ? WNOHANG : 0);
  return error;
}

/// Why this node cannot be opened; empty if it can. The kernel checks in this order: permissions
/// and the cgroup, which access(2) asks as well, the mount, and then Landlock.
std::string hindrance_of(const std::string& path, bool landlock, std::chrono::seconds limit) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return "it cannot be looked at: " + error_name(errno);
  if (!S_ISCHR(status.st_mode)) return "it is no device node";
  const bool read_only = path.starts_with(kCapabilities);
  if (access(path.c_str(), read_only ? R_OK : R_OK | W_OK) != 0) {
    if (errno == EPERM) return "a cgroup's device filter forbids it (EPERM)";
    char mode[8];
    snprintf(mode, sizeof mode, "%03o", status.st_mode & 0777);
    return "its mode is " + std::string(mode) + " and its owner is " +
           std::to_string(status.st_uid) + ":" + std::to_string(status.st_gid) + " (" +
           error_name(errno) + ")";
  }
  struct statvfs mount;
  if (statvfs(path.c_str(), &mount) == 0 && (mount.f_flag & ST_NODEV) != 0) {
    return kNodev;
  }
  if (!landlock) return "";
  const int error = try_open(path, read_only ? O_RDONLY : O_RDWR, limit);
  if (error == EACCES) return kLandlockForbids;
  return error == ETIMEDOUT ? "an open hangs" : "";
}

bool is_gpu(const std::string& path) {
  constexpr std::string_view kStart = "/dev/nvidia";
  return path.starts_with(kStart) &&
         path.find_first_not_of("0123456789", kStart.size()) == path.npos;
}

/// The capabilities of the GPUs that are there, if all these are in MIG mode, and lack each of
/// theirs; otherwise nothing. They come after their GPU's own node.
std::set<std::string> missing_for_mig(const std::vector<NeededNode>& needed) {
  const auto is_there = [](const NeededNode& one) { return access(one.path.c_str(), F_OK) == 0; };
  std::set<std::string> missing;
  for (auto gpu = needed.begin(); gpu != needed.end(); ++gpu) {
    if (!is_gpu(gpu->path) || !is_there(*gpu)) continue;
    const auto end = std::find_if_not(gpu + 1, needed.end(), [](const NeededNode& one) {
      return one.path.starts_with(kCapabilities);
    });
    if (end == gpu + 1 || std::any_of(gpu + 1, end, is_there)) return {};
    std::for_each(gpu + 1, end, [&](const NeededNode& one) { missing.insert(one.path); });
  }
  return missing;
}

void add_nodes(Sandbox& sandbox, bool landlock, std::chrono::seconds limit) {
  std::vector<std::string> paths;
  std::error_code none;
  for (const std::string& name : names_in("/dev")) {
    if (device_node(name) == nullptr) continue;
    const std::string path = "/dev/" + name;
    if (!std::filesystem::is_directory(path, none)) {
      paths.push_back(path);
      continue;
    }
    for (const std::string& inside : names_in(path)) {
      const std::string node = path + "/" + inside;
      if (std::filesystem::is_character_file(node, none)) paths.push_back(node);
    }
  }
  // Landlock can hide what is in /dev, but not that a file is there.
  const std::vector<NeededNode> needed = nodes_of_cuda();
  for (const NeededNode& one : needed) {
    if (!std::filesystem::exists(one.path, none)) {
      sandbox.missing.push_back(one);
    } else if (std::ranges::count(paths, one.path) == 0) {
      paths.push_back(one.path);
    }
  }
  // One GPU is enough.
  if (std::ranges::any_of(paths, is_gpu)) {
    const std::set<std::string> wanted = missing_for_mig(needed);
    std::erase_if(sandbox.missing,
                  [&](const NeededNode& one) { return one.gpu && !wanted.contains(one.path); });
  }
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    const bool is_needed = std::ranges::any_of(
        needed, [&](const NeededNode& one) { return one.path == path && !one.optional; });
    sandbox.nodes.push_back({path, hindrance_of(path, landlock, limit), is_needed});
  }
}

/// The driver needs these two since version 570. Refused, its cuInit answers 304.
void add_lacks(Sandbox& sandbox) {
  const int memory = memfd_create("cudaguard", MFD_CLOEXEC);
  if (memory < 0) sandbox.lacks.push_back("memfd_create is refused (" + error_name(errno) + ")");
  if (memory >= 0) close(memory);
  const std::string name = "/proc/self/task/" + std::to_string(gettid()) + "/comm";
  const int comm = open(name.c_str(), O_WRONLY | O_CLOEXEC);
  if (comm < 0) {
    sandbox.lacks.push_back("/proc/self/task/*/comm cannot be written (" + error_name(errno) + ")");
  }
  if (comm >= 0) close(comm);
}

bool has_user_namespace() {
  uint64_t first = 0;
  uint64_t outer = 0;
  uint64_t count = 0;
  std::ifstream map("/proc/self/uid_map");
  return map >> first >> outer >> count && (outer != 0 || count != 0xffffffff);
}

std::string put(const Sandbox::Node& node) {
  return printable(node.path) +
         (node.hindrance.empty() ? "" : " cannot be opened: " + node.hindrance);
}

bool lacks_comm(const Sandbox& sandbox) {
  return std::ranges::any_of(sandbox.lacks,
                             [](const std::string& lack) { return lack.starts_with("/proc/"); });
}

/// Lists the nodes that are missing, and says how a sandbox gets them. cuInit's answer is `code`.
void report_missing_nodes(const Sandbox& sandbox, int code, const std::string& cause,
                          FindingList& findings) {
  std::string bwrap;
  std::string engine;
  std::string landlock;
  std::vector<std::string> commands;
  for (const NeededNode& one : sandbox.missing) {
    const std::string& node = one.path;
    if (!one.optional) commands.push_back(one.made_by);
    findings.push_back({"missing nodes", Question::kDriver, State::kFact, node, ""});
    bwrap += (one.optional ? " --dev-bind-try " : " --dev-bind ") + node + " " + node;
    if (!one.optional) engine += " --device " + node;
    landlock += (landlock.empty() ? "" : ", ") + node;
  }
  if (landlock_domains() != 0 && lacks_comm(sandbox)) {
    landlock += std::string("; and ") + kWritingOfComm;
  }
  findings.push_back({"sandbox", Question::kDriver, State::kProblem,
                      "cuInit answers " + std::to_string(code) + " here, because " + cause +
                          ", although NVIDIA's kernel module is loaded (/proc/driver/nvidia)",
                      "outside a sandbox, run " + joined(commands, " && ") +
                          "; inside, it needs the nodes; with bwrap:" + bwrap +
                          "; with Docker or Podman:" + engine +
                          "; with Landlock, allow reading, writing and ioctl of " + landlock});
}

/// The nodes that CUDA needs and that cannot be opened: of single GPUs only if no GPU can be. Those
/// of MIG are last.
std::vector<const Sandbox::Node*> closed_nodes(const Sandbox& sandbox) {
  const bool has_gpu = std::ranges::any_of(sandbox.nodes, [](const Sandbox::Node& node) {
    return is_gpu(node.path) && node.hindrance.empty();
  });
  std::vector<const Sandbox::Node*> found;
  std::vector<const Sandbox::Node*> of_mig;
  for (const Sandbox::Node& node : sandbox.nodes) {
    if (node.hindrance.empty() || (is_gpu(node.path) ? has_gpu : !node.needed)) continue;
    (node.path.starts_with(kCapabilities) ? of_mig : found).push_back(&node);
  }
  found.insert(found.end(), of_mig.begin(), of_mig.end());
  return found;
}

/// What to do about what Landlock or a mount forbids; empty if that is nothing that CUDA needs.
/// `named` is the node that the problem names, or null.
std::string remedy_for(const Sandbox& sandbox, const Sandbox::Node* named) {
  if (named != nullptr && named->hindrance == kNodev) {
    return "mount /dev without nodev; with bwrap: --dev-bind /dev /dev";
  }
  if (landlock_domains() == 0) return "";
  std::vector<std::string> paths;
  for (const Sandbox::Node* node : closed_nodes(sandbox)) {
    if (node->hindrance == kLandlockForbids) paths.push_back(printable(node->path));
  }
  std::vector<std::string> all;
  if (!paths.empty()) all.push_back("reading, writing and ioctl of " + joined(paths, ", "));
  if (lacks_comm(sandbox)) all.emplace_back(kWritingOfComm);
  return all.empty() ? "" : "allow " + joined(all, "; and ");
}

}  // namespace

Sandbox find_sandbox(std::chrono::seconds limit) {
  Sandbox sandbox;
  const int domains = landlock_domains();
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2) sandbox.around.emplace_back("a seccomp filter");
  if (domains != 0) {
    sandbox.around.push_back(counted(static_cast<uint64_t>(domains), "Landlock domain"));
  }
  if (has_user_namespace()) sandbox.around.emplace_back("a user namespace");
  add_nodes(sandbox, domains != 0, limit);
  add_lacks(sandbox);
  return sandbox;
}

void explain_sandbox(const Sandbox& sandbox, const DriverAnswer* answer, FindingList& findings) {
  const auto add = [&](const char* id, State state, const std::string& text) {
    findings.push_back({id, Question::kDriver, state, text, ""});
  };
  bool has_nvidia = false;
  for (const Sandbox::Node& node : sandbox.nodes) {
    has_nvidia |= node.path.starts_with("/dev/nvidia");
    add("device nodes", State::kFact, put(node));
  }
  const std::vector<const Sandbox::Node*> all_closed = closed_nodes(sandbox);
  const Sandbox::Node* closed = all_closed.empty() ? nullptr : all_closed.front();
  if (!sandbox.around.empty()) {
    add("sandbox", State::kFact, "this process is in " + joined(sandbox.around, ", "));
  }
  for (const std::string& lack : sandbox.lacks) add("sandbox", State::kFact, lack);
  if (answer == nullptr || answer->kind != DriverAnswer::Kind::kAnswered || answer->code == 0) {
    return;
  }
  const int code = answer->code;
  const bool module = access("/proc/driver/nvidia", F_OK) == 0;
  if (!has_nvidia && module) {
    report_missing_nodes(sandbox, code, "there is no /dev/nvidia*", findings);
    return;
  }
  std::string why;
  const Sandbox::Node* named = closed;
  if (code == kNoDevice) {
    // Without a device the driver goes no further, so it does not meet what it lacks.
    if (closed != nullptr) {
      why = ", although " + printable(closed->path) + " is there, because " + closed->hindrance;
    }
  } else if (!sandbox.lacks.empty() && (code == kOperatingSystem || closed == nullptr)) {
    named = nullptr;
    why = " here, because " + sandbox.lacks.front();
  } else if (closed != nullptr) {
    why = " here, because " + put(*closed);
  } else if (!has_nvidia && !sandbox.around.empty()) {
    why = " here, because this sandbox has no /dev/nvidia*";
  }
  if (why.empty()) {
    const auto needed = std::ranges::find_if(sandbox.missing, [&](const NeededNode& one) {
      return !one.optional && (code != kNoDevice || one.path != "/dev/nvidia-uvm");
    });
    if (module && needed != sandbox.missing.end()) {
      report_missing_nodes(sandbox, code, needed->path + " is missing", findings);
    }
    return;
  }
  findings.push_back({"sandbox", Question::kDriver, State::kProblem,
                      "cuInit answers " + std::to_string(code) + why, remedy_for(sandbox, named)});
}

}  // namespace cudaguard::launcher
