// SPDX-License-Identifier: Apache-2.0
// Finds the owner of a Python file by the files around it: an installed package outside
// site-packages (`pip --target`, pex), the members of an archive (zipapp, shiv), and modules that
// were compiled into a program (PyInstaller, Nuitka). Asks the kernel only about files whose names
// do not say enough, and a bounded number of times. Never waits for a lock. Not thread-safe.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string_view>

#include "policy/user_code.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

class Owners {
 public:
  /// In zeroed pages.
  struct Room {
    char path[4352];
    char known[4352];
    alignas(8) char bytes[32768];
  };
  explicit Owners(Room& room) : room_(room) {}

  /// `file` is the outermost frame's that is not the standard library's; it must stay valid.
  /// Returns false if a frame further in should be asked instead.
  bool set_script(std::string_view file);
  bool is_script(std::string_view file) const { return !script_.empty() && file == script_; }
  /// True for a regular file.
  bool is_file(std::string_view file);
  enum class Copy : uint8_t {
    kNone,
    kSame,     ///< of the same size, so each line is where it was
    kChanged,  ///< something was added, most often before the first line
  };
  /// `real` is the file of which `file` may be a copy, so another one that exists.
  Copy compare(std::string_view file, std::string_view real);
  /// The same for a cell that IPython runs, if `real` is a file of cells: "c.ipy", "c.ipynb".
  Copy compare_cell(std::string_view real);
  /// `named` is the answer of whose_code().
  Whose whose(std::string_view file, Whose named);

 private:
  enum class Found : uint8_t { kYes, kNo, kInArchive, kUnknown };

  /// Looks for directory/name.
  Found look(std::string_view directory, std::string_view name, struct stat& status);
  Found look(std::string_view directory, std::string_view name);
  /// True if nothing has this name, or no regular file. Files that cannot be seen may be there.
  bool is_no_file(std::string_view file);
  bool is_missing(std::string_view file) { return look({}, file) == Found::kNo; }
  Whose in_archive(std::string_view file);
  bool is_installed(std::string_view file);
  bool has_metadata(std::string_view directory);
  bool archive_has_metadata(std::string_view archive);

  static constexpr int kMostLooks = 64;
  Room& room_;
  int looks_ = 0;
  size_t known_ = 0;              ///< length of room_.known, the directory of the last answer
  Whose answer_ = Whose::kUsers;  ///< for that directory
  std::string_view script_;       ///< empty: not known
  bool script_is_missing_ = false;
};

}  // namespace cudaguard
