// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "policy/text.h"

namespace cudaguard::launcher {

namespace {

constexpr double kLastYear = 253402300799;  // the end of 9999

/// Controls, what has no width or turns the direction, and what HTML does not allow.
bool cannot_be_seen(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || c == 0x180e ||
         (c >= 0x200b && c < 0x2010) || (c >= 0x2028 && c < 0x202f) ||
         (c >= 0x2060 && c < 0x2070) || (c >= 0xfdd0 && c < 0xfdf0) || c == 0xfeff ||
         (c >= 0xfff9 && c < 0xfffc) || (c & 0xfffe) == 0xfffe || (c >= 0xe0000 && c < 0xe1000);
}

const char* entity_of(uint32_t c) {
  return c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : nullptr;
}

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char text[64];
  snprintf(text, sizeof text, pattern, values...);
  return text;
}

/// "2 min 5 s", "2 min"
std::string two_parts(long long seconds, const char* large, int of_large, const char* small,
                      int of_small) {
  const long long rest = seconds % of_large / of_small;
  return format(rest == 0 ? "%lld %s" : "%lld %s %lld %s", seconds / of_large, large, rest, small);
}

}  // namespace

void Html::add_text(std::string_view text, size_t most) {
  const bool too_long = text.size() > most;
  const char* rest = text.data() + (too_long ? most : text.size());
  // Not in the midst of a character.
  while (too_long && rest > text.data() && (*rest & 0xc0) == 0x80) --rest;
  text = {text.data(), static_cast<size_t>(rest - text.data())};
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const uint32_t c = length == 0 ? 0xfffd : utf8_value(head(text, length));
    if (const char* entity = entity_of(c)) {
      out_ += entity;
    } else if (length == 0) {
      out_ += "\ufffd";
    } else if (c == '\n') {
      out_ += "\u23ce";  // as keyboards show it: scripts of -c have many
    } else if (cannot_be_seen(c)) {
      out_ += format("\u27e8U+%04X\u27e9", c);
    } else {
      out_ += head(text, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  if (too_long) out_ += "\u2026";
}

void Html::add_number(uint64_t number) { out_ += std::to_string(number); }

std::string span_of(double seconds) {
  if (!(seconds > 0)) seconds = 0;
  seconds = std::min(seconds, kLastYear);
  if (seconds < 1) return format("%.0f ms", seconds * 1000);
  if (seconds < 9.995) return format("%.2f s", seconds);
  if (seconds < 99.95) return format("%.1f s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 3600) return two_parts(whole, "min", 60, "s", 1);
  if (whole < 86400) return two_parts(whole, "h", 3600, "min", 60);
  return two_parts(whole, "d", 86400, "h", 3600);
}

std::string time_of(double since_1970) {
  if (!(since_1970 > 0)) return "not known";
  const auto seconds = static_cast<time_t>(std::min(since_1970, kLastYear));
  tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[64];
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string percent(double share) {
  return format("%.2f%%", 100 * (share > 0 ? std::min(share, 1.0) : 0));
}

}  // namespace cudaguard::launcher
