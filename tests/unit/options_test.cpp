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
  EXPECT_EQ(program_of(parse({"run", "--", "--cpu"})), Words{"--cpu"});
  EXPECT_EQ(program_of(parse({"run", "-"})), Words{"-"});
  EXPECT_EQ(program_of(parse({"run", "--print"})), Words{});
  EXPECT_EQ(program_of(parse({"doctor"})), Words{});
  EXPECT_EQ(program_of(parse({"doctor", "prog"})), Words{"prog"});
}

TEST(Options, TakeTheirValues) {
  EXPECT_EQ(*parse({"run", "--gpus", "--cpu", "prog"}).gpus, "--cpu");
  EXPECT_EQ(*parse({"run", "--gpus=-1", "prog"}).gpus, "-1");
  EXPECT_EQ(*parse({"run", "--gpus", "", "prog"}).gpus, "");
  EXPECT_EQ(*parse({"run", "--report=a=b", "prog"}).report, "a=b");
  EXPECT_EQ(*parse({"verify", "--json", "x", "prog"}).json_file, "x");
  EXPECT_EQ(*parse({"report", "--json", "-", "x"}).json_file, "-");
  EXPECT_EQ(*parse({"doctor", "--json=x", "prog"}).json_file, "x");
  EXPECT_EQ(*parse({"verify", "--junit", "-", "prog"}).junit_file, "-");
  EXPECT_EQ(*parse({"verify", "--junit", "./-x", "prog"}).junit_file, "./-x");
  EXPECT_TRUE(parse({"report", "--force", "x"}).force);
  EXPECT_EQ(parse({"verify", "--allow", "a", "--allow=b c", "prog"}).allow, (Words{"a", "b c"}));
  EXPECT_EQ(parse({"verify", "--allow=--strict", "make"}).allow, Words{"--strict"});
  EXPECT_EQ(parse({"verify", "--allow", "-m pytest*", "make"}).allow, Words{"-m pytest*"});
}

TEST(Options, WrongCommandLinesAreRefused) {
  const std::string unknown = "unknown option \"";
  const std::string of_run = "; see cudaguard run --help";
  const std::string like = " looks like an option; give a file (of that name: ./";
  const std::string allow = "--allow needs a value: --allow PATTERN; see cudaguard verify --help";
  const std::string gpus = "\"--gpus\" needs a command; did you mean cudaguard run --gpus 2 -- ";
  const std::string doctor = "doctor takes one program and none of its arguments, not \"";
  const std::pair<Words, std::string> cases[] = {
      {{"run", "--allow", "x", "prog"}, unknown + "--allow\"" + of_run},
      {{"run", "--force", "prog"}, unknown + "--force\"" + of_run},
      {{"run", "-c", "prog"}, unknown + "-c\"" + of_run},
      {{"run", "-cv", "prog"}, unknown + "-cv\"" + of_run},
      {{"run", "--bad=1", "prog"}, unknown + "--bad\"" + of_run},
      {{"--bad", "run"}, unknown + "--bad\"; see cudaguard --help"},
      // They are not abbreviated.
      {{"run", "--p", "1", "prog"}, unknown + "--p\"" + of_run},
      {{"run", "--gpu", "1", "prog"},
       unknown + "--gpu\"; did you mean --gpus? (see cudaguard run --help)"},
      {{"run", "--cpx", "1", "prog"},
       unknown + "--cpx\"; did you mean --cpu? (see cudaguard run --help)"},
      // Other tools have these.
      {{"run", "--quiet", "prog"},
       unknown + "--quiet\"; did you mean --log=off? (see cudaguard run --help)"},
      {{"run", "--silent", "prog"},
       unknown + "--silent\"; did you mean --log=off? (see cudaguard run --help)"},
      {{"run", "--cpu=", "x"}, "--cpu takes no value" + of_run},
      {{"run", "--gpus"}, "--gpus needs a value: --gpus LIST" + of_run},
      {{"--gpus"}, "--gpus needs a value: --gpus LIST" + of_run},
      {{"run", "--cpu", "--log"}, "--log needs a value: --log LEVEL" + of_run},
      {{"verify", "--allow", "--", "--", "make"}, allow},
      {{"verify", "--allow", "--strict", "--", "make"}, allow},
      {{"verify", "--allow", "--json=x", "--", "make"}, allow},
      {{"verify", "--json", "a", "--json", "b", "prog"},
       "--json is given twice; see cudaguard verify --help"},
      {{"run", "--fence", "--fence=off", "prog"}, "--fence is given twice" + of_run},
      {{"verify", "--json", "--", "prog"}, "--json \"--\"" + like + "--)"},
      {{"report", "--html=-x", "file"}, "--html \"-x\"" + like + "-x)"},
      {{"run", "--report", "--cpu", "prog"}, "--report \"--cpu\"" + like + "--cpu)"},
      {{"run"}, "no program given" + of_run},
      {{"verify", "--"}, "no program given; see cudaguard verify --help"},
      {{"report"}, "no file given; see cudaguard report --help"},
      {{"doctor", "prog", "x-"}, doctor + "x-\""},
      {{"doctor", "prog", "--json"}, doctor + "--json\" (options go before it)"},
      {{""}, "unknown command \"\"; see cudaguard --help"},
      {{"help", "walk"}, "unknown command \"walk\"; see cudaguard --help"},
      {{"rnu", "x"}, "unknown command \"rnu\"; did you mean run? (see cudaguard --help)"},
      {{"Run", "x"}, "unknown command \"Run\"; did you mean run? (see cudaguard --help)"},
      // A command line without a command suggests the whole one.
      {{"python3", "x y.py"},
       "unknown command \"python3\"; did you mean cudaguard run -- python3 'x y.py'?"},
      {{"--", "python3"}, "\"--\" needs a command; did you mean cudaguard run -- python3?"},
      {{"--gpus", "2", "python3", "--cpu"}, gpus + "python3 --cpu?"},
      {{"--gpus", "2", "--", "python3"}, gpus + "python3?"},
      {{"--gpus", "2"}, gpus + "PROGRAM?"},
      {{"--junit", "x", "make"},
       "\"--junit\" needs a command; did you mean cudaguard verify --junit x -- make?"},
      {{"--by", "user", "file"},
       "\"--by\" needs a command; did you mean cudaguard report --by user file?"},
  };
  for (const auto& [words, refusal] : cases) EXPECT_EQ(refusal_of(words), refusal);
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

TEST(Options, HelpFitsInto80Columns) {
  for (const Page& page : pages()) {
    std::istringstream text(help_text(page.command));
    for (std::string line; std::getline(text, line);) {
      EXPECT_LE(line.size(), 80U) << line;
      EXPECT_FALSE(line.ends_with(' ')) << line;
    }
  }
}

TEST(Options, HelpBelongsToTheCommandBeforeIt) {
  EXPECT_EQ(parse({}).command, Command::kHelp);
  for (const char* word : {"--version", "-V", "version"}) {
    EXPECT_EQ(parse({word}).command, Command::kVersion);
  }
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
