// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/libraries.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <utility>

#include "policy/text.h"
#include "shim/launcher/child/ask_loader.h"
#include "shim/launcher/doctor/kernel.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Kind = DriverLibrary::Kind;

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

Kind kind_of(const FileBytes& file, const ElfFacts& facts) {
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
  const bool drives = contains(file, "/dev/nvidia") || contains(file, "/dev/nvhost") ||
                      contains(file, "libdxcore.so");
  return drives ? Kind::kDriver : Kind::kUnknown;
}

std::string without_links(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), free);
  return real == nullptr ? path : std::string(real.get());
}

/// ld.so passes over a file of another machine.
bool is_for_us(const ElfFacts& facts) {
  return facts.is_elf && facts.is_64 && facts.little_endian && facts.machine == kMachine;
}

/// Asks ld.so what an environment like this one gives for a name, until it has hung once.
class Search {
 public:
  Search(std::string loader, std::string probe, const Variables& variables,
         std::chrono::seconds limit)
      : loader_(std::move(loader)),
        probe_(std::move(probe)),
        variables_(variables),
        limit_(limit) {}

  /// Its path; empty: none.
  std::string find(std::string_view preload, std::string_view name) {
    if (!trouble_.empty()) return {};
    preload.empty() ? variables_.unset("LD_PRELOAD") : variables_.set("LD_PRELOAD", preload);
    const LoaderAnswer answer = ask_loader(loader_, probe_, variables_, limit_);
    if (!answer.in_time) {
      trouble_ = "asked for " + std::string(name) + ", ld.so " + answer.why_none();
    }
    for (const LoadedLibrary& library : answer.libraries) {
      if (library.name == name || (name == kGuard && base_name(library.path) == kGuard)) {
        return library.path;
      }
    }
    return {};
  }
  const std::string& trouble() const { return trouble_; }

 private:
  std::string loader_;
  std::string probe_;
  Variables variables_;
  std::chrono::seconds limit_;
  std::string trouble_;
};

DriverLibrary without_file(std::string_view name, Kind kind) {
  DriverLibrary library;
  library.name = name;
  library.kind = kind;
  return library;
}

void find_by_loader(const std::string& probe, const Variables& variables,
                    std::chrono::seconds limit, Libraries& libraries) {
  const ElfFacts facts = read_elf(FileBytes(probe));
  if (facts.interpreter.empty()) {
    libraries.trouble = printable(probe) + " is missing or damaged";
    return;
  }
  if (access(facts.interpreter.c_str(), X_OK) != 0) {
    libraries.trouble = "there is no " + printable(facts.interpreter) + ", which starts programs";
    return;
  }
  Search search(facts.interpreter, probe, variables, limit);
  for (const std::string_view name : kNames) {
    // The probe is linked to this one, as programs are.
    const std::string path = search.find(name == "libcuda.so.1" ? "" : name, name);
    const Kind none = search.trouble().empty() ? Kind::kNone : Kind::kNotKnown;
    libraries.found.push_back(path.empty() ? without_file(name, none) : identify(name, path));
  }
  libraries.system_guard = search.find("", kGuard);
  libraries.guard_by_bare_name = search.find(kGuard, kGuard);
  libraries.trouble = search.trouble();
  libraries.hangs = !libraries.trouble.empty();
}

}  // namespace

DriverLibrary identify(std::string_view name, const std::string& path) {
  DriverLibrary library;
  library.name = name;
  library.path = path;
  library.file = without_links(path);
  const FileBytes file(path);
  const ElfFacts facts = read_elf(file);
  library.kind = facts.is_elf ? kind_of(file, facts) : Kind::kUnknown;
  if (library.kind == Kind::kDriver) {
    const size_t suffix = library.file.rfind(".so.");
    const std::string version =
        suffix == std::string::npos ? std::string() : library.file.substr(suffix + 4);
    if (is_driver_version(version)) library.version = version;
  }
  return library;
}

std::vector<std::string> library_path(const Variables& variables) {
  std::vector<std::string> folders;
  const char* value = variables.get("LD_LIBRARY_PATH");
  if (value == nullptr || *value == '\0') return folders;
  std::string_view rest = value;
  for (bool more = true; more;) {
    const size_t end = std::min(rest.find_first_of(":;"), rest.size());
    const std::string folder(rest.substr(0, end));
    folders.push_back(folder.empty() ? "." : folder);
    more = end < rest.size();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return folders;
}

Libraries find_libraries(const std::string& probe, const Variables& variables,
                         std::chrono::seconds limit) {
  Libraries libraries;
  const std::string icd = beginning_of(kNvidiaIcd);
  libraries.opencl_icd = icd.substr(0, icd.find_first_of(" \t\r\n"));
  for (const char* path : kDisplayIcds) {
    if (libraries.display_icd.empty() && access(path, F_OK) == 0) libraries.display_icd = path;
  }
  find_by_loader(probe, variables, limit, libraries);
  if (libraries.found.empty()) {
    for (const std::string_view name : kNames) {
      libraries.found.push_back(without_file(name, Kind::kNotKnown));
    }
  }
  // A folder at which ld.so hangs is none to look into.
  if (libraries.hangs) return libraries;
  std::vector<std::string> seen;
  for (const std::string& folder : library_path(variables)) {
    if (std::find(seen.begin(), seen.end(), folder) != seen.end()) continue;
    seen.push_back(folder);
    for (const std::string_view name : kNames) {
      const std::string path = folder + (folder.ends_with("/") ? "" : "/") + std::string(name);
      if (!is_for_us(read_elf(FileBytes(path)))) continue;
      libraries.copies.push_back(identify(name, path));
    }
  }
  return libraries;
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kNotKnown:
      return "not known";
    case Kind::kNone:
      return "none";
    case Kind::kDriver:
      return "driver";
    case Kind::kStub:
      return "stub";
    case Kind::kStandIn:
      return "stand-in";
    case Kind::kUnknown:
      break;
  }
  return "unknown";
}

bool is_driver_version(std::string_view text) {
  const std::string_view major = text.substr(0, text.find('.'));
  // NVIDIA's are at 96 and beyond; WSL's and Jetson's libcuda.so.1.1 has none.
  if (major.size() < 2 || major.size() == text.size()) return false;
  if (text.ends_with('.') || text.find("..") != std::string_view::npos) return false;
  return text.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace cudaguard::launcher
