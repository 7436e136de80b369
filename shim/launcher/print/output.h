// SPDX-License-Identifier: Apache-2.0
// Writes the result files of --json, --junit, --html and --prometheus.
#pragma once

#include <sys/types.h>

#include <csignal>
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

/// The program's files, and the files that its arguments name: "x.py", "--config=x.ini".
std::vector<TakenFile> taken_by_program(const std::vector<std::string>& files, char** arguments);

/// A regular file is written under another name and renamed at the end, so that an interrupted run
/// leaves the old file. A pipe or a device is opened at once, and kept open.
class OutputFile {
 public:
  /// `option` is "--json". `name` is its value; "-" is the standard output; no value means no file.
  /// Throws Refusal if the file cannot be written, if it is one of `taken`, or if it has contents
  /// that cudaguard has not written, unless `force`. Adds itself to `taken`.
  OutputFile(const char* option, const std::optional<std::string>& name, bool force,
             std::vector<TakenFile>& taken);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  explicit operator bool() const { return !name_.empty(); }
  bool is_stdout() const { return is_stdout_; }
  int descriptor() const { return fd_; }  ///< for a pipe or a device; otherwise -1

  // These functions throw Refusal if not all of it can be written.
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
  void allow_signals();

  std::string option_;
  std::string name_;
  bool force_ = false;
  bool is_stdout_ = false;
  int fd_ = -1;
  std::string target_;               ///< full path of a regular file, without links
  bool in_place_ = false;            ///< the directory allows no other file, or no renaming
  std::string temporary_;            ///< a file to remove unless finish() has renamed it
  std::optional<sigset_t> signals_;  ///< the mask from before that file
};

}  // namespace cudaguard::launcher
