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

TEST(ScriptLine, NameThatGoesOnAfterTheFirst256Bytes_IsNoInterpreter) {
  const auto line = [](size_t size, const char* end) {
    return ("#!/" + std::string(size - 1, 'i') + end).substr(0, 256);
  };
  for (const char* end : {"\n", " \n", " -u\n", "\t-u\n", ""}) {
    EXPECT_EQ(read_script(line(253, end)).interpreter.size(), 253U) << end;
    EXPECT_EQ(read_script(line(254, end)).interpreter, "") << end;
  }
  EXPECT_EQ(read_script("#! /bin/sh" + std::string(246, ' ')).interpreter, "/bin/sh");
  EXPECT_EQ(read_script("#! /bin/sh" + std::string(238, ' ') + " /bin/sh").interpreter, "/bin/sh");
}

}  // namespace
}  // namespace cudaguard::launcher
