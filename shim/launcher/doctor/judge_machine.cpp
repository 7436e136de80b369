// SPDX-License-Identifier: Apache-2.0
// What is wrong with the machine's driver, each in a sentence with its remedy.
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/doctor/findings.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Kind = DriverLibrary::Kind;
using Outcome = DriverAnswer::Outcome;

constexpr int kStubLibrary = 34;

constexpr std::pair<int, const char*> kAdvice[] = {
    {kStubLibrary, ": libcuda.so.1 is a stub to link against; the driver's must be found first"},
    {304, ": a system call of the driver's failed; dmesg may say more (NVRM)"},
    {802, ": the fabric manager is not ready; systemctl status nvidia-fabricmanager"},
    {803, ": libcuda and the kernel module do not fit; reboot, or load the module again"},
    {804, ": this GPU cannot use a libcuda that is newer than the kernel module (cuda-compat)"},
    {999,
     ": dmesg may say more (NVRM, Xid); after a suspend: rmmod nvidia_uvm; modprobe "
     "nvidia_uvm"}};

/// What registers NVIDIA's Vulkan and EGL, with which its OpenGL comes.
constexpr const char* kDisplayIcds[] = {"/usr/share/vulkan/icd.d/nvidia_icd.json",
                                        "/etc/vulkan/icd.d/nvidia_icd.json",
                                        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json"};

/// "; remove "FOLDER" from LD_LIBRARY_PATH".
std::string how_to_lose(const DriverLibrary& library, const MachineFacts& facts) {
  for (const std::string& folder : library_path(facts.variables)) {
    if (library.path == folder + (folder.ends_with("/") ? "" : "/") + library.name) {
      return "; remove " + in_quotes(folder) + " from LD_LIBRARY_PATH";
    }
  }
  return "; ld.so finds it by itself: remove it from " + in_quotes(folder_of(library.path)) +
         " or that folder from /etc/ld.so.conf, and run ldconfig";
}

void judge_found(const DriverLibrary& library, const MachineFacts& facts,
                 MachineFindings& findings) {
  const std::string what = library.name + " is ";
  const std::string where = " (" + printable(library.path) + ")";
  if (library.kind == Kind::kStub) {
    const bool cuda = library.name.starts_with("libcuda");
    findings.problem(what + "the CUDA toolkit's stub" + where + ": " +
                     (cuda ? "CUDA fails with error 34" : "NVML does not work") +
                     " in programs that ask for it" + how_to_lose(library, facts));
  } else if (library.kind == Kind::kUnknown) {
    findings.note(what + "neither NVIDIA's driver nor the toolkit's stub nor ours" + where);
  }
}

/// Nobody's LD_LIBRARY_PATH has a use for them in every program.
void judge_standins(const MachineFacts& facts, MachineFindings& findings) {
  std::set<std::string_view> folders;
  for (const DriverLibrary& library : facts.libraries.found) {
    if (library.kind != Kind::kStandIn || !folders.insert(folder_of(library.path)).second) continue;
    findings.problem(
        library.name + " is cudaguard's stand-in (" + printable(library.path) +
        "), as what lies beside it: programs find no CUDA device, whatever CUDAGUARD_POLICY says" +
        how_to_lose(library, facts));
  }
}

void judge_libraries(const MachineFacts& facts, MachineFindings& findings) {
  const std::vector<DriverLibrary>& found = facts.libraries.found;
  const DriverLibrary& cuda = found[0];
  const DriverLibrary& dev = found[1];
  const DriverLibrary& nvml = found[2];
  for (const DriverLibrary& library : found) {
    // Both names of one file: said once.
    if (&library == &dev && dev.file == cuda.file) continue;
    judge_found(library, facts, findings);
  }
  judge_standins(facts, findings);
  const bool two = !cuda.file.empty() && !dev.file.empty() && cuda.file != dev.file;
  if (two && cuda.kind == Kind::kDriver && dev.kind == Kind::kDriver) {
    findings.problem("libcuda.so.1 and libcuda.so are different drivers (" + printable(cuda.file) +
                     ", " + printable(dev.file) +
                     "): a program gets one or the other by the name it asks for");
  }
  if (!cuda.version.empty() && !nvml.version.empty() && cuda.version != nvml.version) {
    findings.problem("libcuda is of driver " + cuda.version + ", NVML of " + nvml.version +
                     ": install both from one driver");
  }
  if (facts.libraries.hangs) {
    findings.problem("which driver libraries there are is not known: " + facts.libraries.trouble +
                     "; programs that load them hang too (or it is slow: "
                     "CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer)");
  } else if (!facts.libraries.trouble.empty()) {
    findings.note("driver libraries were not looked for: " + facts.libraries.trouble);
  }
  for (const char* path : kDisplayIcds) {
    if (access(path, F_OK) != 0) continue;
    findings.note(
        std::string(path) +
        ": NVIDIA's OpenGL, EGL and Vulkan open the GPU by themselves, and are not stopped");
    break;
  }
}

bool has_gpu_node(const KernelFacts& kernel, bool usable) {
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const DeviceNode& node) {
    return is_gpu_node(node.path) && (node.usable || !usable);
  });
}

