// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "shim/launcher/message.h"

namespace cudaguard::launcher {

namespace {

constexpr std::string_view kSeeHelp = "; see cudaguard --help";

void declare(CLI::App& app, Options& options) {
  app.set_help_flag();
  app.add_flag("--cpu", options.cpu, "the program finds no CUDA device (the default)");
  const auto value = [&](const char* name, std::optional<std::string>& to, const char* kind,
                         const char* about) { app.add_option(name, to, about)->type_name(kind); };
  value("--gpus", options.gpus, "LIST",
        "it finds these GPUs and no others: 2,5 or GPU-... or MIG-...");
  value("--policy", options.policy, "P",
        "FORCE_CPU, VALIDATE (a wrong index is explained), CLAMP, OFF");
  value("--children", options.children, "cpu", "processes that it starts find no CUDA device");
  value("--log", options.log, "L", "lines on stderr: off, deny (the default), all");
  value("--report", options.report, "FILE", "append JSON Lines records to FILE; %p: process id");
  app.add_flag("--no-presets", options.no_presets,
               "leave CUDA_VISIBLE_DEVICES, JAX_PLATFORMS, MPIR_CVAR_ENABLE_GPU alone");
  app.add_flag("--print", options.print,
               "print what would be set, as shell commands; start nothing");
  app.add_flag("--strict", options.strict, "refuse a static executable instead of warning");
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
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      throw Refusal(kRefused, name + " is given twice");
    }
    seen.push_back(name);
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

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app;
  declare(app, options);
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "--help" || command == "-h" || command == "--version") {
    options.command = command == "--version" ? Options::Command::kVersion : Options::Command::kHelp;
    return options;
  }
  if (argc < 2)
    throw Refusal(kRefused, "no subcommand; cudaguard run program" + std::string(kSeeHelp));
  if (command != "run") {
    const char* what = command.starts_with("-") ? "unknown option " : "unknown subcommand ";
    throw Refusal(kRefused, what + in_quotes(command) + std::string(kSeeHelp));
  }
  std::vector<std::string> words;
  const int rest = take_options(app, argc, argv, 2, words);
  if (words.size() == 1 && words[0] == "--help") {
    options.command = Options::Command::kHelp;
    return options;
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    throw Refusal(kRefused, printable(error.what()));
  }
  options.program = argv + rest;
  if (rest >= argc && !options.print) {
    throw Refusal(kRefused, "no program given" + std::string(kSeeHelp));
  }
  return options;
}

std::string help_text() {
  Options options;
  CLI::App app;
  declare(app, options);
  std::string text =
      "Usage: cudaguard run [options] [--] program [arguments...]\n"
      "\n"
      "Starts a program that finds no CUDA device, or only the GPUs that you choose.\n"
      "\n";
  for (const CLI::Option* option : app.get_options()) {
    std::string left = "  " + option->get_name();
    if (option->get_items_expected_max() > 0) left.append(" ").append(option->get_type_name());
    left.resize(std::max<size_t>(left.size(), 22), ' ');
    text += left + option->get_description() + "\n";
  }
  text +=
      "  --help, --version   of cudaguard itself; alone, or --help behind run\n"
      "\n"
      "Options end at the first word that is not one. A flag overrides CUDAGUARD_* in the "
      "environment.\n"
      "The program keeps its process id, terminal, signals and exit code. Exit codes of "
      "cudaguard:\n"
      "  125  it cannot be guarded, or the command line is wrong; nothing was started\n"
      "  126  the program cannot be run; 127  it was not found\n";
  return text;
}

}  // namespace cudaguard::launcher
