// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/options.h"

#include <getopt.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "policy/device_list.h"
#include "policy/text.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

using Command = Options::Command;
using Value = std::optional<std::string> Options::*;

constexpr Page kPages[] = {
    {Command::kRun, "run", "[OPTION...] [--] PROGRAM [ARGUMENT...]",
     "run a program without CUDA, or with certain GPUs only",
     "Runs PROGRAM without CUDA, or with only the GPUs that you choose.",
     "Options end at the first word that is not an option. An option overrides its variable "
     "CUDAGUARD_*.\n"
     "Policies: FORCE_CPU hides CUDA. VALIDATE allows it and explains wrong GPU indices. CLAMP "
     "also corrects indices that are too high. NO_CONTEXT allows queries only. OFF turns the "
     "guard off.\n"
     "If the driver is not healthy, --if-healthy=S,require starts nothing.\n"
     "--if-healthy=S,fresh ignores an answer of the last 60 seconds.\n"
     "The presets hide GPUs from frameworks: CUDA_VISIBLE_DEVICES, JAX_PLATFORMS, "
     "MPIR_CVAR_ENABLE_GPU and GST_REGISTRY_1_0. ASAN_OPTIONS gets an option by which programs "
     "with gcc's AddressSanitizer accept the guard.\n"
     "The fence is permanent for PROGRAM and all its descendants. Without CAP_SYS_ADMIN it "
     "sets no_new_privs: sudo and setuid programs inside gain no rights.\n"
     "With --fence=devices, mount, bwrap, rootless Podman, io_uring, and gdb -p on outside "
     "processes fail.\n"
     "Exit codes: PROGRAM's own; 125 refused, nothing was started; 126 PROGRAM cannot be run; "
     "127 PROGRAM was not found.\n"},
    {Command::kVerify, "verify", "[OPTION...] [--] PROGRAM [ARGUMENT...]",
     "run a program without CUDA, and fail if any of its processes asked for CUDA",
     "Runs PROGRAM without CUDA, waits for all its processes, and reports those that asked for "
     "CUDA.",
     "PATTERN is a glob. It matches a word of a process's command, the base name of a word, or "
     "the whole command. You can repeat --allow and --deny.\n"
     "With --deny=context, queries reach the driver, which must have a GPU, and each context is "
     "refused (policy NO_CONTEXT).\n"
     "verify needs no GPU and no driver, except to see what static programs ask for. Without "
     "CAP_SYS_ADMIN the fence sets no_new_privs: sudo and setuid programs inside gain no rights.\n"
     "Exit codes: 0 no CUDA use; 1 CUDA use; 2 no CUDA use, but PROGRAM failed; 3 INCOMPLETE: "
     "an attempt may have been missed; 125 nothing was verified.\n"},
    {Command::kReport, "report", "[OPTION...] FILE|DIRECTORY...",
     "summarise the records of finished programs",
     "Summarises the records that --report or CUDAGUARD_REPORT collected.",
     "The file - is the standard input.\n"
     "Exit codes: 0 done; 125 a file cannot be read or written.\n"},
    {Command::kDoctor, "doctor", "[OPTION...] [PROGRAM]",
     "check the machine, and whether a program can be guarded",
     "Checks cudaguard and the driver, and if you name PROGRAM, whether it can be guarded.",
     "PROGRAM is not started.\n"
     "Exit codes: 0 nothing is wrong; 1 guarded in part, or something is wrong; 2 cannot be "
     "guarded; 125 doctor's own error; 126 PROGRAM cannot be run; 127 PROGRAM was not found.\n"},
    {Command::kSystem, "system", "enable|disable|status|check [OPTION...] [LIBRARY|FILE]",
     "guard every program of a machine",
     "Guards every program of a machine, ends that, lists which processes are guarded, or checks "
     "rules.",
     "enable adds the guard to /etc/ld.so.preload, and disable removes it. Both keep the lines of "
     "other software. enable first starts programs such as sh, ls and sshd with the guard; with "
     "--root, these are programs of DIR. Programs that run stay as they are: status lists those "
     "that must be restarted.\n"
     "check reads /etc/cudaguard.conf as the guard does, or FILE, and prints each mistake.\n"
     "LIBRARY is the path of another guard than this command's own.\n"
     "Exit codes: 0 done; 1 (status) not every program is guarded that can be, (check) there is "
     "a mistake; 125 refused or failed.\n"},
    {Command::kHelp, "help", "[COMMAND]", "print this list, or the help of a command", "", ""},
    {Command::kVersion, "version", "", "print the version", "", ""},
};

