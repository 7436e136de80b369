// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/format.h"

#include <gtest/gtest.h>

namespace cudaguard::launcher {
namespace {

TEST(Format, TerminalGetsAsciiAlone) {
  EXPECT_EQ(printable("a\tb\x1b[31m\nc"), "a b?[31m?c");
  EXPECT_EQ(printable("\"x\" \xc3\xa9\xe2\x82\xac."), "\"x\" \xc3\xa9\xe2\x82\xac.");
  EXPECT_EQ(printable("\x7f\x80\x80"), "???");
  EXPECT_EQ(printable("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(printable("abcdefghi", 8), "abcde...");
  EXPECT_EQ(printable("abcd\xe2\x82\xacghi", 9), "abcd...");
}

TEST(Format, QuotesInsideQuotesAreReplaced) {
  EXPECT_EQ(in_quotes("a\"b"), "\"a\"b\"");
  EXPECT_LT(in_quotes(std::string(5000, 'x')).size(), 500u);
}

TEST(Format, NumbersAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(Format, NounsFollowTheirNumber) {
  EXPECT_EQ(counted(1, "process"), "1 process");
  EXPECT_EQ(counted(0, "process"), "0 processes");
  EXPECT_EQ(counted(2000, "line"), "2,000 lines");
}

TEST(Format, ConsecutiveIdsAreARange) {
  EXPECT_EQ(id_ranges({}), "");
  EXPECT_EQ(id_ranges({15, 3, 7, 8, 9, 3}), "3 7-9 15");
  EXPECT_EQ(id_ranges({2, 1}), "1-2");
}

TEST(Format, LongListEndsAfterAWholeWord) {
  EXPECT_EQ(whole_words("1111 1113 1115", 14), "1111 1113 1115");
  EXPECT_EQ(whole_words("1111 1113 1115", 13), "1111 1113 ...");
  EXPECT_EQ(whole_words("1111 1113 1115", 12), "1111 ...");
  EXPECT_EQ(whole_words("111111111", 8), "1111 ...");
}

TEST(Format, FunctionLosesLongTemplateArguments) {
  for (const auto& [name, expected] : std::vector<std::pair<const char*, const char*>>{
           {"int a::E<std::function<int (X, double)> >::start<main::{lambda()#1}>(int)",
            "int a::E<...>::start<...>(int)"},
           {"std::vector<int>::at", "std::vector<int>::at"},
           {"F<&(A::operator->()), 16>::f", "F<...>::f"},
           {"operator<< <std::char_traits<char> >", "operator<< <std::char_traits<...> >"},
           {"std::ostream& operator<< <X>(std::basic<char, X>&)",
            "std::ostream& operator<< <X>(std::basic<...>&)"},
           {"A<longer>::operator<(A<longer> const&)", "A<...>::operator<(A<...> const&)"},
           {"<r::Eng<alloc::vec::Vec<u8>> as r::Start>::start", "<r::Eng<...> as r::Start>::start"},
           {"std::lang::<fn() -> (), ()>::{closure#0}", "std::lang::<...>::{closure#0}"},
           {"f.<locals>.g", "f.<locals>.g"},
           {"f<int>(std::map<K, std::ve...", "f<int>(std::map<..."}}) {
    EXPECT_EQ(short_function(name), expected);
  }
}

TEST(Format, TimesAreUtc) {
  EXPECT_EQ(utc_time(1795332480.9, "%Y-%m-%d %H:%M:%S"), "2026-11-22 07:28:00");
  EXPECT_EQ(utc_time(0, "%Y"), "-");
}

TEST(Format, LongLinesAreWrappedAtBlanks) {
  std::string text;
  add_wrapped(text, "> ", std::string(60, 'a') + " " + std::string(60, 'b'));
  EXPECT_EQ(text, "> " + std::string(60, 'a') + "\n  " + std::string(60, 'b') + "\n");
  text.clear();
  add_wrapped(text, "> ", std::string(120, 'p'));  // a path is not broken
  EXPECT_EQ(text, "> " + std::string(120, 'p') + "\n");
}

TEST(Format, LongRowIsCut) {
  std::string text;
  add_row(text, std::string(100, 'a'));
  add_row(text, std::string(101, 'b'));
  EXPECT_EQ(text, std::string(100, 'a') + "\n" + std::string(97, 'b') + "...\n");
}

}  // namespace
}  // namespace cudaguard::launcher
