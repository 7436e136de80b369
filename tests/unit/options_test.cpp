// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "policy/text.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {
namespace {

using Command = Options::Command;

Options parse(std::vector<std::string> words) {
  static std::vector<std::string> kept;  // Options::program points into this vector
  static std::vector<char*> argv;
  kept = std::move(words);
  kept.insert(kept.begin(), "cudaguard");
  argv.clear();
  for (std::string& word : kept) argv.push_back(word.data());
  argv.push_back(nullptr);
  return parse_options(static_cast<int>(kept.size()), argv.data());
}

std::vector<std::string> program_of(const Options& options) {
  std::vector<std::string> words;
  for (char** word = options.program; *word != nullptr; ++word) words.emplace_back(*word);
  return words;
}

std::string refusal_of(const std::vector<std::string>& words) {
  try {
    parse(words);
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.code(), kRefused);
    return refusal.what();
  }
  return "";
}

using Words = std::vector<std::string>;

/// The words of "a,b" or "a, b".
Words split(std::string_view list) {
  Words words;
  while (!list.empty()) {
    const std::string_view word = take_entry(list);
    words.emplace_back(word.substr(word.starts_with(' ') ? 1 : 0));
  }
  return words;
}

TEST(Options, EndAtTheFirstWordThatIsNoOption) {
  const Options options = parse({"run", "--cpu", "prog", "--gpus", "1"});
  EXPECT_TRUE(options.cpu);
  EXPECT_FALSE(options.gpus);
  EXPECT_EQ(program_of(options), (Words{"prog", "--gpus", "1"}));
}

TEST(Options, EndAtTwoHyphens) {
  EXPECT_EQ(program_of(parse({"run", "--", "--cpu"})), Words{"--cpu"});
  EXPECT_EQ(program_of(parse({"run", "-"})), Words{"-"});
}

TEST(Options, TakeAValueThatLooksLikeAnOption) {
  EXPECT_EQ(*parse({"run", "--gpus", "--cpu", "prog"}).gpus, "--cpu");
  EXPECT_EQ(*parse({"run", "--gpus=-1", "prog"}).gpus, "-1");
  EXPECT_EQ(*parse({"run", "--gpus", "", "prog"}).gpus, "");
  EXPECT_EQ(*parse({"run", "--report=a=b", "prog"}).report, "a=b");
}

TEST(Options, FileThatLooksLikeAnOptionIsRefused) {
  const std::string like = " looks like an option; give a file (of that name: ./";
  EXPECT_EQ(refusal_of({"verify", "--json", "--", "prog"}), "--json \"--\"" + like + "--)");
  EXPECT_EQ(refusal_of({"report", "--html=-x", "file"}), "--html \"-x\"" + like + "-x)");
  EXPECT_EQ(refusal_of({"run", "--report", "--cpu", "prog"}),
            "--report \"--cpu\"" + like + "--cpu)");
  EXPECT_EQ(*parse({"verify", "--junit", "-", "prog"}).junit_file, "-");
  EXPECT_EQ(*parse({"verify", "--junit", "./-x", "prog"}).junit_file, "./-x");
}

TEST(Options, FenceTakesItsModeAfterAnEqualsSign) {
  EXPECT_EQ(parse({"run", "--fence", "prog"}).fence, FenceWish::kAuto);
  EXPECT_EQ(parse({"run", "--fence=require", "prog"}).fence, FenceWish::kRequire);
  EXPECT_EQ(parse({"run", "--fence=off", "prog"}).fence, FenceWish::kOff);
  EXPECT_EQ(parse({"run", "--fence=auto", "prog"}).fence, FenceWish::kAuto);
  EXPECT_EQ(parse({"run", "--fence=devices", "prog"}).fence, FenceWish::kDevices);
  EXPECT_EQ(parse({"verify", "--fence=devices,auto", "prog"}).fence, FenceWish::kDevicesAuto);
  EXPECT_EQ(parse({"verify", "prog"}).fence, std::nullopt);
  EXPECT_EQ(
      refusal_of({"run", "--fence", "require", "prog"}),
      "--fence takes its mode after \"=\": --fence=require (to run a program: --fence -- require)");
  EXPECT_EQ(
      refusal_of({"run", "--fence=never", "prog"}),
      "--fence \"never\" is not accepted (accepted: auto, require, devices, devices,auto, off)");
}

TEST(Options, OtherToolsNameOfAnOptionIsExplained) {
  for (const char* word : {"--quiet", "--silent"}) {
    EXPECT_EQ(refusal_of({"run", word, "prog"}),
              "unknown option \"" + std::string(word) +
                  "\"; did you mean --log=off? (see cudaguard run --help)");
  }
}

