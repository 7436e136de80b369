// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <initializer_list>

#include "shim/launcher/findings/decide.h"
#include "shim/launcher/findings/model.h"
#include "shim/launcher/message.h"
#include "tests/unit/command_of.h"

namespace cudaguard::launcher {
namespace {

// tests/vectors has the patterns of libraries, modules and lines, results.txt those of a result.

Command command_with(std::initializer_list<std::string_view> words) {
  Command command;
  for (const std::string_view word : words) command.add(word);
  return command;
}

TEST(Allow, MatchesAWordItsBaseNameOrTheWholeCommand) {
  const Command command = command_of("/bin/python3 /srv/train.py --lr 1");
  for (const char* pattern : {"python3", "/bin/python3", "/srv/train.py", "train.py", "train.*",
                              "python3 */train*", "/bin/python3 /srv/train.py --lr 1"}) {
    EXPECT_TRUE(is_allowed({pattern}, command)) << pattern;
  }
  for (const char* pattern : {"python", "srv", "train", "3 /srv", "/bin", "bin/python3", ""}) {
    EXPECT_FALSE(is_allowed({pattern}, command)) << pattern;
  }
  EXPECT_TRUE(is_allowed({"other", "train.py"}, command));
  EXPECT_FALSE(is_allowed({}, command));
}

TEST(Allow, EmptyTextMatchesNothing) {
  EXPECT_FALSE(is_allowed({""}, command_of("python3 dir/")));
  EXPECT_FALSE(is_allowed({"[!a-z]*"}, command_of("python3 dir/")));
  EXPECT_FALSE(is_allowed({"*"}, {}));
}

TEST(Allow, WordMayHaveABlank) {
  const Command command = command_with({"./my tool", "/srv/my train.py"});
  for (const char* pattern : {"./my tool", "my tool", "my train.py", "/srv/my train.py",
                              "my tool /srv/my train.py", "./my tool /srv/my train.py"}) {
    EXPECT_TRUE(is_allowed({pattern}, command)) << pattern;
  }
  for (const char* pattern : {"train.py", "tool", "./my", "my", "/srv/my"}) {
    EXPECT_FALSE(is_allowed({pattern}, command)) << pattern;
  }
}

TEST(Allow, CutCommandMatchesOnlyWhatTheWholeOneWouldMatch) {
  Command cut = command_with({"./ask", "a.py", "/srv/train.py"});
  cut.is_cut = true;  // it may be "/srv/train.pyc --lr 1"
  for (const char* pattern : {"ask", "./ask", "a.py", "*.py", "ask a.py*", "./ask a.py /srv/*"}) {
    EXPECT_TRUE(is_allowed({pattern}, cut)) << pattern;
  }
  for (const char* pattern :
       {"train.py", "/srv/train.py", "ask a.py /srv/train.py", "./ask a.py /srv/train.p?",
        "ask a.py /srv/train.[!x]y", "ask a.py /srv/train.py\\*"}) {
    EXPECT_FALSE(is_allowed({pattern}, cut)) << pattern;
  }
  Command only = command_of("ask");
  only.is_cut = true;
  EXPECT_FALSE(is_allowed({"ask"}, only));
}

TEST(Allow, LineMayHaveTheDirectoriesOfNativeCode) {
  CallSite site;
  site.line = "app.c:3";
  site.stack.native = {{"/bin/app", 1, "train", "/home/u/src/app.c:3"}};
  for (const char* pattern : {"app.c:3", "src/app.c:3", "/home/u/src/app.c:3", "*/app.c:3"}) {
    EXPECT_TRUE(is_code_allowed({std::string("line:") + pattern}, site)) << pattern;
  }
  for (const char* pattern : {"rc/app.c:3", "src/app.c:4", "u/app.c:3"}) {
    EXPECT_FALSE(is_code_allowed({std::string("line:") + pattern}, site)) << pattern;
  }
}

TEST(Allow, RefusesEmptyPatterns) {
  for (const char* pattern : {"", "lib:", "module:", "line:", "program:"}) {
    EXPECT_THROW(check_patterns({"train.py", pattern}), Refusal) << pattern;
  }
  EXPECT_NO_THROW(
      check_patterns({"train.py", "lib:a", "module:a", "line:a.py:1", "program:a", "other:"}));
}

TEST(Allow, PatternForCodeMatchesNoProcess) {
  EXPECT_FALSE(is_allowed({"lib:x", "module:x", "line:x", "program:x"},
                          command_of("lib:x module:x line:x program:x")));
}

TEST(Allow, MatchesAProgramOrItsBaseName) {
  for (const char* pattern : {"program:stat", "program:./bin/stat", "program:st*", "program:*"}) {
    EXPECT_TRUE(is_program_allowed({"other", pattern}, "./bin/stat")) << pattern;
  }
  for (const char* pattern : {"program:bin", "program:sta", "stat", "./bin/stat", "lib:stat"}) {
    EXPECT_FALSE(is_program_allowed({pattern}, "./bin/stat")) << pattern;
  }
  EXPECT_FALSE(is_program_allowed({"program:*"}, ""));  // the program is unknown
  EXPECT_FALSE(is_code_allowed({"program:*"}, CallSite()));
}

TEST(Allow, NoPatternMatchesUnknownCode) {
  for (const char* pattern : {"lib:*", "module:*", "line:*"}) {
    EXPECT_FALSE(is_code_allowed({pattern}, CallSite())) << pattern;
  }
}

}  // namespace
}  // namespace cudaguard::launcher
