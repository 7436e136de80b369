// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <utility>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr std::string_view kSeeHelp = "; see cudaguard --help";

void declare_doctor(CLI::App& app, Options& options) {
  app.set_help_flag();
  app.add_flag("--json", options.json, "of doctor: the same as JSON");
}

/// Its value comes behind a '=' or not at all: what follows is the program.
void declare_fence(CLI::App& app, Options& options, const char* about) {
  app.add_option("--fence", options.fence, about)->type_name("[=HOW]")->expected(0, 1);
}

void declare_run(CLI::App& app, Options& options) {
  app.set_help_flag();
  app.add_flag("--cpu", options.cpu, "the program finds no CUDA device (the default)");
  for (const ValueOption& option : kValueOptions) {
    app.add_option(option.flag, options.*option.value, option.about)->type_name(option.kind);
  }
  declare_fence(app, options,
                "the kernel refuses NVIDIA's requests, too: auto, require, off (the default)");
  app.add_flag("--observe", options.observe,
               "let CUDA through (unless --cpu, --fence); at the end, who asked; else only errors");
  app.add_flag(
      "--no-presets", options.no_presets,
      "set no CUDA_VISIBLE_DEVICES, JAX_PLATFORMS, MPIR_CVAR_ENABLE_GPU, GST_REGISTRY_1_0");
  app.add_flag("--print", options.print,
               "print what would be set, as shell commands; start nothing");
  app.add_flag("--strict", options.strict,
               "refuse what is static or cannot be checked, instead of warning");
}

void declare_verify(CLI::App& app, Options& options) {
  app.set_help_flag();
  app.add_option("--allow", options.allow, "processes whose command matches may touch CUDA")
      ->type_name("PATTERN");
  app.add_option("--deny", options.deny, "what fails: init (the default), nvml, opencl")
      ->type_name("WHAT");
  app.add_option("--report", options.report, "append the records to FILE, too")->type_name("FILE");
  declare_fence(app, options,
                "the kernel refuses NVIDIA's requests, too: auto (the default), require, off");
  app.add_flag("--trace", options.trace, "look at every program that is started (ptrace)");
  app.add_option("--json", options.json_file, "write the result as JSON")->type_name("FILE");
  app.add_option("--junit", options.junit_file, "write the result as JUnit XML")->type_name("FILE");
  app.add_option("--html", options.html_file, "write the result as one page")->type_name("FILE");
}

void declare_report(CLI::App& app, Options& options) {
  app.set_help_flag();
  app.add_option("--by", options.by, "one row for each: exe, user, host, job, line")
      ->type_name("WHAT");
  app.add_flag("--json", options.json, "print JSON");
  app.add_option("--html", options.html_file, "write one page")->type_name("FILE");
}

/// The words of the options, in the one form that CLI11 cannot misread: a value may begin with
/// '-', be empty, or look like an option. Returns the place of the first word that is no option.
int take_options(const CLI::App& app, int argc, char** argv, int at,
                 std::vector<std::string>& words) {
  std::vector<std::string> seen;
  for (; at < argc; ++at) {
    const std::string word = argv[at];
    if (word == "--") return at + 1;
    if (word.size() < 2 || word[0] != '-') return at;
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name == "--help" || name == "-h") {
      words = {"--help"};
      return at;
    }
    const CLI::Option* option = name.starts_with("--") ? app.get_option_no_throw(name) : nullptr;
    if (option == nullptr) {
      throw Refusal(kRefused, "unknown option " + in_quotes(name) + std::string(kSeeHelp));
    }
    if (option->get_items_expected_max() == 0) {
      if (equals != std::string::npos) throw Refusal(kRefused, name + " takes no value");
      words.push_back(name);
      continue;
    }
    const bool once = option->get_items_expected_max() == 1;
    if (once && std::find(seen.begin(), seen.end(), name) != seen.end()) {
      throw Refusal(kRefused, name + " is given twice");
    }
    seen.push_back(name);
    if (option->get_items_expected_min() == 0 && equals == std::string::npos) {
      const std::string_view next = at + 1 < argc ? argv[at + 1] : "";
      if (next == "auto" || next == "require" || next == "off") {
        std::string reason = name;
        reason.append(" has its word behind a '=': ").append(name).append("=").append(next);
        reason.append(" (a program of that name: ").append(name).append(" -- ").append(next);
        throw Refusal(kRefused, reason + ")");
      }
      words.push_back(name + "=auto");
      continue;
    }
    if (equals == std::string::npos && at + 1 == argc) {
      std::string reason = name;
      reason.append(" needs a value: ").append(name).append(" ").append(option->get_type_name());
      throw Refusal(kRefused, reason);
    }
    const std::string value = equals == std::string::npos ? argv[++at] : word.substr(equals + 1);
    words.push_back(name);
    if (value.empty()) {
      words.push_back(value);
    } else {
      words.back().append("=").append(value);
    }
  }
  return at;
}

