// SPDX-License-Identifier: Apache-2.0
// Reads the machine's rules: /etc/cudaguard.conf, with the files of /etc/cudaguard.conf.d in the
// order of their names. They count only if root alone can write them. The guard and `cudaguard
// system check` read them by this code. No lock, no malloc; thread-safe, async-signal-safe.
#pragma once

#include <cstddef>
#include <string_view>

#include "shim/guard/sys/system.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

inline constexpr char kRuleFile[] = "/etc/cudaguard.conf";
inline constexpr char kRuleDirectory[] = "/etc/cudaguard.conf.d";
/// Of all files together.
inline constexpr size_t kMostRuleBytes = 65536;
/// Of /etc/passwd and /etc/group, each. The guard does not know a name that is beyond.
inline constexpr size_t kMostNames = size_t{1} << 20;
/// Of a command line and of /proc/self/cgroup. The guard does not know what is beyond.
inline constexpr size_t kMostArgs = 16384;
inline constexpr size_t kMostCgroups = 4096;
// Why a file is not used.
inline constexpr char kNotRead[] = "it cannot be read";
inline constexpr char kTooLong[] = "all files are longer than 64 KiB";

/// The text of all files, into which the rules point. All-zero before the first one.
struct RuleTexts {
  size_t used;
  char path[sizeof kRuleDirectory + 256];
  char bytes[kMostRuleBytes + 1];
};
/// Needed only while the files are read.
struct RuleEntries {
  alignas(sys::DirectoryEntry) char bytes[32768];
};

class RuleFiles {
 public:
  /// `file` is the open kRuleFile, or a negative errno value.
  RuleFiles(RuleTexts& texts, RuleEntries& entries, int file)
      : texts_(texts), entries_(entries), file_(file) {}
  ~RuleFiles();
  RuleFiles(const RuleFiles&) = delete;
  RuleFiles& operator=(const RuleFiles&) = delete;

  /// Opens kRuleFile.
  static int open();

  /// Reads the next file. Returns false if there is none, and if it cannot be used.
  bool next();
  std::string_view text() const { return {texts_.bytes + begin_, texts_.used - begin_}; }
  /// The path of this file, or of what cannot be used.
  std::string_view path() const { return {texts_.path, path_size_}; }
  /// Why the rules cannot be used: "root does not own it"; null if they can.
  const char* why_unusable() const { return why_; }

 private:
  bool open_directory();
  bool read_next_name();
  bool take(int fd);
  bool refuse(const char* why);
  void set_path(std::string_view directory, std::string_view name);

  RuleTexts& texts_;
  RuleEntries& entries_;
  int file_;
  int directory_ = -1;
  size_t entries_size_ = 0;
  std::string_view name_;  ///< of this file of the directory
  bool begun_ = false;
  size_t begin_ = 0;
  size_t path_size_ = 0;
  const char* why_ = nullptr;
};

}  // namespace cudaguard
