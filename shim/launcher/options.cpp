// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/options.h"

#include <getopt.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <variant>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Command = Options::Command;
using Value = std::optional<std::string> Options::*;

constexpr char kFile[] = "FILE";
constexpr std::string_view kSeeHelp = "; see cudaguard --help";

/// One option. A flag takes no value, a list may be given several times, --fence's value is
/// optional.
struct Option {
  const char* name;
  const char* value;  ///< its name in the help page; null: it takes none
  const char* about;
  std::variant<bool Options::*, Value, std::vector<std::string> Options::*,
               std::optional<FenceWish> Options::*>
      to;
  std::optional<Variable> sets = {};
};
using Table = std::vector<Option>;

const Table& table_of(Command command) {
  static const Table run = {
      {"cpu", nullptr, "the program finds no CUDA device (the default)", &Options::cpu},
      {"gpus", "LIST", "it finds these GPUs and no others: 2,5 or GPU-... or MIG-...",
       &Options::gpus, Variable::kVisibleDevices},
      {"policy", "P", "FORCE_CPU, VALIDATE (a wrong index is explained), CLAMP, OFF",
       &Options::policy, Variable::kPolicy},
      {"children", "cpu", "processes that it starts find no CUDA device", &Options::children,
       Variable::kChildren},
      {"log", "L", "lines on stderr: off, error, deny (the default), all", &Options::log,
       Variable::kLog},
      {"report", kFile, "append JSON Lines records to FILE; %p: process id", &Options::report,
       Variable::kReport},
      {"fence", "[=HOW]",
       "the kernel refuses NVIDIA's requests, too: auto, require, off (the default)",
       &Options::fence},
      {"observe", nullptr,
       "let CUDA through (unless --cpu, --fence); at the end, who asked; else only errors",
       &Options::observe},
      {"no-presets", nullptr,
       "set no CUDA_VISIBLE_DEVICES, JAX_PLATFORMS, MPIR_CVAR_ENABLE_GPU, GST_REGISTRY_1_0",
       &Options::no_presets},
      {"print", nullptr, "print what would be set, as shell commands; start nothing",
       &Options::print},
      {"strict", nullptr, "refuse what is static or cannot be checked, instead of warning",
       &Options::strict},
  };
  static const Table doctor = {
      {"json", kFile, "write the same as JSON; -: to the standard output", &Options::json_file},
      {"force", nullptr, "overwrite FILE even if cudaguard has not written it", &Options::force},
  };
  static const Table verify = {
      {"allow", "PATTERN", "who may: a process, lib:NAME, module:NAME, line:FILE:LINE",
       &Options::allow},
      {"allow-incomplete", nullptr, "pass although CUDA attempts may have been missed",
       &Options::allow_incomplete},
      {"deny", "WHAT", "what fails: init (the default), nvml, opencl", &Options::deny},
      {"report", kFile, "append the records to FILE, too", &Options::report},
      {"fence", "[=HOW]",
       "the kernel refuses NVIDIA's requests, too: auto (the default), require, off",
       &Options::fence},
      {"trace", nullptr, "look at every program that is started (ptrace)", &Options::trace},
      {"json", kFile, "write the result as JSON; -: to the standard output", &Options::json_file},
      {"junit", kFile, "write the result as JUnit XML", &Options::junit_file},
      {"html", kFile, "write the result as one page", &Options::html_file},
      {"force", nullptr, "overwrite FILE even if cudaguard has not written it", &Options::force},
  };
  static const Table report = {
      {"by", "WHAT", "one row for each: exe, user, host, job, line", &Options::by},
      {"json", kFile, "write JSON; -: to the standard output", &Options::json_file},
      {"html", kFile, "write one page", &Options::html_file},
      {"force", nullptr, "overwrite FILE even if cudaguard has not written it", &Options::force},
  };
  if (command == Command::kDoctor) return doctor;
  if (command == Command::kVerify) return verify;
  return command == Command::kReport ? report : run;
}

bool is_flag(const Option& option) { return option.value == nullptr; }
bool is_fence(const Option& option) {
  return std::holds_alternative<std::optional<FenceWish> Options::*>(option.to);
}

