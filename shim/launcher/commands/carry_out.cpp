// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/commands/commands.h"
#include "shim/launcher/commands/result.h"
#include "shim/launcher/commands/set_up.h"
#include "shim/launcher/findings/verdict.h"
#include "shim/launcher/message.h"
#include "shim/launcher/observe/tree.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/print/output.h"
#include "shim/launcher/print/print.h"

namespace cudaguard::launcher {

namespace {

/// For --print.
void print_variables(const Variables& variables, const Fence& fence) {
  print(variables.changes());
  if (!(fence.holds || fence.devices) || fence.was_there) return;
  print(std::string("# --fence is not among these: only cudaguard run sets it up") +
        (fence.no_new_privs ? ", and sets no_new_privs:\n# sudo and setuid programs inside gain no "
                              "rights"
                            : "") +
        "\n");
}

/// Returns a clause if the program never asked for the GPU that it had for itself, while its
/// children were refused. Otherwise returns an empty string.
std::string idle_first_process(const Findings& findings, uint32_t pid, const char* name) {
  bool refused = false;
  for (const ObservedProcess& process : findings.processes) {
    if (!process.asked()) continue;
    if (process.pid == pid) return {};
    refused |= !process.refused.empty();
  }
  if (!refused) return {};
  return "the GPU was reserved for process " + std::to_string(pid) + " (" +
         printable(base_name(name)) + "), which did not ask for it";
}

/// Waits for the program and its descendants, prints which processes used CUDA, and ends with the
/// program's exit status.
[[noreturn]] void list_attempts(Prepared& prepared, Variables& variables) {
  WatchedTree watched;
  try {
    record_tree(prepared, variables, watched);
    for (const std::string& doubt : watched.tree.doubts) {
      print_message("--observe: " + printable(doubt));
    }
    const char* children = variables.get(row_of(Variable::kChildren).name);
    const bool alone = is_first_process(variables) && children != nullptr &&
                       children == name_of(Policy::kForceCpu);
    write_stderr(text_of_findings(
        watched.findings, watched.tree.left,
        alone ? idle_first_process(watched.findings, watched.pid, prepared.arguments[0]) : ""));
  } catch (const std::exception& error) {
    if (watched.pid == 0) throw;
    print_message(std::string("--observe: no summary: ") + error.what());
  }
  end_as(watched.status);
}

/// True if a driver has registered the node's major number. An open would ask the driver itself.
bool has_driver(const struct stat& node) {
  std::ifstream devices("/proc/devices");  // "Character devices:\n  1 mem\n195 nvidia\n"
  std::string rest;
  std::getline(devices, rest);
  for (unsigned number = 0; devices >> number; std::getline(devices, rest)) {
    if (number == major(node.st_rdev)) return true;
  }
  return false;  // "Block devices:" ends the list
}

/// True if a program could send an ioctl to NVIDIA's driver, which the fence refuses and reports.
bool ioctls_tell(const Fence& fence) {
  if (fence.listener < 0 || !fence.holds || !fence.unseen.empty() || fence.devices) return false;
  constexpr const char* kNode = "/dev/nvidiactl";
  struct stat node = {};
  struct statvfs mount = {};
  return stat(kNode, &node) == 0 && S_ISCHR(node.st_mode) && access(kNode, R_OK | W_OK) == 0 &&
         statvfs(kNode, &mount) == 0 && (mount.f_flag & ST_NODEV) == 0 && has_driver(node);
}

int verify(const Plan& plan, Prepared& prepared, Variables& variables) {
  std::vector<TakenFile> taken = taken_by_program(prepared.files, plan.program);
  taken.push_back({prepared.report, "is the file of the records"});
  Result result(plan, std::move(taken));
  Verdict verdict;
  verdict.no_new_privs = prepared.fence.no_new_privs;
  verdict.lost_rights = verdict.no_new_privs && loses_rights(prepared.files.back());
  verdict.devices_fenced = prepared.fence.devices;
  verdict.ioctls_tell = ioctls_tell(prepared.fence);
  watch_tree(prepared, variables, result.descriptors(), verdict);
  return result.give(verdict, variables);
}

}  // namespace

int carry_out(const Plan& plan, const char* const* environment) {
  using Watch = Plan::Watch;
  try {
    Variables variables(environment);
    Prepared prepared = set_up(plan, variables);
    if (plan.settings.print) {
      print_variables(variables, prepared.fence);
      return 0;
    }
    if (plan.watch == Watch::kAttempts) list_attempts(prepared, variables);
    if (plan.watch == Watch::kProcesses) return verify(plan, prepared, variables);
    throw cannot_start(prepared.path, become(prepared, variables));
  } catch (const Refusal& refusal) {
    if (plan.watch != Watch::kProcesses) throw;
    throw Refusal(kRefused, refusal.what());  // also for 126 and 127, because nothing was verified
  }
}

}  // namespace cudaguard::launcher
