// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/own_files.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "policy/text.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/elf_symbols.h"

namespace cudaguard::launcher {

namespace {

/// More than any of our libraries has in front of its notes.
constexpr uint64_t kMostRead = uint64_t{1} << 20;

/// Found by the beginning of our note: nothing else in our libraries is like it. Empty: it has
/// none, or is damaged.
std::string version_of(const std::string& path) {
  using namespace std::string_view_literals;
  constexpr std::string_view kNote = "\1\0\0\0cudaguard\0\0\0cudaguard "sv;
  const FileBytes file(path);
  std::set<std::string> exports;
  if (!read_exports(file, exports)) return {};  // it is cut short, or no ELF file
  std::string content(static_cast<size_t>(std::min(file.size(), kMostRead)), '\0');
  if (!file.read(0, content.data(), content.size())) return {};
  const size_t at = content.find(kNote);
  if (at == std::string::npos) return {};
  const std::string version = content.c_str() + at + kNote.size();
  return version.find_first_not_of("0123456789.") == std::string::npos ? version : "";
}

}  // namespace

std::vector<OwnFile> look_at_own_files(const Installation& installation) {
  const std::string folder(folder_of(installation.standin_cuda));
  std::vector<OwnFile> files;
  const auto add = [&](const std::string& path, bool library, bool stand_in) {
    const bool missing = access(path.c_str(), R_OK) != 0;
    files.push_back({path, library, stand_in, missing, library ? version_of(path) : ""});
  };
  add(installation.guard, true, false);
  add(installation.standin_cuda, true, true);
  add(installation.standin_nvml, true, true);
  add(installation.companion_cuda, true, false);
  add(installation.companion_nvml, true, false);
  add(folder + "/libcuda.so", false, true);
  add(folder + "/libnvidia-ml.so", false, true);
  add(folder + "/libnvidia-opencl.so.1", false, true);
  add(probe_of(installation), false, false);
  return files;
}

std::string probe_of(const Installation& installation) {
  return std::string(folder_of(installation.standin_cuda)) + "/cudaguard-probe";
}

}  // namespace cudaguard::launcher
