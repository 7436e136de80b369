// SPDX-License-Identifier: Apache-2.0
#include "policy/text.h"

namespace cudaguard {

namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};
/// What a terminal obeys, what takes no room and what changes the direction of text: Unicode's
/// categories Cc, Cf, Zl and Zp, the block of tags, and the two of the basic plane that XML
/// forbids. Not the two joiners, U+200C and U+200D, which names in Persian, Hindi or emoji contain.
constexpr Range kHidden[] = {
    {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
    {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200b},   {0x200e, 0x200f},
    {0x2028, 0x202e},   {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
    {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool is_hidden(uint32_t c) {
  for (const Range& range : kHidden) {
    if (c <= range.last) return c >= range.first;
  }
  return false;
}

/// Writes a unit of UTF-16 as JSON does.
Text& put_escape(Text& out, uint32_t unit) {
  out.put("\\u");
  for (int shift = 12; shift >= 0; shift -= 4) {
    out.put({&"0123456789abcdef"[unit >> shift & 15], 1});
  }
  return out;
}

constexpr char folded(char c) {
  if (c >= 'a' && c <= 'z') return static_cast<char>(c - 'a' + 'A');
  return c == '-' ? '_' : c;
}

bool is_word(std::string_view text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (folded(text[i]) != folded(word[i])) return false;
  }
  return true;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;   // overlong
    if (first == 0xed) high = 0x9f;  // surrogates
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

uint32_t utf8_value(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  uint32_t value = sequence.size() == 1 ? first : first & (0x7fU >> sequence.size());
  for (const char c : tail(sequence, 1)) value = value << 6 | (c & 0x3fU);
  return value;
}

std::string_view whole_head(std::string_view text, size_t most) {
  constexpr size_t kLongest = 4;
  if (most >= text.size()) return text;
  for (size_t back = 1; back < kLongest && back <= most; ++back) {
    if (utf8_length(tail(text, most - back)) > back) return head(text, most - back);
  }
  return head(text, most);
}

void copy_text(std::string_view text, char* to, size_t size) {
  for (const char c : whole_head(text, size - 1)) *to++ = c;
  *to = '\0';
}

std::string_view take_printable(std::string_view& text) {
  const size_t length = utf8_length(text);
  const std::string_view character = head(text, length == 0 ? 1 : length);
  text.remove_prefix(character.size());
  return length == 0 || is_hidden(utf8_value(character)) ? std::string_view("?") : character;
}

bool shows_utf8(const char* all, const char* type, const char* lang) {
  for (const char* value : {all, type, lang}) {
    if (value == nullptr || *value == '\0') continue;
    // "de_DE.UTF-8@euro": the character set's name is after the dot.
    const std::string_view locale = value;
    const std::string_view set = tail(locale, locale.find('.'));
    const std::string_view name = head(set, set.find('@'));
    return is_word(name, ".UTF-8") || is_word(name, ".UTF8");
  }
  return false;
}

std::string_view base_name(std::string_view path) {
  return tail(path, path.rfind('/') + 1);  // npos + 1 == 0
}

size_t begins(std::string_view text, Names names) {
  for (size_t row = 0; row < names.rows(); ++row) {
    const char* name = names.row(row);
    size_t length = 0;
    while (name[length] != '\0' && length < text.size() && name[length] == text[length]) ++length;
    if (name[length] == '\0') return length;
  }
  return 0;
}

size_t find_any(std::string_view text, Names names) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (begins(tail(text, at), names) != 0) return at;
  }
  return std::string_view::npos;
}

std::string_view take_entry(std::string_view& list) {
  const std::string_view entry = head(list, list.find(','));
  list = tail(list, entry.size() + 1);
  return entry;
}

std::string_view take_entry(std::string_view& list, bool& last) {
  last = list.find(',') == std::string_view::npos;
  return take_entry(list);
}

size_t place_of_entry(std::string_view list, std::string_view entry) {
  for (size_t place = 0; !list.empty(); ++place) {
    if (take_entry(list) == entry) return place;
  }
  return std::string_view::npos;
}

size_t place_of_word(std::string_view words, std::string_view word) {
  for (size_t place = 0; !words.empty(); ++place) {
    if (is_word(word, take_word(words))) return place;
  }
  return std::string_view::npos;
}

std::string_view word_at(std::string_view words, size_t place) {
  for (; place > 0; --place) take_word(words);
  return take_word(words);
}

Text& Text::put(std::string_view text) {
  for (const char c : text) {
    if (size_ == capacity_) {
      cut_ = true;
      break;
    }
    begin_[size_++] = c;
  }
  return *this;
}

Text& Text::put(const char* text) { return put(std::string_view(text)); }

Text& Text::put_pattern(const char* pattern, const Argument* arguments) {
  for (; *pattern != '\0'; ++pattern) {
    if (*pattern != '%') {
      put({pattern, 1});
      continue;
    }
    const Argument argument = *arguments++;
    switch (*++pattern) {
      case 'u':
        put_decimal(argument.number);
        break;
      case 'c':
        put(argument.text);
        break;
      default:
        put_printable(*argument.view, *pattern == 's' ? 80 : *pattern == 'n' ? 40 : 2048);
    }
  }
  return *this;
}

Text& Text::put_digits(uint64_t value, unsigned base) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  return put({digits + at, sizeof digits - at});
}

Text& Text::put_printable(std::string_view text, size_t limit) {
  const bool too_long = text.size() > limit;
  text = whole_head(text, limit);
  while (!text.empty()) {
    const std::string_view character = take_printable(text);
    if (character.size() > room()) capacity_ = size_;  // nothing may follow what is cut
    put(character);
  }
  if (too_long) put("...");
  return *this;
}

void Text::make_ascii() {
  for (size_t i = 0; i < size_; ++i) {
    if (static_cast<unsigned char>(begin_[i]) >= 0x80) begin_[i] = '?';
  }
}

bool Text::put_json(std::string_view text, size_t limit) {
  if (limit > room()) limit = room();
  size_t used = 0;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const uint32_t value = length == 0 ? 0xfffd : utf8_value(head(text, length));
    char escape[12];
    Text written(escape, sizeof escape);
    std::string_view out = head(text, length);
    if (value == '"' || value == '\\') {
      out = written.put("\\").put(out).view();
    } else if (length == 0 || is_hidden(value)) {
      if (value >= 0x10000) put_escape(written, 0xd7c0 + (value >> 10));
      out = put_escape(written, value < 0x10000 ? value : 0xdc00 | (value & 0x3ff)).view();
    }
    if (used + out.size() > limit) return false;
    used += out.size();
    put(out);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return true;
}

}  // namespace cudaguard