/// In the order of Options::Action.
constexpr const char* kActions[] = {"enable", "disable", "status", "check"};

const Page& page_of(Command command) { return kPages[static_cast<size_t>(command)]; }

const Page* page_named(std::string_view name) {
  const auto* const found =
      std::ranges::find(kPages, name, [](const Page& page) { return std::string_view(page.name); });
  return found == std::end(kPages) ? nullptr : found;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Page& page : kPages) names.emplace_back(page.name);
  return names;
}

std::string see_help(Command command) {
  const std::string name =
      command == Command::kHelp ? "" : std::string(page_of(command).name) + " ";
  return "see cudaguard " + name + "--help";
}

bool is_flag(const OptionRow& option) { return *option.value == '\0'; }
bool has_optional_value(const OptionRow& option) { return *option.value == '['; }

[[noreturn]] void refuse(const std::string& why) { throw Refusal(kRefused, why); }

constexpr std::pair<std::string_view, FenceWish> kFenceModes[] = {
    {"auto", FenceWish::kAuto},       {"require", FenceWish::kRequire},
    {"devices", FenceWish::kDevices}, {"devices,auto", FenceWish::kDevicesAuto},
    {"off", FenceWish::kOff},
};

const FenceWish* fence_mode(std::string_view word) {
  for (const auto& [name, wish] : kFenceModes) {
    if (word == name) return &wish;
  }
  return nullptr;
}

FenceWish fence_of(std::string_view word) {
  if (const FenceWish* wish = fence_mode(word); wish != nullptr) return *wish;
  refuse("--fence " + in_quotes(word) +
         " is not accepted (accepted: auto, require, devices, devices,auto, off)");
}

HealthWish health_of(const char* value) {
  HealthWish wish;
  bool timed = false;
  std::string_view rest = value;
  for (bool last = false; !last;) {
    const std::string_view word = take_entry(rest, last);
    if (word == "require") {
      wish.require = true;
    } else if (word == "fresh") {
      wish.fresh = true;
    } else if (seconds_of(word) != 0 && !timed) {
      timed = true;
      wish.limit = std::chrono::seconds(seconds_of(word));
    } else {
      refuse("--if-healthy " + in_quotes(value) +
             " is not accepted (accepted: seconds, 1 to 3600; require; fresh; with commas "
             "between them)");
    }
  }
  return wish;
}

/// `value` is null if the user gave none. `next` is the word after the option, or null.
void set(Options& options, const OptionRow& option, const char* value, const char* next) {
  const std::string word = next == nullptr ? "" : next;
  if (const auto* flag = std::get_if<bool Options::*>(&option.to)) {
    options.** flag = true;
  } else if (const auto* text = std::get_if<Value>(&option.to)) {
    if (option.value == std::string_view("FILE") && value[0] == '-' && value[1] != '\0') {
      refuse("--" + std::string(option.name) + " " + in_quotes(value) +
             " looks like an option; give a file (of that name: ./" + printable(value) + ")");
    }
    options.** text = value == nullptr ? option.by_default : value;
  } else if (const auto* list = std::get_if<std::vector<std::string> Options::*>(&option.to)) {
    (options.**list).emplace_back(value);
  } else if (std::holds_alternative<std::optional<HealthWish> Options::*>(option.to)) {
    if (value == nullptr && (word == "require" || word == "fresh" ||
                             word.substr(0, 1).find_first_of("0123456789") == 0)) {
      refuse("--if-healthy takes its value after \"=\": --if-healthy=" + printable(word) +
             " (to run a program: --if-healthy -- " + printable(word) + ")");
    }
    options.if_healthy = value == nullptr ? HealthWish() : health_of(value);
  } else {
    if (value == nullptr && fence_mode(word) != nullptr) {
      refuse("--fence takes its mode after \"=\": --fence=" + word +
             " (to run a program: --fence -- " + word + ")");
    }
    options.fence = value == nullptr ? FenceWish::kAuto : fence_of(value);
  }
}

