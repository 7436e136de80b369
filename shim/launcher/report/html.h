// SPDX-License-Identifier: Apache-2.0
// HTML of texts that other people made: any content is possible.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace cudaguard::launcher {

/// A text that may be longer than others.
struct Long {
  std::string_view text;
};

/// Of what is put, a literal is markup; every other text is shown as what it is, whatever it
/// contains.
class Html {
 public:
  template <typename... Parts>
  Html& put(const Parts&... parts) {
    (add(parts), ...);
    return *this;
  }
  const std::string& markup() const { return out_; }

 private:
  void add(const char* literal) { out_ += literal; }
  void add(const std::string& text) { add_text(text, 300); }
  void add(std::string_view text) { add_text(text, 300); }
  void add(Long text) { add_text(text.text, 4000); }
  void add(const Html& more) { out_ += more.out_; }
  void add(std::integral auto number) { add_number(static_cast<uint64_t>(number)); }
  /// At most so many bytes of it. What is not UTF-8 becomes U+FFFD; what could not be seen, or
  /// turns the direction of what follows, stands there by its number.
  void add_text(std::string_view text, size_t most);
  void add_number(uint64_t number);

  std::string out_;
};

// Texts, not markup.
std::string span_of(double seconds);     ///< "2.31 s", "4 min 2 s"
std::string time_of(double since_1970);  ///< "2026-11-22 07:28:27"
std::string percent(double share);       ///< "12.50%": for a style

}  // namespace cudaguard::launcher
