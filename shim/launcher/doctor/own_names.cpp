// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/doctor/own_names.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

namespace {

bool has_them_by_right(const std::string& file) {
  const std::string_view name = base_name(file);
  constexpr std::array<std::string_view, 5> kOwners = {"libc.so", "libdl.so", "libcudart.so",
                                                       "libpthread.so", "ld-linux"};
  return classify(file).library != Library::kOther || is_sanitizer_runtime(file) ||
         std::any_of(kOwners.begin(), kOwners.end(),
                     [&](std::string_view owner) { return name.starts_with(owner); });
}

struct References {
  std::set<std::string> any;     ///< somebody refers to it other than by a call
  std::set<std::string> copied;  ///< the executable has a copy of it
};

References find_references(const std::vector<std::string>& files,
                           const std::set<std::string>& names) {
  References found;
  for (const std::string& file : files) {
    std::vector<Reference> references;
    read_references(FileBytes(file), names, references);
    for (const Reference& reference : references) {
      found.any.insert(reference.name);
      if (reference.copy) found.copied.insert(reference.name);
    }
  }
  return found;
}

/// The executable comes before the guard, every library behind it. A copy is filled from the first
/// library that has the name, which is the guard.
void find_taken(const std::vector<std::string>& files, std::vector<OwnName>& names) {
  std::set<std::string> variables;
  for (const OwnName& name : names) {
    if (name.variable) variables.insert(name.name);
  }
  if (variables.empty()) return;
  const References references = find_references(files, variables);
  std::set<std::string> in_front;
  for (const OwnName& name : names) {
    if (name.variable && name.file == files.front() && references.copied.count(name.name) == 0) {
      in_front.insert(name.name);
    }
  }
  for (OwnName& name : names) {
    name.taken =
        name.variable && references.any.count(name.name) != 0 && in_front.count(name.name) == 0;
  }
}

}  // namespace

std::set<std::string> exported_names(const std::vector<std::string>& files) {
  std::set<std::string> names;
  for (const std::string& file : files) {
    std::vector<Export> exports;
    read_exports(FileBytes(file), exports);
    for (Export& one : exports) names.insert(std::move(one.name));
  }
  return names;
}

std::vector<OwnName> find_own_names(const std::vector<std::string>& files,
                                    const std::set<std::string>& ours) {
  std::vector<OwnName> names;
  for (const std::string& file : files) {
    if (has_them_by_right(file)) continue;
    std::vector<Export> exports;
    read_exports(FileBytes(file), exports);
    for (const Export& one : exports) {
      if (ours.count(one.name) != 0) names.push_back({file, one.name, one.variable, false});
    }
  }
  if (!files.empty()) find_taken(files, names);
  std::sort(names.begin(), names.end(), [](const OwnName& one, const OwnName& other) {
    return std::tie(one.file, one.name) < std::tie(other.file, other.name);
  });
  return names;
}

}  // namespace cudaguard::launcher