/// `kind` is "option" (for kHelp, including the options of run) or "command".
[[noreturn]] void refuse_unknown(const std::string& kind, const std::string& word,
                                 Command command) {
  std::vector<std::string> known = command_names();
  if (kind == "option") {
    known = {"--help"};
    if (command == Command::kHelp) known.emplace_back("--version");
    const Command owner = command == Command::kHelp ? Command::kRun : command;
    for (const OptionRow* option : options_of(page_of(owner))) {
      known.push_back("--" + std::string(option->name));
    }
  }
  std::string near = did_you_mean(word, known, kind == "option" ? 2 : 0);
  const bool has_log = command == Command::kHelp || command == Command::kRun;
  if (has_log && (word == "--quiet" || word == "--silent")) near = "; did you mean --log=off?";
  const std::string see = see_help(command);
  refuse("unknown " + kind + " " + in_quotes(word) +
         (near.empty() ? "; " + see : near + " (" + see + ")"));
}

/// True for "--" and for one of these options.
bool is_option(const std::string& word, const std::vector<const OptionRow*>& rows) {
  const std::string name = word.substr(0, word.find('='));
  return name == "--" || std::any_of(rows.begin(), rows.end(), [&](const OptionRow* row) {
           return name == std::string("--") + row->name;
         });
}

/// Takes the options from argv[1] on. Returns the index of the first word that is no option, or of
/// --help.
int take_options(int argc, char** argv, Options& options, bool& help) {
  constexpr int kFirst = 256;  // larger than every character
  const std::vector<const OptionRow*> rows = options_of(page_of(options.command));
  std::vector<option> known = {{"help", no_argument, nullptr, 'h'}};
  for (const OptionRow* one : rows) {
    const int kind = is_flag(*one)              ? no_argument
                     : has_optional_value(*one) ? optional_argument
                                                : required_argument;
    known.push_back({one->name, kind, nullptr, kFirst + static_cast<int>(known.size()) - 1});
  }
  known.push_back({});
  std::set<const OptionRow*> seen;
  const auto refuse_use = [&](const std::string& name, const std::string& why) {
    refuse(name + " " + why + "; " + see_help(options.command));
  };
  opterr = 0;
  optind = 0;  // makes glibc start again
  for (;;) {
    const char* const word = argv[std::max(optind, 1)];  // null at the end
    // '+' ends the options at the first other word, which is the program.
    const int found = getopt_long(argc, argv, "+:h", known.data(), nullptr);
    if (found == -1) return optind;
    if (found == 'h') {
      help = true;
      return optind;
    }
    const int number = (found == '?' || found == ':' ? optopt : found) - kFirst;
    const OptionRow* const one = number < 0 ? nullptr : rows[static_cast<size_t>(number)];
    const std::string name(word, strcspn(word, "="));
    if (name == "--help") refuse_use(name, "takes no value");
    // getopt_long accepts abbreviations, which a later option would make ambiguous.
    if (one == nullptr || name.substr(2) != one->name) {
      refuse_unknown("option", name, options.command);
    }
    if (found == '?') refuse_use(name, "takes no value");
    const bool once = std::holds_alternative<Value>(one->to) || has_optional_value(*one);
    if (once && !seen.insert(one).second) refuse_use(name, "is given twice");
    // Any text can be a pattern, so --allow --strict would lose --strict.
    const bool takes_next = std::holds_alternative<std::vector<std::string> Options::*>(one->to) &&
                            optarg == argv[optind - 1] && is_option(optarg, rows);
    if (found == ':' || takes_next) {
      refuse_use(name, std::string("needs a value: ").append(name).append(" ").append(one->value));
    }
    set(options, *one, optarg, argv[optind]);
  }
}

