// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/state/start_environment.h"

#include <sys/auxv.h>

#include <cstdint>

#include "policy/text.h"
#include "shim/guard/sys/literal.h"

namespace cudaguard {

namespace {

constexpr size_t kMostShort = 255;

/// Returns one more than the number of bytes of a value that count.
size_t room_for(const VariableRow& row) {
  if (row.place == &Environment::report) return kMaxReportPath + 1;
  if (row.place == &Environment::rules) return kMaxRules + 1;
  return row.place == &Environment::visible_devices ? kMaxVisibleDevices + 1 : kMostShort;
}

/// Copies the value, of which `left` bytes count, and returns the byte after it.
char* copy(const char* value, size_t left, char* to) {
  for (; left != 0 && *value != '\0'; --left) *to++ = *value++;
  *to++ = '\0';
  return to;
}

/// The value, if the entry is one of the locale's variables, and their order.
const char* value_of_locale(const char* entry, int& order) {
  order = 2;
  if (sys::begins_with(entry, "LANG=")) return entry + sizeof "LANG";
  if (!sys::begins_with(entry, "LC_")) return nullptr;
  order = 1;
  if (sys::begins_with(entry + 3, "CTYPE=")) return entry + sizeof "LC_CTYPE";
  order = 0;
  return sys::begins_with(entry + 3, "ALL=") ? entry + sizeof "LC_ALL" : nullptr;
}

/// Copies the part from the dot, as shows_utf8() reads it, and cuts a longer one.
void copy_charset(const char* const (&locale)[3], char (&to)[sizeof StartEnvironment::charset]) {
  for (const char* value : locale) {
    if (value == nullptr || *value == '\0') continue;
    while (*value != '\0' && *value != '.') ++value;
    copy(value, sizeof to - 1, to);
    return;
  }
}

}  // namespace

[[gnu::hot]] const char* value_of(const char* entry, const char* name) {
  for (; *name != '\0'; ++name, ++entry) {
    if (*entry != *name) return nullptr;
  }
  return *entry == '=' ? entry + 1 : nullptr;
}

[[gnu::hot]] void read_start_environment(StartEnvironment& to, char** variables) {
  // This writes nothing new, but a page that is read before it is written costs two page faults.
  bool unread = false;
  if (!to.read.compare_exchange_strong(unread, false, std::memory_order_acquire)) return;
  // If a constructor before the guard's starts threads, several of them may do this at once. They
  // write the same bytes to the same places, because none of them looks at what another has done.
  Environment found;
  bool wants_start = false;
  const char* locale[3] = {};
  int order = 0;
  const char* cuda_visible = nullptr;
  char* free = to.text;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const char* entry = *variables;
    if (const char* value = value_of_locale(entry, order); value != nullptr) {
      if (locale[order] == nullptr) locale[order] = value;
      continue;
    }
    if (!sys::begins_with(entry, "CUDA")) continue;
    const char* hello = value_of(entry, kHello);
    if (hello != nullptr) wants_start = hello[0] == '1' && hello[1] == '\0';
    const char* visible = value_of(entry, "CUDA_VISIBLE_DEVICES");
    if (visible != nullptr && cuda_visible == nullptr) {
      cuda_visible = free;
      free = copy(visible, kMostShort, free);
    }
    for (const VariableRow& row : kVariables) {
      const char* value = value_of(entry, row.name);
      // The first entry counts, as in getenv().
      if (value == nullptr || found.*row.place != nullptr) continue;
      found.*row.place = free;
      free = copy(value, room_for(row), free);
    }
  }
  to.variables = found;
  to.wants_start = wants_start;
  copy_charset(locale, to.charset);
  to.cuda_visible = cuda_visible;
  to.read.store(true, std::memory_order_release);
}

char** kernel_environment() {
  // The stack holds, from the bottom: argc, argv, null, envp, null, pairs of the auxiliary vector.
  // Above them, among other things, lie 16 random bytes to which AT_RANDOM points.
  const uintptr_t random = getauxval(AT_RANDOM);
  if (random == 0) return nullptr;
  constexpr uintptr_t kMostPairs = 256;
  constexpr uintptr_t kLastType = 1000;
  auto* pair = reinterpret_cast<uintptr_t*>(random & ~(sizeof(uintptr_t) - 1));
  uintptr_t left = kMostPairs;
  while (left != 0 && (pair[0] != AT_RANDOM || pair[1] != random)) --pair, --left;
  while (left != 0 && pair[0] != AT_NULL && pair[0] <= kLastType) pair -= 2, --left;
  if (left == 0) return nullptr;
  // `pair` now points to the last variable and the null after it.
  auto** variables = reinterpret_cast<char**>(pair + 1);
  while (variables[-1] != nullptr) --variables;
  return variables;
}

}  // namespace cudaguard
