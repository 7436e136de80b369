// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/libraries.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "policy/text.h"
#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/doctor/kernel.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

using Kind = DriverLibrary::Kind;

NLOHMANN_JSON_SERIALIZE_ENUM(Kind, {{Kind::kUnknown, "unknown"},
                                    {Kind::kNotKnown, "not known"},
                                    {Kind::kNone, "none"},
                                    {Kind::kDriver, "driver"},
                                    {Kind::kStub, "stub"},
                                    {Kind::kStandIn, "stand-in"}})

namespace {

constexpr std::string_view kNames[] = {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1",
                                       "libnvidia-opencl.so.1"};
constexpr std::string_view kGuard = "libcudaguard.so";
/// Stubs and stand-ins are smaller by far, NVIDIA's larger.
constexpr uint64_t kMostStub = uint64_t{1} << 20;

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

/// The toolkit's libcuda has hundreds of functions, and all say 34 (CUDA_ERROR_STUB_LIBRARY).
bool is_cuda_stub(std::string_view content) {
  using namespace std::string_view_literals;
  constexpr size_t kEnough = 100;
  constexpr std::string_view kReturn34[] = {
      "\xb8\x22\0\0\0\xc3"sv,               // x86-64: mov $34, %eax; ret
      "\xb8\x22\0\0\0\x5d\xc3"sv,           // with a frame: pop %rbp
      "\x40\x04\x80\x52\xc0\x03\x5f\xd6"sv  // AArch64: mov w0, #34; ret
  };
  return std::any_of(std::begin(kReturn34), std::end(kReturn34),
                     [&](std::string_view code) { return count_of(content, code) >= kEnough; });
}

Kind kind_of(const FileBytes& file) {
  const ElfFacts facts = read_elf(file);
  if (!facts.is_elf) return Kind::kUnknown;
  if (file.size() <= kMostStub) {
    std::string content(static_cast<size_t>(file.size()), '\0');
    if (!file.read(0, content.data(), content.size())) return Kind::kUnknown;
    if (content.find("cudaguard_touch_v1") != std::string::npos) return Kind::kStandIn;
    if (facts.soname == "libcuda.so.1" && is_cuda_stub(content)) return Kind::kStub;
    // What NVML's prints.
    if (content.find("is a stub library that is attached only for") != std::string::npos) {
      return Kind::kStub;
    }
  }
  // The device nodes: /dev/nvidia... of PCI cards, /dev/nvhost... of Jetson; WSL's asks Windows.
  for (const char* text : {"/dev/nvidia", "/dev/nvhost", "libdxcore.so"}) {
    if (contains(file, text, facts.loaded_end)) return Kind::kDriver;
  }
  return Kind::kUnknown;
}

/// Empty: it is not among them.
std::string path_of(std::string_view name, const std::vector<LoadedLibrary>& loaded) {
  for (const LoadedLibrary& library : loaded) {
    if (library.name == name || (name == kGuard && base_name(library.path) == kGuard)) {
      return library.path;
    }
  }
  return {};
}

void ask_for_all(const std::string& loader, const std::string& probe, Variables variables,
                 std::chrono::seconds limit, Libraries& libraries) {
  // What ld.so gives for a name in an environment like this one, until it has hung once.
  const auto ask = [&](std::string_view preload, std::string_view name) {
    if (!libraries.trouble.empty()) return std::vector<LoadedLibrary>();
    preload.empty() ? variables.unset("LD_PRELOAD") : variables.set("LD_PRELOAD", preload);
    const LoaderAnswer answer = ask_loader(loader, probe, variables, limit);
    libraries.hangs = !answer.trouble.empty();
    if (libraries.hangs) {
      libraries.trouble = "asked for " + std::string(name) + ", ld.so " + answer.trouble;
    }
    return answer.libraries;
  };
  for (const std::string_view name : kNames) {
    // The probe is linked to the first one, as programs are.
    const bool first = name == kNames[0];
    const std::vector<LoadedLibrary> loaded = ask(first ? "" : name, name);
    const std::string path = path_of(name, loaded);
    const Kind none = libraries.trouble.empty() ? Kind::kNone : Kind::kNotKnown;
    libraries.found.push_back(path.empty() ? DriverLibrary{std::string(name), none, "", "", ""}
                                           : identify(name, path));
    if (first) libraries.system_guard = path_of(kGuard, loaded);
  }
  libraries.guard_by_bare_name = path_of(kGuard, ask(kGuard, kGuard));
}

std::string about(const DriverLibrary& library) {
  auto kind = Json(library.kind).get<std::string>();
  if (library.path.empty()) return kind;
  return kind + (library.version.empty() ? "" : " " + library.version) + ", " +
         printable(library.path);
}

}  // namespace

DriverLibrary identify(std::string_view name, const std::string& path) {
  std::error_code error;
  DriverLibrary library;
  library.name = name;
  library.path = path;
  library.file = std::filesystem::canonical(path, error).string();
  if (error) library.file = path;
  library.kind = kind_of(FileBytes(path));
  const size_t suffix = library.file.rfind(".so.");
  if (library.kind == Kind::kDriver && suffix != std::string::npos &&
      is_driver_version(library.file.substr(suffix + 4))) {
    library.version = library.file.substr(suffix + 4);
  }
  return library;
}

std::vector<std::string> library_path(const Variables& variables) {
  std::vector<std::string> folders;
  const char* value = variables.get("LD_LIBRARY_PATH");
  if (value == nullptr || *value == '\0') return folders;
  std::string list = std::string(value) + ":";
  std::replace(list.begin(), list.end(), ';', ':');
  std::istringstream words(list);
  for (std::string folder; std::getline(words, folder, ':');) {
    folders.push_back(folder.empty() ? "." : folder);
  }
  return folders;
}

Libraries find_libraries(const std::string& probe, const Variables& variables,
                         std::chrono::seconds limit) {
  Libraries libraries;
  const std::string loader = read_elf(FileBytes(probe)).interpreter;
  if (loader.empty()) {
    libraries.trouble = printable(probe) + " is missing or damaged";
  } else if (access(loader.c_str(), X_OK) != 0) {
    libraries.trouble = "there is no " + printable(loader) + ", which starts programs";
  }
  ask_for_all(loader, probe, variables, limit, libraries);
  return libraries;
}

Row row_of(const Libraries& libraries) {
  Row row = {"libraries", Json::array(), {}};
  for (const DriverLibrary& library : libraries.found) {
    row.value.push_back({{"name", library.name},
                         {"kind", library.kind},
                         {"path", or_null(library.path)},
                         {"file", or_null(library.file)},
                         {"version", or_null(library.version)}});
    const bool opencl = library.name == kNames[3];
    row.lines += named(opencl ? "NVIDIA's OpenCL" : library.name, {about(library)});
  }
  return row;
}

}  // namespace cudaguard::launcher
