// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/preload/replaced_variables.h"

#include <algorithm>
#include <set>
#include <utility>

#include "policy/library.h"
#include "policy/text.h"
#include "shim/launcher/elf/elf_symbols.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Names = std::set<std::string>;

/// The exports of a file; for a damaged file, those that can be read.
Names exports_of(const std::string& path, Exports which) {
  Names names;
  read_exports(FileBytes(path), names, which);
  return names;
}

Names references_of(const std::string& path, References which) {
  Names names;
  read_references(FileBytes(path), names, which);
  return names;
}

/// Excludes glibc, NVIDIA's libraries, which export only functions, and the vDSO, which has no
/// path. A path may be relative, because a run path may be.
bool may_have_variables(const LoadedLibrary& library) {
  const Library kind = classify(library.name).library;
  return library.path.find('/') != std::string::npos && library.name != "libc.so.6" &&
         !base_name(library.path).starts_with("ld-linux") && kind != Library::kDriver &&
         kind != Library::kNvml;
}

/// The libraries' variables that have one of these names.
std::vector<ReplacedVariables> called(const Names& names, const std::vector<std::string>& files) {
  std::vector<ReplacedVariables> found;
  for (const std::string& file : files) {
    ReplacedVariables variables = {file, {}};
    for (const std::string& name : exports_of(file, Exports::kVariables)) {
      if (names.count(name) != 0) variables.names.push_back(name);
    }
    if (!variables.names.empty()) found.push_back(std::move(variables));
  }
  return found;
}

}  // namespace

std::vector<ReplacedVariables> replaced_variables(const std::string& executable,
                                                  const LoaderAnswer& answer,
                                                  const std::vector<std::string>& preloaded) {
  std::vector<std::string> files;
  for (const LoadedLibrary& library : answer.libraries) {
    const bool own = std::find(preloaded.begin(), preloaded.end(), library.path) != preloaded.end();
    if (!own && may_have_variables(library)) files.push_back(library.path);
  }
  if (files.empty()) return {};
  Names ours;
  for (const std::string& file : preloaded) ours.merge(exports_of(file, Exports::kAll));
  std::vector<ReplacedVariables> found = called(ours, files);
  if (found.empty()) return found;
  // The executable's own definition comes before ours. A copy of a library's variable does not
  // count: ld.so fills it from the first library with that name, which is the guard.
  Names looked_up = references_of(executable, References::kAll);
  for (const std::string& file : files) looked_up.merge(references_of(file, References::kAll));
  Names defined = exports_of(executable, Exports::kAll);
  for (const std::string& name : references_of(executable, References::kCopies))
    defined.erase(name);
  for (ReplacedVariables& variables : found) {
    std::erase_if(variables.names, [&](const std::string& name) {
      return looked_up.count(name) == 0 || defined.count(name) != 0;
    });
  }
  std::erase_if(found, [](const ReplacedVariables& variables) { return variables.names.empty(); });
  return found;
}

std::string why_replaced(const ReplacedVariables& variables) {
  const std::string library = printable(base_name(variables.library));
  const std::string name = printable(variables.names.front());
  const size_t count = variables.names.size();
  if (count == 1) {
    return library + " has a variable " + name + ", which cudaguard's function would replace";
  }
  return library + " has " + std::to_string(count) + " variables such as " + name +
         ", which cudaguard's functions would replace";
}

}  // namespace cudaguard::launcher
