// SPDX-License-Identifier: Apache-2.0
// A file that a result is written to: --json, --junit, --html.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

/// A file that no result may overwrite, and the reason: "is the program's own file".
struct TakenFile {
  std::string name;
  const char* reason;
};

/// The program's files and what its arguments name: "x.py", "--config=x.ini".
std::vector<TakenFile> taken_by_program(const std::vector<std::string>& files, char** arguments);

/// A regular file is written beside its name and renamed at the end, so that an interrupted run
/// leaves the old file. A pipe or a device is opened at once, and kept open.
class OutputFile {
 public:
  /// `option`: "--json". `name`: its value; "-" is the standard output; without one this is no
  /// file. Throws Refusal if it cannot be written to, if it is one of `taken`, and, unless `force`,
  /// if there is something in it that cudaguard has not written. Adds itself to `taken`.
  OutputFile(const char* option, const std::optional<std::string>& name, bool force,
             std::vector<TakenFile>& taken);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  explicit operator bool() const { return !name_.empty(); }
  bool is_stdout() const { return is_stdout_; }
  int descriptor() const { return fd_; }  ///< of a pipe or a device; otherwise -1

  // These throw Refusal if not all of it can be written.
  void put(std::string_view text);
  void finish();
  void write(std::string_view all) { put(all), finish(); }

 private:
  [[noreturn]] void refuse(const std::string& reason) const;
  void check_content() const;
  void take_descriptor(int descriptor);
  void open_special(mode_t mode);
  void find_target();
  void open_target();
  int make_temporary();

  std::string option_;
  std::string name_;
  bool force_ = false;
  bool is_stdout_ = false;
  int fd_ = -1;
  std::string target_;     ///< a regular file's full path, without links
  bool in_place_ = false;  ///< its directory allows no other file, or no renaming
  std::string temporary_;  ///< to be removed unless finish() has renamed it
};

}  // namespace cudaguard::launcher