void judge_missing_nodes(const MachineFacts& facts, MachineFindings& findings) {
  const KernelFacts& kernel = facts.kernel;
  const bool driver =
      std::any_of(facts.libraries.found.begin(), facts.libraries.found.end(),
                  [](const DriverLibrary& library) { return library.kind == Kind::kDriver; });
  if (has_gpu_node(kernel, true) && facts.libraries.found[0].kind == Kind::kNone) {
    findings.problem(
        "there is a GPU, but no libcuda.so.1: programs find no CUDA; install the driver's "
        "libraries");
  }
  if (!driver) return;
  const std::string loaded = "the kernel module is loaded, but ";
  if (!kernel.has_node("/dev/nvidiactl")) {
    findings.problem(loaded +
                     "there is no /dev/nvidiactl: a container without GPUs, or nobody made it yet "
                     "(nvidia-modprobe -c 0 -u; doctor does not let the driver make it)");
  } else if (!has_gpu_node(kernel, false)) {
    findings.problem(loaded + "there is no /dev/nvidia0 or other GPU");
  } else if (!kernel.has_node("/dev/nvidia-uvm")) {
    findings.problem(loaded +
                     "there is no /dev/nvidia-uvm, which CUDA needs (nvidia-modprobe -u; doctor "
                     "does not let the driver make it)");
  }
}

void judge_kernel(const MachineFacts& facts, MachineFindings& findings) {
  const KernelFacts& kernel = facts.kernel;
  for (const DeviceNode& node : kernel.nodes) {
    if (node.device.empty()) {
      findings.problem(printable(node.path) + " is no device; remove it");
    } else if (!node.usable && is_needed(node.path) && kernel.loaded != false) {
      // With some GPUs for this user, that others are not is nobody's mistake.
      std::vector<std::string>& list = facts.answer.code == 0 ? findings.notes : findings.problems;
      list.push_back("this user may not open " + printable(node.path) +
                     " (its group, or a cgroup)");
    }
  }
  if (const DeviceNode* node = kernel.left_behind(); node != nullptr) {
    findings.problem(printable(node->path) +
                     " is there, but the kernel module is not loaded: left behind by a driver that "
                     "ran as root (JAX takes it for a GPU); modprobe nvidia, or remove it");
  }
  if (kernel.loaded == true) judge_missing_nodes(facts, findings);
  if (kernel.wsl) findings.note("this is WSL (/dev/dxg): cudaguard is untested there");
  if (kernel.nouveau && kernel.loaded != true) {
    findings.note("nouveau drives the card: NVIDIA's kernel module cannot");
  }
  const std::string& version = facts.libraries.found[0].version;
  if (version.empty() || kernel.version.empty() || version == kernel.version) return;
  const std::string differ = "the kernel module is " + kernel.version + ", libcuda " + version;
  if (facts.answer.code == 0) {
    findings.note(differ + ": they work together (forward compatibility)");
  } else {
    findings.problem("driver/library version mismatch: " + differ +
                     "; reboot or load the module again, or install one driver");
  }
}

