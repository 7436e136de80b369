// SPDX-License-Identifier: Apache-2.0
#include "policy/user_code.h"

#include "policy/text.h"

namespace cudaguard {

namespace {

constexpr size_t kNowhere = std::string_view::npos;

constexpr char kPackageDirectories[][16] = {
    "/site-packages/",
    "/dist-packages/",
};
/// Blender's add-ons are in its own directory.
constexpr char kAddOnDirectories[][16] = {
    "/usr/share/",
    "/scripts/addons",
};
constexpr char kPythonsFiles[][21] = {
    "<frozen ",
    "/lib/python3",
    "/lib64/python3",
    "<__array_function__ ",  // NumPy
    "<attrs ",
    "<eval_with_key>",  // torch.fx
    "<decorator-gen",
};
/// The start of a program that pex, cx_Freeze or PyInstaller has bundled.
constexpr char kBundleStarts[][25] = {
    "/.bootstrap/pex/",
    "freeze_core/initscripts/",
    "cx_Freeze/initscripts/",
    "PyInstaller/loader/",
};
/// What the user has typed.
constexpr char kTyped[][16] = {
    "<stdin>", "<ipython-input-", "<python-input-", "<console>", "<doctest ",
};
constexpr char kCell[] = "<ipython-input-";
/// `exec` and a command line; what cloudpickle makes of a function of the user's program.
constexpr char kCommand[] = "<string>";
constexpr char kPickled[] = "<dynamic-code>";
constexpr char kRunners[][20] = {
    "threading.py",
    "concurrent/futures/",
    "multiprocessing/",
    "asyncio/",
    // PyInstaller's import system and its run-time hooks.
    "pyimod0",
    "pyi_rth_",
};
/// Where a process's descriptors have names.
constexpr char kDescriptors[][11] = {"/dev/fd/", "/dev/stdin", "/proc/"};
constexpr char kPassCallsOn[][15] = {
    "libcudaguard",
    "libcuda.so",
    "libcudart",
    "libnvidia-",
    "libffi.so",
    "_ctypes.",
    "_cffi_backend.",
    "libOpenCL.so",
    // OpenMP: GCC's runtime and LLVM's, with their plug-ins.
    "libgomp",
    "libomp.so",
    "libomp-",
    "libomptarget",
    // libc and ld.so; the second names are those of glibc up to 2.33.
    "libc.so",
    "libc-2.",
    "libdl.so",
    "libdl-2.",
    "libpthread.so",
    "libpthread-2.",
    "ld-linux",
    "ld-2.",
};
constexpr char kForeignFunction[][15] = {
    "libffi.so",
    "libffi-",
    "_ctypes.",
    "_cffi_backend.",
};

bool has(std::string_view file, Names parts) { return find_any(file, parts) != kNowhere; }

}  // namespace

Whose whose_code(std::string_view file, std::string_view function, bool is_command) {
  if (file == kCommand) {
    // The methods that a dataclass or a named tuple gets.
    if (function.starts_with("__") && function.ends_with("__")) return Whose::kPythons;
    return is_command ? Whose::kUsers : Whose::kNoFile;
  }
  if (file.empty()) return Whose::kPythons;  // ":3" leads nowhere
  if (has(file, kBundleStarts)) return Whose::kPythons;
  if (has(file, kPackageDirectories) || has(file, kAddOnDirectories)) return Whose::kPackages;
  if (has(file, kPythonsFiles)) return Whose::kPythons;
  if (!file.starts_with('<') || begins(file, kTyped) != 0) return Whose::kUsers;
  // Libraries make functions with names. "<module>" is more likely what the user has typed.
  return file == kPickled || function == "<module>" ? Whose::kNoFile : Whose::kGenerated;
}

bool is_runner(std::string_view file) { return begins(file, kRunners) != 0; }

bool starts_child(std::string_view file, std::string_view function) {
  return (function == "spawn_main" && file.ends_with("/spawn.py")) ||
         (function == "main" && file.ends_with("/forkserver.py"));
}

bool FrameChoice::takes(Whose whose, std::string_view file, std::string_view function) {
  if (starts_child_ && file == kCommand) whose = Whose::kPythons;
  starts_child_ = starts_child(file, function);
  if (is_final() || whose == Whose::kPythons || whose < best_) return false;
  if (whose == best_ && whose != Whose::kPackages) return false;
  best_ = whose;
  return true;
}

bool is_kernel_cell(std::string_view file) {
  constexpr std::string_view kDirectory = "/ipykernel_";
  const size_t at = find(file, kDirectory.data());
  if (at == kNowhere) return false;
  const std::string_view rest = tail(file, at + kDirectory.size());
  return !rest.empty() && is_digit(rest.front());
}

std::string_view in_packages(std::string_view file) {
  std::string_view rest = file;
  for (size_t at = 0; (at = find_any(rest, kPackageDirectories)) != kNowhere;) {
    rest = tail(rest, at);
    rest = tail(rest, begins(rest, kPackageDirectories) - 1);  // Its slash may begin the next.
  }
  return rest.size() == file.size() ? std::string_view() : tail(rest, 1);
}

std::string_view file_name(std::string_view file) {
  return begins(file, kDescriptors) != 0 ? file : base_name(file);
}

bool is_cell(std::string_view file) { return file.starts_with(kCell) || is_kernel_cell(file); }

CodeLine code_line(std::string_view file, unsigned line) {
  if (file.starts_with(kCell)) {
    const std::string_view cell = tail(file, sizeof kCell - 1);
    return {"notebook cell ", head(cell, cell.find('-')), line == 0 ? "" : ", line ", line};
  }
  if (is_kernel_cell(file)) return {"notebook cell", {}, line == 0 ? "" : ", line ", line};
  const std::string_view rest = in_packages(file);
  return {"", rest.data() == nullptr ? file_name(file) : rest, line == 0 ? "" : ":", line};
}

bool passes_calls_on(std::string_view module) {
  return begins(base_name(module), kPassCallsOn) != 0;
}

bool is_foreign_function(std::string_view file) { return begins(file, kForeignFunction) != 0; }

}  // namespace cudaguard
