// SPDX-License-Identifier: Apache-2.0
// What a process's arguments say about its program: an interpreter and its script. Pure;
// thread-safe, async-signal-safe, allocation-free.
#pragma once

#include <cstdint>
#include <string_view>

#include "policy/text.h"

namespace [[gnu::visibility("hidden")]] cudaguard {

/// Removes and returns the first of a process's arguments.
std::string_view take_argument(std::string_view& arguments);

/// Interpreters of scripts, and the options that may come before the script.
struct Interpreter {
  char names[35];      ///< without versions, with a blank between them
  bool known;          ///< the options; ScriptSearch is for the others
  char alone[8];       ///< letters of options without a value
  char with_value[3];  ///< letters of options whose value is the next word
  char code[4];        ///< letters of options that bring code instead of a script
  char attached[5];    ///< letters of options whose value may be the rest of the word
};

/// Returns the interpreter for "python3.11", null for "node_exporter". The guard shows no arguments
/// of other programs.
const Interpreter* interpreter_of(std::string_view name);

/// True for the program or library of an interpreter: "/usr/bin/python2.7", "libruby-3.1.so.3.1".
/// Its functions and source files are not the user's.
bool is_interpreter(std::string_view module);

/// Returns a number from the text of /proc/PID/stat; -1 if there is none. `field`: as in
/// proc_pid_stat(5), 4 or more.
int64_t stat_field(std::string_view stat, int field);

/// The script of an interpreter's process.
struct Script {
  bool is_module = false;      ///< Python's -m
  std::string_view name = {};  ///< "ppo.py", "pkg.train"; empty: not known
  std::string_view path = {};  ///< as the command line has it: "/home/u/ppo.py"
  bool is_code = false;        ///< the code is in no file: -c, -e, -, /dev/fd/63
};
/// `file` is what ScriptSearch has found, as Attempt::script.
Script script_of(const Interpreter& interpreter, std::string_view arguments, std::string_view file);

/// Finds the script of an interpreter whose options are not known: what its name or the option
/// before it shows to be one ("julia -J my.core train.jl"), otherwise any argument that is a file.
class ScriptSearch {
 public:
  explicit ScriptSearch(std::string_view arguments) : arguments_(arguments), rest_(arguments) {
    take_argument(rest_);
  }
  /// The next argument that is the script if it is a file; empty if there is none.
  std::string_view next();

 private:
  std::string_view arguments_;
  std::string_view rest_;
  std::string_view previous_;
  bool any_ = false;
};

/// What the arguments of a process say of it as what has started another.
enum class Starter : uint8_t {
  kNamed,       ///< put_program() names it
  kCode,        ///< its code may be in no file: named only if what has started it is not
  kFurtherOut,  ///< a shell's command or a program such as `timeout`: what has started it matters
  kNobody,      ///< the user has typed the command, or cudaguard has started it
};
Starter starter_of(std::string_view arguments);

/// True for NVIDIA's tools that other programs start to look for GPUs: "nvidia-smi".
bool is_query_tool(std::string_view name);

/// Writes "python3 ppo.py", or the name alone if the program is no interpreter.
Text& put_program(Text& out, std::string_view arguments, std::string_view file);

/// Returns the name of a file without a long run of digits, which a program that unpacks its
/// library into a temporary file has made: "libxgboost4j_gpu.so". Writes it to `room` if it
/// differs.
std::string_view lasting_name(std::string_view path, char* room, size_t size);

}  // namespace cudaguard
