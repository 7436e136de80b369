// SPDX-License-Identifier: Apache-2.0
// Edits /etc/ld.so.preload. Every program reads this file when it starts, so it must never be empty
// or half-written.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cudaguard::launcher {

inline constexpr char kPreloadFile[] = "/etc/ld.so.preload";

/// The libraries that ld.so preloads for this text. Also reproduces glibc's mistake: after the
/// first comment, ld.so looks for others only in a part of the text, and takes the words of the
/// rest for libraries.
std::vector<std::string> preloads_of(std::string text);

using Which = std::function<bool(const std::string& entry)>;

/// Removes entries, and lines that have nothing else. Other lines keep their bytes.
std::string without_entries(std::string_view text, const Which& which);

/// Adds a line for the library before all others, but after the first comments: ld.so would find
/// fewer of them if they moved.
std::string with_entry(std::string_view text, const std::string& entry);

/// The file of this root directory.
class PreloadFile {
 public:
  /// Reads it. Throws Refusal unless it is missing or a plain text file.
  PreloadFile();
  const std::string& text() const { return text_; }
  std::vector<std::string> entries() const { return preloads_of(text_); }

  /// Returns the text without the entries of `which`, and with `added` unless it is empty. Throws
  /// Refusal if ld.so would not read exactly this change.
  std::string changed(const Which& which, const std::string& added) const;
  /// Puts this text in the file's place in one step, so that a program finds the old file or the
  /// new one, also after a power cut. Removes the file if the text is blank. Throws Refusal on
  /// failure.
  void replace(std::string_view text) const;

 private:
  std::string text_;
};

}  // namespace cudaguard::launcher
