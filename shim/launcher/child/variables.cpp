// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/child/variables.h"

#include <algorithm>
#include <iterator>

#include "shim/launcher/format.h"

namespace cudaguard::launcher {

namespace {

bool is_of(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

}  // namespace

Variables::Variables(const char* const* environment) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    entries_.emplace_back(*environment);
  }
}

const char* Variables::get(std::string_view name) const {
  for (const std::string& entry : entries_) {
    if (is_of(entry, name)) return entry.c_str() + name.size() + 1;
  }
  return nullptr;
}

size_t Variables::count_starting(std::string_view text) const {
  return static_cast<size_t>(std::ranges::count_if(
      entries_, [&](const std::string& entry) { return entry.starts_with(text); }));
}

void Variables::note(std::string_view name) {
  if (std::ranges::find(changed_, name) == changed_.end()) changed_.emplace_back(name);
}

void Variables::set(std::string_view name, std::string_view value) {
  const std::string entry = std::string(name) + "=" + std::string(value);
  const auto is_same = [&](const std::string& other) { return is_of(other, name); };
  note(name);
  const auto first = std::ranges::find_if(entries_, is_same);
  if (first == entries_.end()) {
    entries_.push_back(entry);
    return;
  }
  *first = entry;
  // If a name occurs twice, programs differ in which value they read.
  entries_.erase(std::remove_if(std::next(first), entries_.end(), is_same), entries_.end());
}

void Variables::unset(std::string_view name) {
  if (!has(name)) return;
  note(name);
  std::erase_if(entries_, [&](const std::string& entry) { return is_of(entry, name); });
}

std::vector<char*> Variables::pointers() {
  std::vector<char*> result;
  result.reserve(entries_.size() + 1);
  for (std::string& entry : entries_) result.push_back(entry.data());
  result.push_back(nullptr);
  return result;
}

std::string Variables::changes() const {
  std::string result;
  for (const std::string& name : changed_) {
    const char* value = get(name);
    result += value == nullptr ? "unset " + name : "export " + name + "=" + shell_quoted(value);
    result += '\n';
  }
  return result;
}

}  // namespace cudaguard::launcher