[[noreturn]] void refuse(const std::string& why) { throw Refusal(kRefused, why); }

FenceWish fence_of(std::string_view word) {
  if (word == "auto") return FenceWish::kAuto;
  if (word == "require") return FenceWish::kRequire;
  if (word == "off") return FenceWish::kOff;
  refuse("--fence " + in_quotes(word) + " is not accepted (accepted: auto, require, off)");
}

/// `value`: null if none was given. `next`: the word after the option, or null.
void set(Options& options, const Option& option, const char* value, const char* next) {
  if (const auto* flag = std::get_if<bool Options::*>(&option.to)) {
    options.** flag = true;
  } else if (const auto* text = std::get_if<Value>(&option.to)) {
    if (option.value == kFile && value[0] == '-' && value[1] != '\0') {
      refuse("--" + std::string(option.name) + " " + in_quotes(value) +
             " looks like an option; give a file (of that name: ./" + printable(value) + ")");
    }
    options.** text = value;
  } else if (const auto* list = std::get_if<std::vector<std::string> Options::*>(&option.to)) {
    (options.**list).emplace_back(value);
  } else {
    const std::string_view word = next == nullptr ? "" : next;
    if (value == nullptr && (word == "auto" || word == "require" || word == "off")) {
      const std::string name(word);
      refuse("--fence has its word behind a '=': --fence=" + name +
             " (a program of that name: --fence -- " + name + ")");
    }
    options.fence = value == nullptr ? FenceWish::kAuto : fence_of(value);
  }
}

/// Takes the options of argv[1] on. Returns the number of the first word that is none, or of
/// --help.
int take_options(int argc, char** argv, Options& options, bool& help) {
  constexpr int kFirst = 256;  // above every character
  const Table& table = table_of(options.command);
  std::vector<option> known = {{"help", no_argument, nullptr, 'h'}};
  for (const Option& one : table) {
    const int kind = is_flag(one)    ? no_argument
                     : is_fence(one) ? optional_argument
                                     : required_argument;
    known.push_back({one.name, kind, nullptr, kFirst + static_cast<int>(&one - table.data())});
  }
  known.push_back({});
  std::set<const Option*> seen;
  opterr = 0;
  optind = 0;  // glibc: begin anew
  for (;;) {
    const char* const word = argv[std::max(optind, 1)];  // null at the end
    // '+': the first word that is no option is the program.
    const int found = getopt_long(argc, argv, "+:h", known.data(), nullptr);
    if (found == -1) return optind;
    if (found == 'h') {
      help = true;
      return optind;
    }
    const int number = (found == '?' || found == ':' ? optopt : found) - kFirst;
    const Option* const one = number < 0 ? nullptr : &table[static_cast<size_t>(number)];
    const std::string name(word, strcspn(word, "="));
    // getopt_long takes abbreviations, which a later option would make ambiguous.
    if (one == nullptr || name.substr(2) != one->name) {
      refuse("unknown option " + in_quotes(name) + std::string(kSeeHelp));
    }
    if (found == '?') refuse(name + " takes no value");
    const bool once = std::holds_alternative<Value>(one->to) || is_fence(*one);
    if (once && !seen.insert(one).second) refuse(name + " is given twice");
    if (found == ':') refuse(name + " needs a value: " + name + " " + one->value);
    set(options, *one, optarg, argv[optind]);
  }
}

void append_options(Command command, std::string& text) {
  constexpr size_t kColumn = 18;
  for (const Option& option : table_of(command)) {
    std::string left = std::string("  --") + option.name;
    if (!is_flag(option)) left.append(is_fence(option) ? "" : " ").append(option.value);
    if (left.size() >= kColumn) left.append("\n").append(kColumn, ' ');
    left.resize(std::max(left.size(), kColumn), ' ');
    text.append(left).append(option.about).append("\n");
  }
}

std::optional<Command> command_of(std::string_view word) {
  if (word == "run") return Command::kRun;
  if (word == "doctor") return Command::kDoctor;
  if (word == "verify") return Command::kVerify;
  if (word == "report") return Command::kReport;
  if (word == "--help" || word == "-h") return Command::kHelp;
  if (word == "--version") return Command::kVersion;
  return {};
}