std::string left_of(const OptionRow& option) {
  std::string left = std::string("  --") + option.name;
  if (!is_flag(option)) left.append(has_optional_value(option) ? "" : " ").append(option.value);
  return left + "  ";
}

constexpr size_t kHelpColumns = 80;

/// Puts `left` into a column of this width.
void append_row(std::string& text, std::string left, size_t column, const std::string& about) {
  left.resize(column, ' ');
  add_wrapped(text, left, about, kHelpColumns);
}

/// The command that argv may mean, if an option or a program comes first; otherwise empty. Throws
/// Refusal for wrong options.
std::string meant(int argc, char** argv) {
  const std::string_view word = argv[1];
  const std::string_view name = word.substr(0, word.find('='));
  const Page* owner = word == "--" || !word.starts_with("-") ? &page_of(Command::kRun) : nullptr;
  for (const Page& page : kPages) {
    for (const OptionRow* option : options_of(page)) {
      if (owner == nullptr && name == "--" + std::string(option->name)) owner = &page;
    }
  }
  if (owner == nullptr || word.empty()) return "";
  Options options;
  options.command = owner->command;
  bool help = false;
  const int end = take_options(argc, argv, options, help);
  std::string text = std::string("cudaguard ") + owner->name;
  const bool starts = owner->command == Command::kRun || owner->command == Command::kVerify;
  for (int i = 1; i <= argc; ++i) {
    if (i == end && starts) text += " --";
    if (i < argc && (i >= end || argv[i] != std::string_view("--"))) {
      text += " " + shell_quoted(argv[i]);
    }
  }
  return text + (starts && end == argc ? " PROGRAM" : "");
}

[[noreturn]] void refuse_word(int argc, char** argv) {
  const bool option = argv[1][0] == '-';
  const std::string word(argv[1], option ? strcspn(argv[1], "=") : strlen(argv[1]));
  const bool guess = option || did_you_mean(word, command_names()).empty();
  const std::string command = guess ? meant(argc, argv) : "";
  if (command.empty()) refuse_unknown(option ? "option" : "command", word, Command::kHelp);
  refuse((option ? in_quotes(word) + " needs a command" : "unknown command " + in_quotes(word)) +
         "; did you mean " + printable(command) + "?");
}

/// Takes the word after "system".
void take_action(const char* word, Options& options) {
  const std::string name = word == nullptr ? "" : word;
  const auto* const found = std::ranges::find(kActions, name);
  if (found == std::end(kActions)) {
    refuse((name.empty() ? "no action after \"system\"" : "unknown action " + in_quotes(name)) +
           "; see cudaguard system --help");
  }
  options.action = static_cast<Options::Action>(found - std::begin(kActions));
}

/// Checks the words after the options against what the command needs.
void check_words(const Options& options) {
  char** words = options.program;
  const bool none = *words == nullptr;
  if (options.command == Command::kDoctor) {
    if (options.gpu && !none) refuse("doctor --gpu takes no program, not " + in_quotes(*words));
    if (none || words[1] == nullptr) return;
    refuse("doctor takes one program and none of its arguments, not " + in_quotes(words[1]) +
           (words[1][0] == '-' ? " (options go before it)" : ""));
  }
  if (options.command == Command::kSystem) {
    const bool check = options.action == Options::Action::kCheck;
    const bool asks = options.asked_program || options.asked_args || options.asked_user ||
                      options.asked_cgroup || !options.asked_groups.empty();
    if (asks && !check) {
      refuse("--program, --args, --user, --group and --cgroup are only for check; " +
             see_help(options.command));
    }
    if (options.spool && options.action != Options::Action::kEnable) {
      refuse("--spool is for system enable; see cudaguard system --help");
    }
    if (none || words[1] == nullptr) return;
    refuse(std::string("system takes one ") + (check ? "file" : "library") + ", not " +
           in_quotes(words[1]) + (words[1][0] == '-' ? " (options go before it)" : ""));
  }
  if (!none || options.print) return;
  refuse(
      std::string(options.command == Command::kReport ? "no file given; " : "no program given; ") +
      see_help(options.command));
}

}  // namespace

