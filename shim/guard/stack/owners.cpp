// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/stack/owners.h"

#include <cerrno>
#include <cstring>

#include "policy/text.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

constexpr char kMain[] = "__main__.py";
constexpr char kMetadata[] = ".dist-info";

bool is_main(std::string_view file) { return base_name(file) == kMain; }

}  // namespace

Owners::Found Owners::look(std::string_view directory, std::string_view name, struct stat& status) {
  if (looks_ == kMostLooks) return Found::kUnknown;
  ++looks_;
  Text path(room_.path, sizeof room_.path - 1);
  path.put(directory).put(directory.empty() ? "" : "/").put(name);
  if (path.cut()) return Found::kUnknown;
  room_.path[path.view().size()] = '\0';
  const int error = sys::stat(room_.path, &status);
  return error == 0          ? Found::kYes
         : error == -ENOENT  ? Found::kNo
         : error == -ENOTDIR ? Found::kInArchive
                             : Found::kUnknown;
}

Owners::Found Owners::look(std::string_view directory, std::string_view name) {
  struct stat status = {};
  return look(directory, name, status);
}

bool Owners::is_file(std::string_view file) {
  struct stat status = {};
  return look({}, file, status) == Found::kYes && S_ISREG(status.st_mode);
}

bool Owners::is_no_file(std::string_view file) {
  struct stat status = {};
  const Found found = look({}, file, status);
  return found == Found::kNo || (found == Found::kYes && !S_ISREG(status.st_mode));
}

Owners::Copy Owners::compare(std::string_view file, std::string_view real) {
  struct stat one = {};
  struct stat other = {};
  if (look({}, real, other) != Found::kYes || !S_ISREG(other.st_mode)) return Copy::kNone;
  if (look({}, file, one) != Found::kYes) return Copy::kChanged;
  if (one.st_ino == other.st_ino && one.st_dev == other.st_dev) return Copy::kNone;
  return one.st_size == other.st_size ? Copy::kSame : Copy::kChanged;
}

Owners::Copy Owners::compare_cell(std::string_view real) {
  const bool is_notebook = real.ends_with(".ipynb");
  if ((!is_notebook && !real.ends_with(".ipy")) || !is_file(real)) return Copy::kNone;
  // is_file() has put the path there. The whole file is one cell, of which IPython removes the
  // empty lines or the cell magic (%%time) at its start, and joins lines that end in a backslash.
  const sys::File file(room_.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const long size = file.ok() ? sys::read(file.fd(), room_.bytes, sizeof room_.bytes) : 0;
  if (is_notebook || size <= 0 || size == sizeof room_.bytes) return Copy::kChanged;
  const std::string_view text(room_.bytes, static_cast<size_t>(size));
  const bool same = !is_blank(text.front()) && !text.starts_with("%%") &&
                    cudaguard::find(text, "\\\n") == std::string_view::npos;
  return same ? Copy::kSame : Copy::kChanged;
}

bool Owners::set_script(std::string_view file) {
  if (has_no_file(file)) return true;
  script_is_missing_ = is_missing(file);
  if (script_is_missing_ && is_runner(file.starts_with('/') ? base_name(file) : file)) return false;
  script_ = file;
  return true;
}

Whose Owners::whose(std::string_view file, Whose named) {
  if (named != Whose::kUsers || has_no_file(file)) return named;
  const std::string_view directory = directory_of(file);
  const bool is_script = file == script_;
  if (is_main(file)) {
    const Found pex = look(directory, "PEX-INFO");
    if (pex == Found::kYes) return Whose::kPythons;
    if (pex == Found::kInArchive) return in_archive(file);
  }
  if (is_script || is_kernel_cell(file)) return Whose::kUsers;
  // A bundled program has the names of its modules and not their files. Python's function of a
  // worker on another machine also has no file, so the file's place counts.
  const bool is_relative = !file.starts_with('/');
  const std::string_view directory_of_script = directory_of(script_);
  const bool is_beside_script =
      script_is_missing_ && !directory_of_script.empty() && file.starts_with(directory_of_script);
  if ((is_relative || is_beside_script) && is_no_file(file)) {
    const std::string_view module = is_relative ? file : tail(file, directory_of_script.size() + 1);
    return is_runner(module) ? Whose::kPythons : Whose::kPackages;
  }
  // What exec() runs may have the name of a file that does not exist.
  if (!is_relative && is_no_file(file)) return Whose::kNoFile;
  if (known_ != 0 && directory == std::string_view(room_.known, known_)) return answer_;
  const Found package = look(directory, "__init__.py");
  if (package == Found::kInArchive) return in_archive(file);
  if (is_relative) return Whose::kUsers;
  answer_ = package != Found::kUnknown && is_installed(file) ? Whose::kPackages : Whose::kUsers;
  if (directory.size() <= sizeof room_.known) {
    known_ = directory.size();
    memcpy(room_.known, directory.data(), known_);
  }
  return answer_;
}

Whose Owners::in_archive(std::string_view file) {
  std::string_view archive = directory_of(file);
  while (!archive.empty() && look({}, archive) != Found::kYes) archive = directory_of(archive);
  if (archive.empty()) return Whose::kUsers;
  const std::string_view member = tail(file, archive.size() + 1);
  // The main program that zipapp and shiv write. It calls the user's, so it is named only if no
  // other frame can be.
  if (member == kMain) return Whose::kGenerated;
  if (member.starts_with("_bootstrap/")) return Whose::kPythons;  // shiv
  const bool is_module = member.find('/') == std::string_view::npos;
  return !is_module && archive_has_metadata(archive) ? Whose::kPackages : Whose::kUsers;
}

/// True for the module of a package with its metadata beside it. In the script's own directory a
/// single module is the user's, because some services want all packages in that directory.
bool Owners::is_installed(std::string_view file) {
  std::string_view directory = directory_of(file);
  bool in_package = false;
  while (!directory.empty() && look(directory, "__init__.py") == Found::kYes) {
    in_package = true;
    directory = directory_of(directory);
  }
  if (!in_package && (script_.empty() || directory == directory_of(script_))) return false;
  return has_metadata(directory);
}

/// Python itself lists directories at each import, so a seccomp filter in a Python process allows
/// it.
bool Owners::has_metadata(std::string_view directory) {
  Text path(room_.path, sizeof room_.path - 1);
  path.put(directory).put("/");
  if (path.cut()) return false;
  room_.path[path.view().size()] = '\0';
  const sys::File file(room_.path, O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NONBLOCK);
  if (!file.ok()) return false;
  for (; looks_ < kMostLooks; ++looks_) {
    const long size = sys::list(file.fd(), room_.bytes, sizeof room_.bytes);
    if (size <= 0) return false;
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const sys::DirectoryEntry*>(room_.bytes + at);
      if (std::string_view(entry->name).ends_with(kMetadata)) return true;
      at += entry->length;
    }
  }
  return false;
}

/// An archive has the names of its members at its end.
bool Owners::archive_has_metadata(std::string_view archive) {
  Text path(room_.path, sizeof room_.path - 1);
  path.put(archive);
  if (path.cut()) return false;
  room_.path[path.view().size()] = '\0';
  const sys::File file(room_.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status = {};
  if (!file.ok() || sys::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const auto wanted = static_cast<long>(sizeof room_.bytes);
  const long start = status.st_size > wanted ? status.st_size - wanted : 0;
  const long size = sys::read_at(file.fd(), room_.bytes, sizeof room_.bytes, start);
  return size > 0 && cudaguard::find({room_.bytes, static_cast<size_t>(size)}, ".dist-info/") !=
                         std::string_view::npos;
}

}  // namespace cudaguard
