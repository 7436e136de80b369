// SPDX-License-Identifier: Apache-2.0
// Text: a writer into a buffer that its caller owns. It never allocates, never writes past the
// end, and remembers whether something did not fit. Not thread-safe; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Returns the first `count` bytes, or all. (std::string_view::substr may throw, which needs
/// libstdc++.)
constexpr std::string_view head(std::string_view text, size_t count) {
  return {text.data(), count < text.size() ? count : text.size()};
}
/// Returns the bytes after the first `count`, or nothing.
constexpr std::string_view tail(std::string_view text, size_t count) {
  if (count > text.size()) count = text.size();
  return {text.data() + count, text.size() - count};
}
/// base_name returns a path without its directories, directory_of the directory without the last
/// '/'.
std::string_view base_name(std::string_view path);
constexpr std::string_view directory_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view{} : head(path, slash);
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The rows of a constant `char names[][N]`. The guard's constants have no pointers, because ld.so
/// would adjust them in each process.
class Names {
 public:
  template <size_t kRows, size_t kSize>
  constexpr Names(const char (&names)[kRows][kSize])  // NOLINT(google-explicit-constructor)
      : first_(names[0]), size_(kSize), rows_(kRows) {}
  constexpr explicit Names(const char* only) : first_(only), size_(0), rows_(1) {}

  constexpr size_t rows() const { return rows_; }
  constexpr const char* row(size_t place) const { return first_ + place * size_; }

 private:
  const char* first_;
  uint32_t size_;
  uint32_t rows_;
};

/// Returns the length of the first name with which `text` begins, or 0.
size_t begins(std::string_view text, Names names);
/// Returns the position of one of the names in `text`, or npos.
size_t find_any(std::string_view text, Names names);
/// Returns the position of `name` in `text`, or npos.
inline size_t find(std::string_view text, const char* name) { return find_any(text, Names(name)); }

/// Removes the part before the first comma, and the comma, from the list. Returns the part.
std::string_view take_entry(std::string_view& list);
/// Does the same; `last`: there was no comma. So an empty list has one empty entry, as "," has two.
std::string_view take_entry(std::string_view& list, bool& last);
/// Removes and returns the first of the words in "one, two".
inline std::string_view take_word(std::string_view& words) {
  if (words.starts_with(' ')) words.remove_prefix(1);
  return take_entry(words);
}
/// Returns the place of an entry in a comma-separated list, compared as written, or npos.
size_t place_of_entry(std::string_view list, std::string_view entry);

/// Returns the place of a word among "one, two", or npos. Any case is accepted, and "-" for "_".
size_t place_of_word(std::string_view words, std::string_view word);
/// Returns the word at a place of "one, two".
std::string_view word_at(std::string_view words, size_t place);

/// Returns the length of the UTF-8 sequence at the start of `text`, which must not be empty, or 0
/// if there is none (RFC 3629).
size_t utf8_length(std::string_view text);
/// Returns the character of such a sequence.
uint32_t utf8_value(std::string_view sequence);
/// Returns the first `most` bytes, or less, so that no character is cut.
std::string_view whole_head(std::string_view text, size_t most);
/// Copies as many whole characters as fit, and a zero byte.
void copy_text(std::string_view text, char* to, size_t size);

/// Removes the first character. Returns it as a message shows it: "?" for a control character, one
/// that changes the direction of text or takes no room, and a byte that is not UTF-8.
std::string_view take_printable(std::string_view& text);

/// True if a terminal shows UTF-8, as the first of LC_ALL, LC_CTYPE and LANG that is not empty
/// says. A variable that is unset is null.
bool shows_utf8(const char* all, const char* type, const char* lang);

/// A message is one write; longer ones would interleave on a pipe (POSIX PIPE_BUF on Linux).
inline constexpr size_t kMaxLine = 4096;

namespace text_detail {

/// Returns what stands in a pattern for an argument of this type: %s, %n and %l are 's'.
template <typename Argument>
consteval char letter_of() {
  if (std::is_same_v<Argument, std::string_view>) return 's';
  if (std::is_convertible_v<Argument, const char*>) return 'c';
  return std::is_unsigned_v<Argument> ? 'u' : '?';
}

void pattern_does_not_fit_its_arguments();  // is never defined

}  // namespace text_detail

/// A pattern of Text::print that is checked when it is compiled.
template <typename... Arguments>
struct Pattern {
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is a pattern
  consteval Pattern(const char* pattern) : text(pattern) {
    const char letters[] = {text_detail::letter_of<Arguments>()..., '\0'};
    size_t next = 0;
    for (const char* at = pattern; *at != '\0'; ++at) {
      if (*at != '%') continue;
      const char letter = *++at == 'n' || *at == 'l' ? 's' : *at;
      if (next == sizeof...(Arguments) || letters[next++] != letter) {
        text_detail::pattern_does_not_fit_its_arguments();
      }
    }
    if (next != sizeof...(Arguments)) text_detail::pattern_does_not_fit_its_arguments();
  }
  const char* text;
};

class Text {
 public:
  constexpr Text(char* buffer, size_t capacity) : begin_(buffer), capacity_(capacity) {}

  Text& put(std::string_view text);
  Text& put(const char* text);  ///< zero-terminated; makes calls with literals short
  Text& put_decimal(uint64_t value) { return put_digits(value, 10); }
  Text& put_hex(uint64_t value) { return put("0x").put_digits(value, 16); }

  /// Writes for a terminal, as take_printable() says. What is longer than `limit` bytes is cut at a
  /// character and marked with "...".
  Text& put_printable(std::string_view text, size_t limit);
  /// Replaces each byte that is not ASCII by '?', for a terminal that does not show UTF-8. `ls -q`
  /// prints the same.
  void make_ascii();

  /// Writes the inside of a JSON string (RFC 8259). Escapes what must be escaped and what a
  /// terminal would obey, replaces what is not UTF-8 by U+FFFD. Stops before the character that
  /// would exceed `limit` bytes of output. Returns false if it stopped early.
  bool put_json(std::string_view text, size_t limit);

  /// Writes a pattern whose places take the arguments in their order. %s is a string_view,
  /// printable and cut at 80 bytes (%n: 40, %l: 2048). %c is a zero-terminated string, %u a number.
  /// A pattern that does not fit its arguments does not compile.
  template <typename... Arguments>
  Text& print(std::type_identity_t<Pattern<Arguments...>> pattern, const Arguments&... arguments) {
    const Argument list[] = {arguments...};
    return put_pattern(pattern.text, list);
  }

  std::string_view view() const { return {begin_, size_}; }
  size_t room() const { return capacity_ - size_; }
  bool cut() const { return cut_; }

 private:
  union Argument {
    Argument(const std::string_view& value) : view(&value) {}
    Argument(const char* const& value) : text(value) {}
    Argument(uint64_t value) : number(value) {}
    const std::string_view* view;
    const char* text;
    uint64_t number;
  };
  Text& put_pattern(const char* pattern, const Argument* arguments);
  Text& put_digits(uint64_t value, unsigned base);

  char* begin_;
  size_t capacity_;
  size_t size_ = 0;
  bool cut_ = false;
};

}  // namespace cudaguard
