// SPDX-License-Identifier: Apache-2.0
#include "policy/program.h"

#include <iterator>
#include <utility>

#include "policy/text.h"
#include "policy/user_code.h"

namespace cudaguard {

namespace {

constexpr size_t kNowhere = std::string_view::npos;

constexpr Interpreter kInterpreters[] = {
    {"python pypy", true, "usSBOEI", "WX", "c", "WX"},
    {"ruby perl nodejs node luajit lua", true, "wWsStTU", "rI", "eEp", "IMmr"},
    {"php", true, "nqf", "d", "r", "d"},
    {"sh bash dash zsh ksh csh tcsh fish", true, "euxvlif", "oO", "cs", ""},
};
constexpr const Interpreter& kShells = kInterpreters[std::size(kInterpreters) - 1];  // the last row
constexpr Interpreter kOther = {};
constexpr char kOthers[] =
    "R Rscript beam.smp bun clisp deno dotnet ecl elixir escript gforth gjs gp gst guile java "
    "julia lisp.run maxima moar mono mono-sgen newlisp ocaml octave octave-cli perl6 pwsh qjs "
    "racket raku rakudo rakudo-m sbcl scilab swipl tclsh wish";

constexpr char kLibraries[][13] = {
    "libpython", "libpypy",  "libruby",  "libperl",      "liblua", "libnode", "libphp",  "libjvm",
    "libR.so",   "libjulia", "libguile", "liboctinterp", "libtcl", "libmono", "libmoar",
};

constexpr char kStarters[] =
    "bwrap dumb-init env find flock ionice nice nohup script setsid stdbuf strace su sudo "
    "time timeout tini uv watch xargs";
// Options whose value is the script; options whose value is another file; options after which there
// is no script, because their value is code or another file of code; and how scripts' names end.
constexpr char kScriptOptions[] = "-jar -f -s -File --script -extra";
constexpr char kOtherValues[] = "-J --sysimage --core --runtimeconfig -I -L --depsfile";
constexpr char kOtherCode[] =
    "-e -E -c -Command --eval --print --require --import --loader --rcfile --init-file --args";
constexpr char kEndings[] =
    "py pyc pyz rb pl t js mjs cjs ts lua php sh bash zsh ksh jl R r lisp lsp cl scm ml m ps1 rkt "
    "tcl exs escript raku p6 fs st dll exe java sce";
// Their other arguments may be files, which are no scripts.
constexpr char kOnlyByName[] = "java beam.smp";

/// True if the rest of an interpreter's name is a version; "t" marks a Python without a GIL.
bool is_version(std::string_view rest) {
  if (rest.ends_with('t') && rest.size() > 1) rest.remove_suffix(1);
  for (const char c : rest) {
    if (c >= 'A') return false;
  }
  return true;
}

std::string_view take_listed(std::string_view& words) {
  const std::string_view word = head(words, words.find(' '));
  words = tail(words, word.size() + 1);
  return word;
}

bool is_one_of(std::string_view name, std::string_view words) {
  while (!words.empty()) {
    if (take_listed(words) == name) return true;
  }
  return false;
}

/// True if the name is one of the words, or a version of it.
bool has_version_of(std::string_view name, std::string_view words) {
  while (!words.empty()) {
    const std::string_view word = take_listed(words);
    if (name.starts_with(word) && is_version(tail(name, word.size()))) return true;
  }
  return false;
}

bool is_option(std::string_view word) { return word.starts_with('-'); }

/// True for "a.jl", whoever runs it.
bool has_ending(std::string_view word) {
  const std::string_view name = base_name(word);
  const size_t dot = name.rfind('.');
  return dot != kNowhere && is_one_of(tail(name, dot + 1), kEndings);
}

}  // namespace

std::string_view take_argument(std::string_view& arguments) {
  const std::string_view argument = head(arguments, arguments.find('\0'));
  arguments = tail(arguments, argument.size() + 1);
  return argument;
}

const Interpreter* interpreter_of(std::string_view name) {
  for (const Interpreter& one : kInterpreters) {
    if (has_version_of(name, one.names)) return &one;
  }
  return has_version_of(name, kOthers) ? &kOther : nullptr;
}

int64_t stat_field(std::string_view stat, int field) {
  std::string_view rest = tail(stat, stat.rfind(')') + 1);  // " S 12", from the third field on
  for (int i = 3; i <= field; ++i) rest = tail(rest, rest.find(' ') + 1);
  int64_t number = rest.empty() ? -1 : 0;
  for (; !rest.empty() && is_digit(rest.front()); rest = tail(rest, 1)) {
    number = number * 10 + (rest.front() - '0');
  }
  return number;
}

bool is_interpreter(std::string_view module) {
  const std::string_view file = base_name(module);
  return begins(file, kLibraries) != 0 || interpreter_of(file) != nullptr;
}

Script script_of(const Interpreter& interpreter, std::string_view arguments,
                 std::string_view file) {
  if (!interpreter.known) return {false, base_name(file), file};
  take_argument(arguments);
  std::string_view word = take_argument(arguments);
  bool is_clear = true;  // false after an option that may take the next word as its value
  bool may_be_script = false;
  for (; !word.empty() && word != "-m" && word != "-"; word = take_argument(arguments)) {
    if (!is_option(word)) {
      if (is_clear || has_ending(word)) break;
      may_be_script = true;
    } else if (word.starts_with("--")) {
      if (is_one_of(head(word, word.find('=')), kOtherCode)) return {};
      is_clear = word.size() == 2;
    } else {
      // "we" of "-we", "u" of "-uWonce" and "-uW"
      const std::string_view letters =
          tail(head(word, word.find_first_of(interpreter.attached)), 1);
      if (letters.find_first_of(interpreter.code) != kNowhere) return {.is_code = !may_be_script};
      const size_t rest = word.size() - 1 - letters.size();
      if (rest <= 1 && std::string_view(interpreter.with_value).find(word.back()) != kNowhere) {
        take_argument(arguments);
      } else if (rest == 1 || letters.find_first_not_of(interpreter.alone) != kNowhere) {
        is_clear = false;
      }
    }
  }
  Script script;
  script.is_code = word == "-";
  script.is_module = word == "-m";
  if (script.is_module) word = take_argument(arguments);
  if (word.empty() || word[0] == '-') return script;
  script.name = file_name(word);
  script.path = word;
  script.is_code = script.name.starts_with('/');
  return script;
}

std::string_view ScriptSearch::next() {
  constexpr std::string_view kFile = "--file=";  // R's
  for (;;) {
    if (rest_.empty()) {
      if (any_) return {};
      any_ = true;
      rest_ = arguments_;
      previous_ = take_argument(rest_);  // the interpreter
      if (is_one_of(base_name(previous_), kOnlyByName)) rest_ = {};
    }
    const std::string_view word = take_argument(rest_);
    const std::string_view previous = std::exchange(previous_, word);
    if (is_one_of(head(word, word.find('=')), kOtherCode)) {
      rest_ = {};
    } else if (word.starts_with(kFile)) {
      return tail(word, kFile.size());
    } else if (!word.empty() && !is_option(word)) {
      const bool is_known = has_ending(word) || is_one_of(previous, kScriptOptions);
      if (is_known || (any_ && !is_one_of(previous, kOtherValues))) return word;
    }
  }
}

Starter starter_of(std::string_view arguments) {
  std::string_view options = arguments;
  const std::string_view name = base_name(take_argument(options));
  if (is_one_of(name, kStarters)) return Starter::kFurtherOut;
  // A login shell's name begins with a hyphen.
  if (name.empty() || name == "cudaguard" || is_option(name)) return Starter::kNobody;
  const Interpreter* interpreter = interpreter_of(name);
  if (interpreter == nullptr) return Starter::kNamed;
  const Script script = script_of(*interpreter, arguments, {});
  const bool is_shell = interpreter == &kShells;
  if (script.is_code) return is_shell ? Starter::kFurtherOut : Starter::kCode;
  const std::string_view first = take_argument(options);
  const bool may_be_prompt =
      first.empty() || first == "-i" || first == "-l" || first.starts_with("--");
  if (!may_be_prompt || !script.name.empty()) return Starter::kNamed;
  return is_shell ? Starter::kNobody : Starter::kCode;
}

bool is_query_tool(std::string_view name) {
  return name.starts_with("nvidia-") || name == "__nvcc_device_query" || name == "deviceQuery";
}

Text& put_program(Text& out, std::string_view arguments, std::string_view file) {
  std::string_view rest = arguments;
  const std::string_view name = base_name(take_argument(rest));
  out.print("%n", name);
  const Interpreter* interpreter = interpreter_of(name);
  if (interpreter == nullptr) return out;
  const Script script = script_of(*interpreter, arguments, file);
  if (script.is_module) out.put(" -m");
  return script.name.empty() ? out : out.print(" %n", script.name);
}

std::string_view lasting_name(std::string_view path, char* room, size_t size) {
  constexpr size_t kLongRun = 8;
  constexpr size_t kRandom = 14;  // longer than a date with its time
  const std::string_view name = base_name(path);
  const bool is_temporary = path.starts_with("/dev/shm/") || find(path, "/tmp/") != kNowhere;
  for (size_t at = 0; at < name.size(); ++at) {
    if (!is_digit(name[at])) continue;
    size_t end = at;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end - at > kRandom || (is_temporary && end - at >= kLongRun)) {
      Text out(room, size);
      out.put(head(name, at)).put(tail(name, end));
      return out.cut() ? name : out.view();
    }
    at = end;
  }
  return name;
}

}  // namespace cudaguard
