// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/system/preload_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/launcher/child/child.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparators = ": \t\n";  // of ld.so
constexpr std::string_view kBlanks = " \t\n";
constexpr char kDirectory[] = "/etc";
constexpr char kCacheFile[] = "/etc/ld.so.cache";
constexpr char kLabel[] = "security.selinux";
constexpr std::string_view kTemporary = "ld.so.preload.cudaguard-";
constexpr uint64_t kMostText = uint64_t{1} << 20;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

/// Removes and returns the first line, with its newline.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end == std::string_view::npos ? end : end + 1);
  text.remove_prefix(line.size());
  return line;
}

Refusal cannot_change(const std::string& why) {
  return {kRefused, std::string(kPreloadFile) + " cannot be changed: " + why};
}

Refusal cannot_change(int error) { return cannot_change(strerror(error)); }

/// Returns the text of the file, which is empty if there is none.
std::string read_text() {
  const auto refuse = [](const std::string& why) {
    throw Refusal(kRefused, std::string(kPreloadFile) + " cannot be read: " + why);
  };
  struct stat status = {};
  if (lstat(kPreloadFile, &status) != 0) {
    if (errno != ENOENT) refuse(strerror(errno));
    return {};
  }
  if (!S_ISREG(status.st_mode)) refuse("it is not a regular file");
  const FileBytes file(kPreloadFile);
  if (file.error() != 0) refuse(strerror(file.error()));
  if (file.size() > kMostText) refuse("it has more than 1 MiB");
  std::string text(static_cast<size_t>(file.size()), '\0');
  if (!file.read(0, text.data(), text.size())) refuse(strerror(EIO));
  if (text.find('\0') != std::string::npos) refuse("it is not a text file");
  return text;
}

/// Gives the file the SELinux label of ld.so.cache, as a policy does. Most confined services may
/// map no file with the label of a new one in /etc, and ld.so starts them unguarded without a
/// message. Returns 0 or errno.
int set_label(int fd) {
  char label[256];
  char old[sizeof label];
  const ssize_t size = getxattr(kCacheFile, kLabel, label, sizeof label);
  if (size <= 0) return 0;  // no SELinux
  if (fgetxattr(fd, kLabel, old, sizeof old) == size && memcmp(label, old, size) == 0) return 0;
  return fsetxattr(fd, kLabel, label, size, 0) == 0 ? 0 : errno;
}

/// A file next to the real one, which goes unless it was renamed.
class Temporary {
 public:
  Temporary() : path_(std::string(kDirectory) + "/" + std::string(kTemporary) + "XXXXXX") {
    fd_ = above_stderr(mkostemp(path_.data(), O_CLOEXEC));
    if (fd_ < 0) throw cannot_change(errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (fd_ >= 0) close(fd_);
    if (!path_.empty()) unlink(path_.c_str());
  }

  /// Writes the text to the disk, for every user to read.
  void write(std::string_view text) {
    if (const int error = write_all(fd_, text); error != 0) throw cannot_change(error);
    if (const int error = set_label(fd_); error != 0) throw cannot_change(error);
    if (fchmod(fd_, 0644) != 0 || fsync(fd_) != 0) throw cannot_change(errno);
    const int closed = close(std::exchange(fd_, -1));
    if (closed != 0) throw cannot_change(errno);
  }
  void rename_to(const char* target) {
    if (rename(path_.c_str(), target) != 0) throw cannot_change(errno);
    path_.clear();
  }

 private:
  std::string path_;
  int fd_ = -1;
};

/// Removes what a killed command has left.
void remove_leftovers() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kDirectory, error)) {
    if (!entry.path().filename().native().starts_with(kTemporary)) continue;
    std::error_code ignored;
    fs::remove(entry.path(), ignored);
  }
}

/// Writes the names in the directory to the disk. Returns 0 or errno.
int sync_directory() {
  const int directory = above_stderr(open(kDirectory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory < 0) return errno;
  const int error = fsync(directory) == 0 ? 0 : errno;
  close(directory);
  return error;
}

}  // namespace

std::vector<std::string> preloads_of(std::string text) {
  for (size_t rest = text.size(); rest > 0;) {
    size_t at = text.find('#');
    if (at >= rest) break;  // also if there is none
    rest -= at;
    do {
      text[at] = ' ';
    } while (--rest > 0 && text[++at] != '\n');
  }
  std::vector<std::string> entries;
  for (size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    entries.push_back(text.substr(at, end - at));
    at = end;
  }
  return entries;
}

std::string without_entries(std::string_view text, const Which& which) {
  std::string result;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    const size_t comment = std::min(line.find('#'), line.size());
    std::string kept;
    bool changed = false;
    for (size_t at = 0; at < comment;) {
      const size_t start = std::min(line.find_first_not_of(kSeparators, at), comment);
      const size_t end = std::min(line.find_first_of(kSeparators, start), comment);
      const std::string entry(line.substr(start, end - start));
      const bool removed = !entry.empty() && which(entry);
      // The separators before a removed entry go with it, except for the newline of the line.
      if (!removed) kept.append(line.substr(at, end - at));
      changed |= removed;
      at = end;
    }
    kept.append(line.substr(comment));
    if (!changed) {
      result.append(line);
    } else if (kept.find_first_not_of(kSeparators) != std::string::npos) {
      const size_t first = kept.find_first_not_of(kSeparators);
      result.append(kept, line.find_first_not_of(kSeparators) == 0 ? first : 0);
    }
  }
  return result;
}

std::string with_entry(std::string_view text, const std::string& entry) {
  std::string result;
  while (!text.empty() && (is_blank(text.substr(0, text.find('\n'))) ||
                           text[text.find_first_not_of(kBlanks)] == '#')) {
    result.append(take_line(text));
  }
  if (!result.empty() && result.back() != '\n') result += "\n";
  return result.append(entry).append("\n").append(text);
}

PreloadFile::PreloadFile() : text_(read_text()) {}

std::string PreloadFile::changed(const Which& which, const std::string& added) const {
  std::string text = without_entries(text_, which);
  std::vector<std::string> wanted = entries();
  std::erase_if(wanted, which);
  if (!added.empty()) {
    text = with_entry(text, added);
    wanted.insert(wanted.begin(), added);
  }
  if (preloads_of(text) != wanted) {
    throw cannot_change(
        "ld.so would take the words of a comment for libraries; remove the comments first");
  }
  return text;
}

void PreloadFile::replace(std::string_view text) const {
  const auto check_unchanged = [this] {
    if (read_text() != text_) throw cannot_change("another program has just changed it");
  };
  remove_leftovers();
  if (is_blank(text)) {
    check_unchanged();
    if (unlink(kPreloadFile) != 0 && errno != ENOENT) throw cannot_change(errno);
  } else {
    Temporary file;
    file.write(text);
    check_unchanged();
    file.rename_to(kPreloadFile);
  }
  if (const int error = sync_directory(); error != 0) {
    throw Refusal(kRefused, std::string(kPreloadFile) +
                                " is changed, but the change may be lost if the power fails: " +
                                strerror(error));
  }
}

}  // namespace cudaguard::launcher