/// The words after the options: what the command needs of them.
void check_words(const Options& options) {
  char** words = options.program;
  const bool none = *words == nullptr;
  if (options.command == Command::kDoctor) {
    if (none || words[1] == nullptr) return;
    refuse("doctor takes one program and none of its arguments, not " + in_quotes(words[1]) +
           (words[1][0] == '-' ? " (options go before it)" : ""));
  }
  if (!none || options.print) return;
  refuse(std::string(options.command == Command::kReport ? "no file given" : "no program given")
             .append(kSeeHelp));
}

}  // namespace

Options parse_options(int argc, char** argv) {
  if (argc < 2) refuse("no subcommand; cudaguard run program" + std::string(kSeeHelp));
  const std::string_view word = argv[1];
  const std::optional<Command> command = command_of(word);
  if (!command) {
    const char* what = word.starts_with("-") ? "unknown option " : "unknown subcommand ";
    refuse(what + in_quotes(word) + std::string(kSeeHelp));
  }
  Options options;
  options.command = *command;
  if (*command == Command::kHelp || *command == Command::kVersion) return options;
  bool help = false;
  options.program = argv + 1 + take_options(argc - 1, argv + 1, options, help);
  if (help) {
    options.help_of = std::exchange(options.command, Command::kHelp);
    return options;
  }
  check_words(options);
  return options;
}

std::string_view option_for(Variable variable, const Options& options) {
  for (const Option& option : table_of(Command::kRun)) {
    if (option.sets == variable && options.*std::get<Value>(option.to)) return option.name;
  }
  return {};
}

std::string help_text(Options::Command command) {
  std::string text;
  if (command == Command::kVerify) {
    text =
        "Usage: cudaguard verify [options] [--] program [arguments...]\n"
        "Runs a program without CUDA, waits for all that it starts, and says who asked for CUDA.\n"
        "Needs no GPU and no driver.\n"
        "\n";
    append_options(command, text);
    return text +
           "\n"
           "A pattern is a glob for a word of the process's command, its base name, or all of it:\n"
           "--allow 'train.py'. --allow and --deny may be given several times; --deny nvml,init.\n"
           "A process that was not guarded and has the driver open counts as one that touched "
           "CUDA;\n"
           "others that were not guarded are listed, and do not fail.\n"
           "Without CAP_SYS_ADMIN the fence sets no_new_privs: sudo and setuid programs inside\n"
           "keep your rights.\n"
           "Exit codes: 0 nobody touched CUDA, 1 somebody did, 2 nobody did but the program "
           "failed,\n"
           "3 INCOMPLETE: an attempt may have been missed, 125 nothing was verified.\n";
  }
  if (command == Command::kReport) {
    text =
        "Usage: cudaguard report [options] file|folder...\n"
        "Says who asked for CUDA, from the records of CUDAGUARD_REPORT.\n"
        "\n";
    append_options(command, text);
    return text;
  }
  text =
      "Usage: cudaguard run [options] [--] program [arguments...]\n"
      "       cudaguard doctor [--json FILE] [--force] [program]\n"
      "       cudaguard verify|report --help; cudaguard --help|--version\n"
      "run starts a program that finds no CUDA device, or only the GPUs that you choose. doctor: "
      "is it\n"
      "active here, can a program be guarded, does the driver answer? verify: did a program touch "
      "CUDA?\n"
      "\n";
  append_options(Command::kRun, text);
  text +=
      "\n"
      "Options end at the first word that is not one. A flag overrides CUDAGUARD_* in the "
      "environment.\n"
      "--fence holds for all that is started, for ever. Without CAP_SYS_ADMIN it sets "
      "no_new_privs:\n"
      "sudo and setuid programs inside keep your rights.\n"
      "The program keeps its process id, terminal, signals and exit code. cudaguard's own exit "
      "codes:\n"
      "125 refused, nothing was started; 126 the program cannot be run; 127 it was not found;\n"
      "doctor: 0 well, 1 guarded in part or something is wrong, 2 cannot be guarded.\n";
  return text;
}

}  // namespace cudaguard::launcher
