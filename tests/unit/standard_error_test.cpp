// SPDX-License-Identifier: Apache-2.0
#include "policy/standard_error.h"

#include <gtest/gtest.h>

namespace cudaguard {
namespace {

using Kind = Descriptor::Kind;

constexpr Descriptor make(Kind kind, bool readable, bool writable, uint64_t inode = 1) {
  Descriptor d;
  d.kind = kind;
  d.readable = readable;
  d.writable = writable;
  d.inode = inode;
  return d;
}

constexpr Descriptor kClosed;
constexpr Descriptor kTerminal = make(Kind::kTerminalOrNull, true, true);

constexpr Descriptor closed_on_exec(Descriptor d) {
  d.close_on_exec = true;
  return d;
}

constexpr Descriptor file(uint64_t inode) { return make(Kind::kRegular, false, true, inode); }
constexpr Descriptor socket(uint64_t inode) { return make(Kind::kSocket, true, true, inode); }

constexpr struct {
  const char* about;
  Descriptor in;
  Descriptor out;
  Descriptor err;
  bool written;
} kCases[] = {
    {"a terminal", kClosed, kClosed, kTerminal, true},
    {"a pipe", kClosed, kClosed, make(Kind::kPipe, false, true), true},
    {"closed", kTerminal, kTerminal, kClosed, false},
    {"read-only", kTerminal, kTerminal, make(Kind::kPipe, true, false), false},
    {"the program's own file", kTerminal, kTerminal, closed_on_exec(file(1)), false},
    {"2>file", kTerminal, kTerminal, file(9), true},
    {">file 2>&1", kClosed, file(9), file(9), true},
    {"<in 2>err", make(Kind::kRegular, true, false, 1), kTerminal, file(3), true},
    {"0 to 2 are the program's files", file(1), file(2), file(3), false},
    {"0 and 1 are closed", kClosed, kClosed, file(3), false},
    {"0 is closed, 1 is a file", kClosed, file(2), file(3), false},
    {"0 and 1 are no shell's", socket(1), make(Kind::kOther, true, true, 2), file(3), false},
    {"0 cannot be read", file(1), kTerminal, file(3), false},
    {"a file open for both", kTerminal, kTerminal, make(Kind::kRegular, true, true), false},
    {"systemd's journal", kTerminal, socket(5), socket(5), true},
    {"a child of Node", socket(3), socket(4), socket(5), true},
    {"a socket, and 0 is closed", kClosed, socket(4), socket(5), false},
    {"a socket, and 1 is none", socket(3), make(Kind::kOther, true, true, 4), socket(5), false},
    {"a socket, and 1 is the program's", socket(3), closed_on_exec(socket(4)), socket(5), false},
    {"another device", kTerminal, kTerminal, make(Kind::kOther, false, true), false},
};

TEST(StderrRule, OnlyWhatTheProgramInheritedIsWritten) {
  for (const auto& one : kCases) {
    EXPECT_EQ(may_write_line(one.in, one.out, one.err), one.written) << one.about;
  }
}

}  // namespace
}  // namespace cudaguard