std::span<const Page> pages() { return kPages; }

std::vector<const OptionRow*> options_of(const Page& page) {
  std::vector<const OptionRow*> rows;
  for (const OptionRow& option : kOptions) {
    if (place_of_entry(option.commands, page.name) != std::string_view::npos) {
      rows.push_back(&option);
    }
  }
  return rows;
}

std::string about(std::string help, const char* words) {
  return help.ends_with(":") ? help.append(" ").append(words) : help;
}

Options parse_options(int argc, char** argv) {
  Options options;
  if (argc < 2) return options;
  const std::string_view word = argv[1];
  const Page* page = word == "--help" || word == "-h"      ? &page_of(Command::kHelp)
                     : word == "--version" || word == "-V" ? &page_of(Command::kVersion)
                                                           : page_named(word);
  if (page == nullptr) refuse_word(argc, argv);
  options.command = page->command;
  if (page->command == Command::kVersion) return options;
  if (page->command == Command::kHelp) {
    const Page* about = argc > 2 ? page_named(argv[2]) : page;
    if (about == nullptr) refuse_unknown("command", argv[2], Command::kHelp);
    options.help_of = about->command;
    return options;
  }
  bool help = false;
  const bool action = page->command == Command::kSystem && argc > 2 && argv[2][0] != '-';
  const int first = action ? 2 : 1;  // take_options() passes over this word
  options.program = argv + first + take_options(argc - first, argv + first, options, help);
  if (!help && page->command == Command::kSystem) take_action(action ? argv[2] : nullptr, options);
  if (help) {
    options.help_of = std::exchange(options.command, Command::kHelp);
    return options;
  }
  check_words(options);
  return options;
}

uint32_t seconds_of(std::string_view text) {
  const bool digits = text.find_first_not_of("0123456789") == std::string_view::npos;
  const uint32_t number = digits ? number_of(text) : 0;
  return number <= 3600 ? number : 0;
}

const std::optional<std::string>& value_of(const OptionRow& option, const GuardSettings& settings) {
  using Setting = std::optional<std::string> GuardSettings::*;
  return settings.*static_cast<Setting>(std::get<Value>(option.to));
}

std::string_view option_for(Variable variable, const GuardSettings& settings) {
  for (const OptionRow& option : kOptions) {
    if (option.sets == variable && value_of(option, settings)) return option.name;
  }
  return {};
}

std::string help_text(Command command) {
  const Page& page = page_of(command);
  std::string text;
  const std::vector<const OptionRow*> options = options_of(page);
  if (options.empty()) {
    text =
        "Usage: cudaguard COMMAND [OPTION...] [WORD...]\n"
        "Runs programs without CUDA, or with only the GPUs that you choose.\n\nCommands:\n";
    for (const Page& one : kPages) append_row(text, std::string("  ") + one.name, 11, one.about);
    return text +
           "\nExamples:\n"
           "  cudaguard run -- python3 eval.py\n"
           "  cudaguard run --gpus 2,5 -- python3 train.py\n"
           "  cudaguard verify -- pytest tests\n"
           "\n\"cudaguard COMMAND --help\" lists the options of a command.\n";
  }
  text = std::string("Usage: cudaguard ") + page.name + " " + page.words + "\n";
  add_wrapped(text, "", page.summary, kHelpColumns);
  text += "\n";
  size_t column = 0;
  for (const OptionRow* option : options) column = std::max(column, left_of(*option).size());
  for (const OptionRow* option : options) {
    const std::string by_default =
        *option->by_default == '\0' ? "" : std::string(" [default: ") + option->by_default + "]";
    append_row(text, left_of(*option), column, about(*option) + by_default);
  }
  text += "\n";
  for (std::string_view notes = page.notes; !notes.empty();) {
    const std::string_view note = head(notes, notes.find('\n'));
    add_wrapped(text, "", note, kHelpColumns);
    notes = tail(notes, note.size() + 1);
  }
  return text;
}

}  // namespace cudaguard::launcher
