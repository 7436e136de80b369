// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "shim/launcher/elf/program.h"

namespace cudaguard::launcher {
namespace {

TEST(EnvLine, StartedByEnv_IsTheProgram) {
  EXPECT_EQ(started_by_env("python3"), "python3");
  EXPECT_EQ(started_by_env("python 3"), "python 3");  // the kernel passes one word
  EXPECT_EQ(started_by_env("-S python3 -u"), "python3");
  EXPECT_EQ(started_by_env("-Spython3"), "python3");
  EXPECT_EQ(started_by_env("-S A=b  CC=d python3 A=c"), "python3");
  EXPECT_EQ(started_by_env("-S env -i python3"), "env");
  EXPECT_EQ(started_by_env(std::string("-S A=b\tpython3\t-u")), "python3");
}

TEST(EnvLine, StartedByEnv_IsEmptyIfUncertain) {
  for (const char* argument :
       {"", "-i", "A=b", "-S", "-S ", "-S -i python3", "-S A=b", "-v python3", "-S \"python3\"",
        "-S ${HOME}/python3", "-S PATH=/opt python3", "-S LD_PRELOAD= python3",
        "--split-string=-u\\_LD_PRELOAD\\_sh", "-S A=b LD_PRELOAD=/x.so python3", "-"}) {
    EXPECT_EQ(started_by_env(argument), "") << argument;
  }
}

}  // namespace
}  // namespace cudaguard::launcher
