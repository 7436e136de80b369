// SPDX-License-Identifier: Apache-2.0
// The guard's state: Process in pages that the kernel wipes in a forked child, and InheritedState.
// The guard runs no constructor for either, so the defaults of each part must be zero.
// tests/artefacts/test_rooms.py checks that every part is here.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "shim/guard/state/process.h"

namespace cudaguard {
namespace {

bool is_filled(const void* object, size_t size, unsigned char with) {
  const auto* bytes = static_cast<const unsigned char*>(object);
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != with) return false;
  }
  return true;
}

struct OneMember {
  char before[64] = {};
  int none = -1;
};

/// Static storage makes the padding zero, too.
template <typename T>
constinit T fresh;

template <typename T>
class FreshState : public testing::Test {};
using Parts =
    testing::Types<Process, HookProcess, ProxyProcess, ProxyLoaderProcess, RecordProcess,
                   PythonFrames, ExportsProcess, ExplainProcess, InheritedState, HookInherited,
                   RecordInherited, ExplainInherited, ProxyLoaderInherited>;
TYPED_TEST_SUITE(FreshState, Parts);

TYPED_TEST(FreshState, IsZero) { EXPECT_TRUE(is_filled(&fresh<TypeParam>, sizeof(TypeParam), 0)); }

TEST(FreshState, ControlMemberWithAnotherDefaultIsFound) {
  EXPECT_FALSE(is_filled(&fresh<OneMember>, sizeof(OneMember), 0));
}

/// A part of one of the two structs.
struct Part {
  const char* name;
  void* at;
  size_t size;
};
#define CG_PART(whole, member) \
  { #member, &(whole).member, sizeof((whole).member) }

/// Returns true if `check` does in a forked child.
template <typename Check>
bool in_child(const Check& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Of two threads that make the first request of a process, one comes second.
TEST(FirstRequest, ThreadThatComesSecondGetsTheFirstOnesState) {
  Process& first = process();
  EXPECT_EQ(&detail::make_process(nullptr), &first);
}

TEST(ForkedChild, HasItsOwnEmptyProcessAndACopyOfInheritedState) {
  Process& parent = process();
  const Part wiped[] = {CG_PART(parent, hook),          CG_PART(parent, proxy),
                        CG_PART(parent, proxy_loader),  CG_PART(parent, record),
                        CG_PART(parent, python_frames), CG_PART(parent, exports),
                        CG_PART(parent, explain)};
  const Part copied[] = {CG_PART(inherited, hook), CG_PART(inherited, record),
                         CG_PART(inherited, explain), CG_PART(inherited, proxy_loader)};
  for (const Part& part : wiped) memset(part.at, 0xff, part.size);
  for (const Part& part : copied) memset(part.at, 0xff, part.size);
  for (const Part& part : wiped) {
    EXPECT_TRUE(in_child([&] {
      const auto offset = static_cast<char*>(part.at) - reinterpret_cast<char*>(&parent);
      return is_filled(part.at, part.size, 0) &&
             is_filled(reinterpret_cast<char*>(&process()) + offset, part.size, 0) &&
             &process() != &parent;
    })) << part.name;
    EXPECT_TRUE(is_filled(part.at, part.size, 0xff)) << part.name;
  }
  for (const Part& part : copied) {
    EXPECT_TRUE(in_child([&] {
      process();
      return is_filled(part.at, part.size, 0xff);
    })) << part.name;
  }
  for (const Part& part : wiped) memset(part.at, 0, part.size);
  for (const Part& part : copied) memset(part.at, 0, part.size);
}

TEST(ForkedChild, ControlOtherPagesAreCopied) {
  constexpr size_t kSize = 4096;
  void* page = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  memset(page, 0xff, kSize);
  EXPECT_FALSE(in_child([&] { return is_filled(page, kSize, 0); }));
  munmap(page, kSize);
}

}  // namespace
}  // namespace cudaguard
