// SPDX-License-Identifier: Apache-2.0
#include "policy/text.h"

#include <gtest/gtest.h>

#include <string>

namespace cudaguard {
namespace {

std::string json(std::string_view text, size_t limit = 1000) {
  char buffer[1000];
  Text out(buffer, sizeof buffer);
  out.put_json(text, limit);
  return std::string(out.view());
}

TEST(Text, Numbers_AreDecimalOrHexadecimal) {
  char buffer[64];
  Text out(buffer, sizeof buffer);
  out.put_decimal(0)
      .put(" ")
      .put_decimal(18446744073709551615ULL)
      .put(" ")
      .put_hex(0)
      .put_hex(0xdeadbeef);
  EXPECT_EQ(out.view(), "0 18446744073709551615 0x00xdeadbeef");
}

TEST(Text, NeverWritesPastTheEnd) {
  char buffer[8] = "abcdefg";
  Text out(buffer, 3);
  out.put("xyzzy");
  EXPECT_EQ(out.view(), "xyz");
  EXPECT_TRUE(out.cut());
  EXPECT_EQ(buffer[3], 'd');
}

std::string printable(std::string_view text, size_t limit = 1000) {
  char buffer[1000];
  Text out(buffer, sizeof buffer);
  out.put_printable(text, limit);
  return std::string(out.view());
}

TEST(Text, Printable_KeepsCharactersOfAllLanguages) {
  for (const char* same :
       {"módulo.py", "грубо.py", "漢字.py", "l’été – “a” … b.py", "😀.py", "می\u200cخواهم.py",
        "क्\u200dष.py", "👩\u200d💻.py", "\u00a0\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U0010ffff"}) {
    EXPECT_EQ(printable(same), same);
  }
}

TEST(Text, Printable_ReplacesWhatATerminalObeysOrHidesAndEachByteThatIsNotUtf8) {
  EXPECT_EQ(printable("a\x1b[31m\n\"\xff"), "a?[31m?\"?");
  EXPECT_EQ(printable("\x7f\xc2\x80\xc2\x9b\xc2\x9f"), "????");  // DEL, C1
  EXPECT_EQ(printable("a\u202eb\u202c\u2066c\u2069\u200fd\u2028\u2029"), "a?b??c??d??");
  EXPECT_EQ(printable("\u061c\u200b\u200e\u2060\u206f\ufeff\ufffe\uffff"), "????????");
  EXPECT_EQ(printable("a\xff\x80"), "a??");
  EXPECT_EQ(printable("\xc0\xaf"), "??");       // overlong '/'
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");  // surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(printable("\xe2\x82"), "??");  // cut sequence
  EXPECT_EQ(printable("\xe2\x82\xc3\xa9"), "??\u00e9");
}

std::string utf8(char32_t c) {
  std::string text;
  for (unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3, i = more + 1; i-- > 0;) {
    constexpr unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
    const unsigned bits = c >> (6 * i);
    text += static_cast<char>(i == more ? kLead[more] | bits : 0x80 | (bits & 0x3f));
  }
  return text;
}

TEST(Text, Printable_ReplacesUnicodesFormatCharactersAndTags) {
  constexpr char32_t kHidden[] = {0xad,    0x600,   0x605,   0x61c,   0x6dd,   0x70f,   0x890,
                                  0x891,   0x8e2,   0x180e,  0x2064,  0xfff9,  0xfffb,  0x110bd,
                                  0x110cd, 0x13430, 0x1343f, 0x1bca0, 0x1bca3, 0x1d173, 0x1d17a,
                                  0xe0000, 0xe0001, 0xe0020, 0xe007f, 0xe0fff};
  for (const char32_t c : kHidden) EXPECT_EQ(printable(utf8(c)), "?") << std::hex << uint32_t{c};
  constexpr char32_t kShown[] = {0xa0,    0xac,    0xae,    0x606,   0x6dc,   0x70e,   0x892,
                                 0x8e1,   0x180d,  0x2027,  0x202f,  0x2070,  0xfefe,  0xfff8,
                                 0xfffd,  0x110bc, 0x110ce, 0x13429, 0x13440, 0x1bc9f, 0x1bca4,
                                 0x1d172, 0x1d17b, 0x1f600, 0xdffff, 0xe1000};
  for (const char32_t c : kShown) {
    EXPECT_EQ(printable(utf8(c)), utf8(c)) << std::hex << uint32_t{c};
  }
}

TEST(Text, Printable_IsCutAtACharacter) {
  EXPECT_EQ(printable("a\u20acb", 3), "a...");
  EXPECT_EQ(printable("a\u20acb", 4), "a\u20ac...");
  EXPECT_EQ(printable("a\u20ac", 4), "a\u20ac");
  char buffer[6];
  Text out(buffer, sizeof buffer);
  out.put("abcd").put_printable("\u20ac", 80).put("e");
  EXPECT_EQ(out.view(), "abcd");
  EXPECT_TRUE(out.cut());
}

TEST(Text, Copies_AreCutAtACharacter) {
  char to[5];
  copy_text("ab\u20accd", to, sizeof to);
  EXPECT_STREQ(to, "ab");
  copy_text("a\u20ac", to, sizeof to);
  EXPECT_STREQ(to, "a\u20ac");
  copy_text("", to, sizeof to);
  EXPECT_STREQ(to, "");
  copy_text("\x80\x80\x80\x80\x80", to, sizeof to);
  EXPECT_STREQ(to, "\x80\x80\x80\x80");
}

TEST(Text, OfATerminalWithoutUtf8HasOneMarkForEachByte) {
  std::string buffer(64, '\xff');
  Text out(buffer.data(), buffer.size());
  out.put("m\u00f3dulo.py:3").make_ascii();
  EXPECT_EQ(out.view(), "m??dulo.py:3");
  EXPECT_EQ(buffer[out.view().size()], '\xff');  // it writes to the text alone
}

TEST(Locale, ShowsUtf8AsTheFirstVariableThatIsSetSays) {
  struct Case {
    const char* all;
    const char* type;
    const char* lang;
    bool utf8;
  };
  for (const Case& one :
       {Case{nullptr, nullptr, nullptr, false}, Case{nullptr, nullptr, "C", false},
        Case{nullptr, nullptr, "C.UTF-8", true}, Case{nullptr, nullptr, "de_DE.utf8@euro", true},
        Case{nullptr, nullptr, "de_DE", false}, Case{nullptr, nullptr, "de_DE.ISO-8859-1", false},
        Case{nullptr, nullptr, "UTF-8", false}, Case{"C", "C.UTF-8", "C.UTF-8", false},
        Case{"", "C", "C.UTF-8", false}, Case{"", "", "en_US.UTF-8", true},
        Case{"C.UTF-8", "C", "C", true}}) {
    EXPECT_EQ(shows_utf8(one.all, one.type, one.lang), one.utf8)
        << (one.lang != nullptr ? one.lang : "unset");
  }
}

TEST(Text, Json_EscapesQuotesAndControlCharacters) {
  EXPECT_EQ(json("a\"b\\c\n\x7f"), R"(a\"b\\c\u000a\u007f)");
  EXPECT_EQ(json("grün €𝄞"), "grün €𝄞");
  // The first and the last character of each length.
  EXPECT_EQ(json("\u00a0\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U0010ffff"),
            "\u00a0\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U0010ffff");
}

TEST(Text, Json_EscapesTerminalControlCharacters) {
  EXPECT_EQ(json("\xc2\x80 \xc2\x9b \xc2\x9f"), R"(\u0080 \u009b \u009f)");  // C1
  // Each direction mark is closed again, because clang-tidy refuses a literal that leaves one open.
  EXPECT_EQ(json("a\u202eb\u202c\u2066c\u2069\u200fd\u2028"),
            R"(a\u202eb\u202c\u2066c\u2069\u200fd\u2028)");
  EXPECT_EQ(json("\u061c\ufeff\uffff\u206f\u00ad"), R"(\u061c\ufeff\uffff\u206f\u00ad)");
  EXPECT_EQ(json("\U000e0041\U0001d173"), R"(\udb40\udc41\ud834\udd73)");
  EXPECT_EQ(json("\u00a0\u1fff\u2070\U0001f600"), "\u00a0\u1fff\u2070\U0001f600");
}

TEST(Text, Json_ReplacesInvalidUtf8) {
  EXPECT_EQ(json("\xff"), "\\ufffd");
  EXPECT_EQ(json("\xed\xa0\x80"), "\\ufffd\\ufffd\\ufffd");  // surrogate
  EXPECT_EQ(json("a\xe2\x82"), "a\\ufffd\\ufffd");           // cut sequence
  EXPECT_EQ(json(std::string_view("a€", 3)), "a\\ufffd\\ufffd");
}

TEST(Text, Json_StopsBeforeACharacterThatIsTooLong) {
  EXPECT_EQ(json("ab€", 4), "ab");
  EXPECT_EQ(json("ab€", 5), "ab€");
  EXPECT_EQ(json("a\n", 6), "a");
}

TEST(Text, Paths_SplitAtTheLastSlash) {
  EXPECT_EQ(base_name("/a/b"), "b");
  EXPECT_EQ(base_name("b"), "b");
  EXPECT_EQ(base_name("/a/"), "");
  EXPECT_EQ(directory_of("/a/b"), "/a");
  EXPECT_EQ(directory_of("/a"), "");
  EXPECT_EQ(directory_of("a"), "");
}

TEST(Entries, AreFoundOnlyAsTheyAreWritten) {
  std::string_view list = "5,,2";
  EXPECT_EQ(take_entry(list), "5");
  EXPECT_EQ(take_entry(list), "");
  EXPECT_EQ(take_entry(list), "2");
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(place_of_entry("5,,2", "2"), 2U);
  EXPECT_EQ(place_of_entry("5,,2", ""), 1U);
  for (const char* none : {"", "5", "25,52", "2 ", "02"}) {
    EXPECT_EQ(place_of_entry(none, "2"), std::string_view::npos) << none;
  }
}

TEST(Names, EndBeforeAZeroByteOfTheText) {
  constexpr char kNames[][4] = {"abc", "ab"};
  const std::string_view arguments("x\0ab\0c", 6);
  EXPECT_EQ(begins(tail(arguments, 2), kNames), 2U);
  EXPECT_EQ(find_any(arguments, kNames), 2U);
  EXPECT_EQ(find(arguments, "abc"), std::string_view::npos);
}

}  // namespace
}  // namespace cudaguard
