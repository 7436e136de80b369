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
        "-S ${HOME}/python3", "-S PATH=/opt python3"}) {
    EXPECT_EQ(started_by_env(argument), "") << argument;
  }
}

TEST(EnvLine, EnvTakesPreload_IsTrueIfEnvRemovesOrReplacesIt) {
  for (const char* argument : {"-",
                               "-i",
                               "-S -i python3",
                               "-S - python3",
                               "-iS python3",
                               "-vi",
                               "-S -vi python3",
                               "-S -u LD_PRELOAD python3",
                               "-S -uLD_PRELOAD python3",
                               "-S --unset LD_PRELOAD python3",
                               "-S --unset=LD_PRELOAD python3",
                               "-S --ignore-environment python3",
                               "-S LD_PRELOAD= python3",
                               "-S A=b LD_PRELOAD=/x.so python3",
                               "-S env -i python3",
                               "-S A=b /usr/bin/env -u LD_PRELOAD python3",
                               "-S-i python3",
                               "-S -C / -i python3",
                               "--split-string=-u\\_LD_PRELOAD\\_sh",
                               "--s=-i sh",
                               "-S -u\\_LD_PRELOAD\\_sh",
                               "-S -u\tLD_PRELOAD sh",
                               "-S \"-u\" 'LD_PRELOAD' sh",
                               "-S -u 'LD_PRE'LOAD sh",
                               "-S -\"u\"LD_PRELOAD sh",
                               "-vS-u\\_LD_PRELOAD\\_sh",
                               "-S --uns=LD_PRELOAD sh",
                               "-S --ignore-e sh",
                               "-S -S -i sh",
                               "-S -- A=b env -i sh",
                               "--unset=LD_PRELOAD"}) {
    EXPECT_TRUE(env_takes_preload(argument)) << argument;
  }
}

TEST(EnvLine, EnvTakesPreload_IsFalseIfEnvKeepsIt) {
  for (const char* argument : {"",
                               "python3",
                               "-S python3",
                               "-S python3 -i",
                               "-S python3 LD_PRELOAD=",
                               "-S A=b python3 -",
                               "-S -u HOME python3 -i",
                               "-S -uHOME python3",
                               "-S --unset=HOME python3",
                               "-S -C /i python3",
                               "-S --chdir=/ python3",
                               "-S sh \\c -i",
                               "-S # -i",
                               "-S -u 'LD_PRELOAD sh' sh",
                               "-S -- sh -i",
                               "-S --ignore-signal=INT sh",
                               "-S A='-i' sh",
                               "-S LD_PRELOADED=1 python3",
                               "-S env python3 -i",
                               "-vS python3"}) {
    EXPECT_FALSE(env_takes_preload(argument)) << argument;
  }
}

}  // namespace
}  // namespace cudaguard::launcher
