// SPDX-License-Identifier: Apache-2.0
// The environment for the program, and the changes to it.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

class Variables {
 public:
  /// `environment` is this process's. Unchanged entries keep their place and bytes.
  explicit Variables(const char* const* environment);

  /// Null if unset. Valid until this variable is changed.
  const char* get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name) != nullptr; }
  /// How many have a name that starts so.
  size_t count_starting(std::string_view text) const;
  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);

  /// For execve; valid until the next change.
  std::vector<char*> pointers();
  /// Shell commands that make the same changes, one per line, in the order of the first change.
  std::string changes() const;

 private:
  void note(std::string_view name);
  std::list<std::string> entries_;  ///< a list, so that entries keep their addresses
  std::vector<std::string> changed_;
};

}  // namespace cudaguard::launcher
