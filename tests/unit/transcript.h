// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "policy/program.h"
#include "policy/text.h"

namespace cudaguard {

/// The entries "key=value" of a row, with "|" between them.
inline std::vector<std::pair<std::string, std::string>> entries_of(std::string row) {
  for (char& c : row) c = c == '|' ? '\0' : c;
  std::vector<std::pair<std::string, std::string>> entries;
  for (std::string_view rest = row; !rest.empty();) {
    const std::string_view entry = take_argument(rest);
    const std::string key(entry.substr(0, entry.find('=')));
    entries.emplace_back(key, tail(entry, std::min(key.size() + 1, entry.size())));
  }
  return entries;
}

/// Compares the key of an entry, which must be one of those that it is compared with.
class Key {
 public:
  explicit Key(std::string key) : key_(std::move(key)), is_known_(key_.empty()) {}
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  ~Key() { EXPECT_TRUE(is_known_) << key_; }
  bool operator()(std::string_view name) const {
    is_known_ |= key_ == name;
    return key_ == name;
  }

 private:
  std::string key_;
  mutable bool is_known_;
};

/// Each line of the file is a title, or "inputs -> outputs". CG_ is short for CUDAGUARD_.
inline void expect_as_written(
    const char* path,
    const std::function<std::string(const std::string& inputs, const std::string& outputs)>& made) {
  std::ifstream file(path);
  std::string title;
  size_t rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) title = line;
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(title + '\n' + line);
    for (size_t at = 0; (at = line.find("CG_")) != std::string::npos;) {
      line.replace(at, 3, "CUDAGUARD_");
    }
    const size_t arrow = line.find(" -> ");
    ASSERT_NE(arrow, std::string::npos);
    const std::string outputs = line.substr(arrow + 4);
    EXPECT_EQ(made(line.substr(0, arrow), outputs), outputs);
    ++rows;
  }
  EXPECT_GT(rows, 60U);
}

}  // namespace cudaguard