void append_options(const CLI::App& app, std::string& text) {
  for (const CLI::Option* option : app.get_options()) {
    std::string left = "  " + option->get_name();
    const bool may_stand_alone = option->get_items_expected_min() == 0;
    if (option->get_items_expected_max() > 0)
      left.append(may_stand_alone ? "" : " ").append(option->get_type_name());
    left.resize(std::max<size_t>(left.size(), 18), ' ');
    text += left + option->get_description() + "\n";
  }
}

/// False: it was --help.
bool parse_words(CLI::App& app, int argc, char** argv, Options& options) {
  std::vector<std::string> words;
  const int rest = take_options(app, argc, argv, 2, words);
  if (words.size() == 1 && words[0] == "--help") return false;
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw Refusal(kRefused, printable(error.what()));
  }
  options.program = argv + rest;
  return true;
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app;
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "--help" || command == "-h" || command == "--version") {
    options.command = command == "--version" ? Options::Command::kVersion : Options::Command::kHelp;
    return options;
  }
  if (argc < 2)
    throw Refusal(kRefused, "no subcommand; cudaguard run program" + std::string(kSeeHelp));
  if (command == "doctor") {
    options.command = Options::Command::kDoctor;
    declare_doctor(app, options);
  } else if (command == "run") {
    declare_run(app, options);
  } else if (command == "verify") {
    options.command = Options::Command::kVerify;
    declare_verify(app, options);
  } else if (command == "report") {
    options.command = Options::Command::kReport;
    declare_report(app, options);
  } else {
    const char* what = command.starts_with("-") ? "unknown option " : "unknown subcommand ";
    throw Refusal(kRefused, what + in_quotes(command) + std::string(kSeeHelp));
  }
  if (!parse_words(app, argc, argv, options)) {
    options.help_of = std::exchange(options.command, Options::Command::kHelp);
    return options;
  }
  const bool has_program = *options.program != nullptr;
  if (options.command == Options::Command::kVerify && !has_program) {
    throw Refusal(kRefused, "no program given" + std::string(kSeeHelp));
  }
  if (options.command == Options::Command::kReport) {
    if (!has_program) throw Refusal(kRefused, "no file given" + std::string(kSeeHelp));
    for (char** word = options.program; *word != nullptr; ++word)
      options.inputs.emplace_back(*word);
  }
  if (options.command == Options::Command::kRun && !has_program && !options.print) {
    throw Refusal(kRefused, "no program given" + std::string(kSeeHelp));
  }
  if (options.command == Options::Command::kDoctor && has_program &&
      options.program[1] != nullptr) {
    throw Refusal(kRefused, "doctor takes one program and none of its arguments, not " +
                                in_quotes(options.program[1]) +
                                (options.program[1][0] == '-' ? " (options go before it)" : ""));
  }
  return options;
}

std::string help_text(Options::Command command) {
  Options options;
  CLI::App app;
  std::string text;
  if (command == Options::Command::kVerify) {
    text =
        "Usage: cudaguard verify [options] [--] program [arguments...]\n"
        "Runs a program without CUDA, waits for all that it starts, and says who asked for CUDA.\n"
        "Needs no GPU and no driver.\n"
        "\n";
    declare_verify(app, options);
    append_options(app, text);
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
           "125 nothing was verified.\n";
  }
  if (command == Options::Command::kReport) {
    text =
        "Usage: cudaguard report [options] file|folder...\n"
        "Says who asked for CUDA, from the records of CUDAGUARD_REPORT.\n"
        "\n";
    declare_report(app, options);
    append_options(app, text);
    return text;
  }
  declare_run(app, options);
  text =
      "Usage: cudaguard run [options] [--] program [arguments...]\n"
      "       cudaguard doctor [--json] [program]\n"
      "       cudaguard verify|report --help; cudaguard --help|--version\n"
      "run starts a program that finds no CUDA device, or only the GPUs that you choose. doctor: "
      "what "
      "is\nthis machine's CUDA like, can a program be guarded? verify: PASS or FAIL, did it touch "
      "CUDA?\n"
      "\n";
  append_options(app, text);
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