/// Empty: it is well, as far as it was asked.
std::string illness(const DriverAnswer& answer) {
  switch (answer.outcome) {
    case Outcome::kNotTried:
      return {};
    case Outcome::kFailed:
      return "libcuda.so.1 does not work: " + answer.reason;
    case Outcome::kSignal:
      return "the driver crashes " + answer.where + " (" + answer.signal +
             "); cudaguard run keeps programs off it";
    case Outcome::kHang:
      return "the driver hangs " + answer.where +
             " (or is slow: CUDAGUARD_DOCTOR_TIMEOUT=60 waits longer); cudaguard run keeps "
             "programs off it";
    case Outcome::kAnswer:
      break;
  }
  const int code = answer.code.value_or(0);
  if (code == 0 || code == kNoDevice) return {};
  std::string ill = "cuInit fails with " + std::to_string(code);
  if (!answer.name.empty()) ill += " " + answer.name;
  for (const auto& [number, advice] : kAdvice) {
    if (number == code) ill += advice;
  }
  return ill;
}

void judge_stuck(const DriverAnswer& answer, MachineFindings& findings) {
  if (answer.stuck == 0) return;
  findings.problem("process " + std::to_string(answer.stuck) +
                   ", which asked the driver, does not die of SIGKILL: it sleeps in the kernel, "
                   "and a reboot will be needed");
}

void judge_answer(const MachineFacts& facts, MachineFindings& findings) {
  const DriverAnswer& answer = facts.answer;
  if (answer.outcome == Outcome::kNotTried && !facts.libraries.found[0].path.empty()) {
    findings.note("cuInit was not tried: " + answer.reason);
  }
  const std::string ill = illness(answer);
  // The library's own sentence says it.
  const bool said = answer.code == kStubLibrary && facts.libraries.found[0].kind == Kind::kStub;
  if (!ill.empty() && !said) findings.problem(ill);
  judge_stuck(answer, findings);
  const bool hidden = facts.gpus && !facts.gpus->empty();
  if (facts.fence.was_there && answer.outcome != Outcome::kNotTried) {
    findings.note("a fence stands around doctor, too: cuInit's answer is the fence's");
  } else if (answer.code == kNoDevice && facts.kernel.loaded == true &&
             has_gpu_node(facts.kernel, true) && !hidden) {
    findings.problem(
        "cuInit finds no GPU, though there are its kernel module and its device nodes: a cgroup, "
        "or it is lost (dmesg: Xid)");
  }
  if (!facts.with_every_gpu) return;
  const std::string ill_with_all = illness(*facts.with_every_gpu);
  if (!ill_with_all.empty()) findings.note("with every GPU visible " + ill_with_all);
  judge_stuck(*facts.with_every_gpu, findings);
}

/// An upgrade may have left some of the old files.
void judge_own_files(const MachineFacts& facts, MachineFindings& findings) {
  const OwnFile& guard = facts.own_files.front();
  for (const OwnFile& file : facts.own_files) {
    const bool first = &file == &guard;
    const std::string wanted = first ? CUDAGUARD_VERSION : guard.version;
    if (file.missing) {
      findings.problem(printable(file.path) + " is missing: install cudaguard again");
    } else if (file.library && file.version != wanted) {
      findings.problem(printable(file.path) +
                       (file.version.empty() ? " does not say of which cudaguard it is"
                                             : " is of cudaguard " + file.version) +
                       ", " + (first ? "this command" : std::string(base_name(guard.path))) +
                       " of " + (wanted.empty() ? "none" : wanted) +
                       ": install all of one version");
    }
  }
}

}  // namespace

void judge_machine(const MachineFacts& facts, MachineFindings& findings) {
  judge_own_files(facts, findings);
  judge_libraries(facts, findings);
  judge_kernel(facts, findings);
  judge_answer(facts, findings);
}

}  // namespace cudaguard::launcher