TEST(Options, HelpFitsInto80Columns) {
  for (const Page& page : pages()) {
    std::istringstream text(help_text(page.command));
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(line.size(), 80U) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

TEST(Options, ListsMayBeGivenSeveralTimes) {
  const Options options = parse({"verify", "--allow", "a", "--allow=b c", "prog"});
  EXPECT_EQ(options.allow, (Words{"a", "b c"}));
  EXPECT_EQ(refusal_of({"verify", "--json", "a", "--json", "b", "prog"}),
            "--json is given twice; see cudaguard verify --help");
  EXPECT_EQ(refusal_of({"run", "--fence", "--fence=off", "prog"}),
            "--fence is given twice; see cudaguard run --help");
}

TEST(Options, BelongToTheirCommand) {
  EXPECT_EQ(refusal_of({"run", "--allow", "x", "prog"}),
            "unknown option \"--allow\"; see cudaguard run --help");
  EXPECT_EQ(*parse({"verify", "--json", "x", "prog"}).json_file, "x");
  EXPECT_EQ(*parse({"report", "--json", "-", "x"}).json_file, "-");
  EXPECT_EQ(*parse({"doctor", "--json=x", "prog"}).json_file, "x");
  EXPECT_TRUE(parse({"report", "--force", "x"}).force);
  EXPECT_EQ(refusal_of({"run", "--force", "prog"}),
            "unknown option \"--force\"; see cudaguard run --help");
  EXPECT_EQ(refusal_of({"run", "--cpu=", "x"}), "--cpu takes no value; see cudaguard run --help");
}

TEST(Options, MissingValueIsNamed) {
  EXPECT_EQ(refusal_of({"run", "--gpus"}),
            "--gpus needs a value: --gpus LIST; see cudaguard run --help");
  EXPECT_EQ(refusal_of({"run", "--cpu", "--log"}),
            "--log needs a value: --log LEVEL; see cudaguard run --help");
  const std::string allow = "--allow needs a value: --allow PATTERN; see cudaguard verify --help";
  for (const char* word : {"--", "--strict", "--deny", "--json=x"}) {
    EXPECT_EQ(refusal_of({"verify", "--allow", word, "--", "make"}), allow) << word;
  }
  EXPECT_EQ(parse({"verify", "--allow=--strict", "make"}).allow, Words{"--strict"});
  EXPECT_EQ(parse({"verify", "--allow", "-m pytest*", "make"}).allow, Words{"-m pytest*"});
}

TEST(Options, UnknownSubcommandIsRefused) {
  EXPECT_EQ(parse({}).command, Command::kHelp);
  EXPECT_EQ(refusal_of({""}), "unknown command \"\"; see cudaguard --help");
  EXPECT_EQ(refusal_of({"help", "walk"}), "unknown command \"walk\"; see cudaguard --help");
  for (const char* word : {"rum", "rnu", "Run"}) {
    EXPECT_EQ(refusal_of({word, "x"}), "unknown command \"" + std::string(word) +
                                           "\"; did you mean run? (see cudaguard --help)");
  }
  EXPECT_EQ(refusal_of({"--bad", "run"}), "unknown option \"--bad\"; see cudaguard --help");
  for (const char* word : {"--version", "-V", "version"}) {
    EXPECT_EQ(parse({word}).command, Command::kVersion);
  }
}

TEST(Options, MissingSubcommandSuggestsTheWholeCommand) {
  const std::string unknown = "unknown command \"python3\"; did you mean cudaguard ";
  EXPECT_EQ(refusal_of({"python3", "x y.py"}), unknown + "run -- python3 'x y.py'?");
  EXPECT_EQ(refusal_of({"--", "python3"}),
            "\"--\" needs a command; did you mean cudaguard run -- python3?");
  const std::string gpus = "\"--gpus\" needs a command; did you mean cudaguard run --gpus 2 -- ";
  EXPECT_EQ(refusal_of({"--gpus", "2", "python3", "--cpu"}), gpus + "python3 --cpu?");
  EXPECT_EQ(refusal_of({"--gpus", "2", "--", "python3"}), gpus + "python3?");
  EXPECT_EQ(refusal_of({"--gpus", "2"}), gpus + "PROGRAM?");
  EXPECT_EQ(refusal_of({"--junit", "x", "make"}),
            "\"--junit\" needs a command; did you mean cudaguard verify --junit x -- make?");
  EXPECT_EQ(refusal_of({"--by", "user", "file"}),
            "\"--by\" needs a command; did you mean cudaguard report --by user file?");
  EXPECT_EQ(refusal_of({"--gpus"}), "--gpus needs a value: --gpus LIST; see cudaguard run --help");
}

TEST(Options, UnknownOptionsAreRefused) {
  EXPECT_EQ(refusal_of({"run", "-c", "prog"}), "unknown option \"-c\"; see cudaguard run --help");
  EXPECT_EQ(refusal_of({"run", "-cv", "prog"}), "unknown option \"-cv\"; see cudaguard run --help");
  EXPECT_EQ(refusal_of({"run", "--bad=1", "prog"}),
            "unknown option \"--bad\"; see cudaguard run --help");
}

TEST(Options, AreNotAbbreviated) {
  EXPECT_EQ(refusal_of({"run", "--gpu", "1", "prog"}),
            "unknown option \"--gpu\"; did you mean --gpus? (see cudaguard run --help)");
  EXPECT_EQ(refusal_of({"run", "--cpx", "1", "prog"}),
            "unknown option \"--cpx\"; did you mean --cpu? (see cudaguard run --help)");
  EXPECT_EQ(refusal_of({"run", "--p", "1", "prog"}),
            "unknown option \"--p\"; see cudaguard run --help");
}

TEST(Options, HelpBelongsToTheCommandBeforeIt) {
  EXPECT_EQ(parse({"-h"}).command, Command::kHelp);
  EXPECT_EQ(parse({"--help"}).command, Command::kHelp);
  EXPECT_EQ(parse({"help"}).help_of, Command::kHelp);
  EXPECT_EQ(parse({"help", "report"}).help_of, Command::kReport);
  EXPECT_EQ(parse({"-h", "run"}).help_of, Command::kRun);
  const Options options = parse({"verify", "--allow-incomplete", "--help"});
  EXPECT_EQ(options.command, Command::kHelp);
  EXPECT_EQ(options.help_of, Command::kVerify);
  EXPECT_EQ(parse({"run", "prog", "--help"}).command, Command::kRun);
}

TEST(Options, ProgramIsRequiredUnlessNothingStarts) {
  EXPECT_EQ(refusal_of({"run"}), "no program given; see cudaguard run --help");
  EXPECT_EQ(refusal_of({"verify", "--"}), "no program given; see cudaguard verify --help");
  EXPECT_EQ(refusal_of({"report"}), "no file given; see cudaguard report --help");
  EXPECT_EQ(program_of(parse({"run", "--print"})), Words{});
  EXPECT_EQ(program_of(parse({"doctor"})), Words{});
}

TEST(Options, DoctorTakesOnlyOneProgram) {
  EXPECT_EQ(program_of(parse({"doctor", "prog"})), Words{"prog"});
  EXPECT_EQ(refusal_of({"doctor", "prog", "x-"}),
            "doctor takes one program and none of its arguments, not \"x-\"");
  EXPECT_EQ(refusal_of({"doctor", "prog", "--json"}),
            "doctor takes one program and none of its arguments, not \"--json\" (options go "
            "before it)");
}

TEST(Options, IfHealthyTakesSecondsAndWords) {
  EXPECT_FALSE(parse({"run", "prog"}).if_healthy.has_value());
  const auto wish = [](const std::string& option) {
    return parse({"run", option.c_str(), "prog"}).if_healthy.value_or(HealthWish{});
  };
  EXPECT_EQ(wish("--if-healthy").limit, std::chrono::seconds(10));
  EXPECT_FALSE(wish("--if-healthy").require || wish("--if-healthy").fresh);
  EXPECT_EQ(wish("--if-healthy=3600").limit, std::chrono::seconds(3600));
  EXPECT_TRUE(wish("--if-healthy=5,require").require);
  EXPECT_TRUE(wish("--if-healthy=fresh,5").fresh);
  EXPECT_EQ(wish("--if-healthy=fresh,5").limit, std::chrono::seconds(5));
  EXPECT_EQ(refusal_of({"run", "--if-healthy", "10", "prog"}),
            "--if-healthy takes its value after \"=\": --if-healthy=10 (to run a program: "
            "--if-healthy -- 10)");
  for (const std::string value :
       {"", "0", "3601", "x", "1.5", "5,", "5,,x", "10,20", "99999999999", " 5", "-5"}) {
    EXPECT_EQ(refusal_of({"run", ("--if-healthy=" + value).c_str(), "prog"}),
              "--if-healthy \"" + value +
                  "\" is not accepted (accepted: seconds, 1 to 3600; require; fresh; with commas "
                  "between them)");
  }
}

TEST(Options, RowsNameCommandsAndWordsThatExist) {
  Words commands;
  for (const Page& page : pages()) {
    EXPECT_EQ(page.command, static_cast<Command>(commands.size())) << page.name;
    commands.emplace_back(page.name);
  }
  for (const OptionRow& option : kOptions) {
    for (const std::string& name : split(option.commands)) {
      EXPECT_EQ(std::ranges::count(commands, name), 1) << option.name << " names " << name;
    }
    // Help and completion must not disagree. `--children cpu` has its word in the value's name.
    const std::string shown = about(option) + option.value;
    for (const std::string& word : split(option.words)) {
      EXPECT_NE(shown.find(word), std::string::npos) << option.name << " lacks " << word;
    }
    EXPECT_TRUE(!option.sets ||
                std::holds_alternative<std::optional<std::string> Options::*>(option.to))
        << option.name;
  }
}

TEST(Options, OptionThatSetsAVariableIsNamed) {
  const Options options = parse({"run", "--gpus", "1", "prog"});
  EXPECT_EQ(option_for(Variable::kVisibleDevices, options), "gpus");
  EXPECT_EQ(option_for(Variable::kPolicy, options), "");
}

}  // namespace
}  // namespace cudaguard::launcher
