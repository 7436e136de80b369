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

TEST(StderrRule, TerminalAndPipe_AreWritten) {
  EXPECT_TRUE(may_write_line(kClosed, kClosed, kTerminal));
  EXPECT_TRUE(may_write_line(kClosed, kClosed, make(Kind::kPipe, false, true)));
}

TEST(StderrRule, ClosedReadOnlyOrCloseOnExec_IsNotWritten) {
  EXPECT_FALSE(may_write_line(kTerminal, kTerminal, kClosed));
  EXPECT_FALSE(may_write_line(kTerminal, kTerminal, make(Kind::kPipe, true, false)));
  Descriptor own = make(Kind::kRegular, false, true);
  // The program has opened this file, because exec would have closed it.
  own.close_on_exec = true;
  EXPECT_FALSE(may_write_line(kTerminal, kTerminal, own));
}

TEST(StderrRule, RegularFile_OpenedByTheShell_IsWritten) {
  const Descriptor err = make(Kind::kRegular, false, true, 9);
  EXPECT_TRUE(may_write_line(kTerminal, kTerminal, err));                           // 2>file
  EXPECT_TRUE(may_write_line(kClosed, make(Kind::kRegular, false, true, 9), err));  // >file 2>&1
}

TEST(StderrRule, RegularFile_AfterAllWereClosed_IsNotWritten) {
  const Descriptor own = make(Kind::kRegular, false, true, 3);
  EXPECT_FALSE(may_write_line(make(Kind::kRegular, false, true, 1),
                              make(Kind::kRegular, false, true, 2), own));
  EXPECT_FALSE(may_write_line(kClosed, kClosed, own));
  EXPECT_FALSE(may_write_line(kClosed, make(Kind::kRegular, false, true, 2), own));
  EXPECT_FALSE(
      may_write_line(make(Kind::kSocket, true, true, 1), make(Kind::kOther, true, true, 2), own));
}

TEST(StderrRule, RegularFile_WithAnUnreadableStdin_IsNotWritten) {
  EXPECT_FALSE(may_write_line(make(Kind::kRegular, false, true, 1), kTerminal,
                              make(Kind::kRegular, false, true, 3)));
  EXPECT_TRUE(may_write_line(make(Kind::kRegular, true, false, 1), kTerminal,  // <in 2>err
                             make(Kind::kRegular, false, true, 3)));
}

TEST(StderrRule, RegularFileOpenForBoth_IsData) {
  EXPECT_FALSE(may_write_line(kTerminal, kTerminal, make(Kind::kRegular, true, true)));
}

TEST(StderrRule, Socket_IsWrittenOnlyWithEvidence) {
  const Descriptor err = make(Kind::kSocket, true, true, 5);
  EXPECT_TRUE(may_write_line(kTerminal, make(Kind::kSocket, true, true, 5), err));  // systemd
  const Descriptor in = make(Kind::kSocket, true, true, 3);
  Descriptor out = make(Kind::kSocket, true, true, 4);
  EXPECT_TRUE(may_write_line(in, out, err));  // a child of Node
  EXPECT_FALSE(may_write_line(kClosed, out, err));
  EXPECT_FALSE(may_write_line(in, make(Kind::kOther, true, true, 4), err));
  out.close_on_exec = true;
  EXPECT_FALSE(may_write_line(in, out, err));
}

TEST(StderrRule, OtherDevices_AreNotWritten) {
  EXPECT_FALSE(may_write_line(kTerminal, kTerminal, make(Kind::kOther, false, true)));
}

}  // namespace
}  // namespace cudaguard
