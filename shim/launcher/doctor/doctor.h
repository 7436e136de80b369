// SPDX-License-Identifier: Apache-2.0
// `cudaguard doctor`: reports whether cudaguard is installed and active, whether this program can
// be guarded, and whether the driver answers. One file answers each question: it adds findings to
// the list and returns its part of the first line. None starts a program of the user.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "shim/launcher/child/variables.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/fence/listed_gpus.h"
#include "shim/launcher/health/ask_cuda.h"
#include "shim/launcher/options.h"
#include "shim/launcher/preload/machine_rules.h"
#include "shim/launcher/preload/preload.h"

namespace cudaguard::launcher {

/// Prints the text, and writes the JSON document (doctor.schema.json) to the file of --json. On the
/// standard output the document replaces the text. Returns 0 if all is well, 1 if the program is
/// guarded in part or there is a problem, 2 if it cannot be guarded. Throws Refusal.
int doctor(const Options& options, const char* const* environment);

enum class Question {
  kProgram,    ///< whether this program can be guarded
  kInstalled,  ///< whether cudaguard is installed and active
  kDriver,     ///< which driver files ld.so finds, and whether the driver answers
};

enum class State {
  kFact,
  kProblem,  ///< a problem of this machine or environment
  kInPart,   ///< the program is guarded, with an exception
  kNo,       ///< the program is not guarded
};

struct Finding {
  std::string id;  ///< never changed; for a fact, also the heading of its row
  Question question = Question::kProgram;
  State state = State::kFact;
  std::string text;    ///< printable; for kInPart and kNo, a clause after "because"
  std::string remedy;  ///< empty if there is none
};
using FindingList = std::vector<Finding>;

/// Returns whether the program is guarded: "yes", "in part" or "no".
const char* verdict(const FindingList& findings);
/// Returns "guarded: no, because ...", with the first of the most important reasons.
std::string guarded_line(const FindingList& findings);
/// Returns 0 if all is well, 1 if guarded in part or for a problem, 2 if not guarded.
int exit_code(const FindingList& findings);

struct Document {
  std::string answer;  ///< the first line
  bool has_program = false;
  FindingList findings;
};
/// Lines have at most 100 columns, unless a path is longer.
std::string as_text(const Document& document);
/// The document that doctor.schema.json describes.
std::string as_json(const Document& document);

inline constexpr char kGuardName[] = "libcudaguard.so";

/// A file of this installation.
struct OwnFile {
  std::string path;
  bool null_driver = false;  ///< the file is a null driver, or a link to one
  std::string trouble;       ///< a clause: "is damaged ..."; empty if the file is sound
};

/// The files that ld.so finds by name.
struct Libraries {
  /// libcuda.so.1, libcuda.so, libnvidia-ml.so.1, libnvidia-opencl.so.1 and their paths; an empty
  /// path means not found. Ends before the first name for which ld.so gave no answer.
  std::vector<std::pair<std::string, std::string>> found;
  std::string guard_by_bare_name;  ///< the file that LD_PRELOAD=libcudaguard.so loads; empty: none
  std::string system_guard;        ///< the guard named by /etc/ld.so.preload
  std::string trouble;             ///< why ld.so could not answer, or hangs: a clause
  bool hangs = false;              ///< ld.so hangs
  bool fails = false;              ///< ld.so cannot load libcuda.so.1 although it is there
};

struct Machine {
  const Variables& variables;  ///< doctor's own environment
  const Installation installation;
  const Fence fence;  ///< the fence that is possible here, or holds already
  const std::vector<OwnFile> own_files;
  const std::chrono::seconds limit;  ///< for each answer of ld.so, and for the driver's
  const MachineRules rules = {};
};

/// Replaces the policy IF_HEALTHY, which only `run` reads, by that of a healthy driver, VALIDATE.
/// Returns false if the variables have another policy.
bool replace_if_healthy(Variables& variables);

/// Returns the guard first.
std::vector<OwnFile> look_at_own_files(const Installation& installation);
Libraries find_libraries(const Machine& machine);

/// Returns "guarded: yes". Throws Refusal if there is no such program (126, 127).
std::string ask_program(const std::string& name, const Machine& machine, FindingList& findings);

/// Returns "installed: yes; active here: no".
std::string ask_installed(const Machine& machine, const Libraries& libraries,
                          FindingList& findings);
/// The part of ask_installed() that examines CUDAGUARD_* alone.
void judge_variables(Variables variables, FindingList& findings);

/// What keeps this process, or programs that it starts, from a GPU.
struct Sandbox {
  struct Node {
    std::string path;
    std::string hindrance;  ///< a clause: "its mount is nodev"; empty if it can be opened
    bool needed = false;    ///< by CUDA, if a program uses this GPU
  };
  std::vector<Node> nodes;          ///< the GPU device nodes in /dev
  std::vector<NeededNode> missing;  ///< what CUDA needs and is not there
  std::vector<std::string> lacks;   ///< what the driver needs: "memfd_create is refused (EPERM)"
  std::vector<std::string> around;  ///< "a seccomp filter", "a user namespace"
};

/// Looks at nodes without opening them, but for a process in a Landlock domain.
Sandbox find_sandbox(std::chrono::seconds limit);
/// Adds what was found, and why cuInit gave this answer. `answer` is null if it was not asked.
void explain_sandbox(const Sandbox& sandbox, const DriverAnswer* answer, FindingList& findings);

/// Returns "driver: answers".
std::string ask_driver(const Machine& machine, const Libraries& libraries, FindingList& findings);
/// The part of ask_driver() that judges the driver's answer.
std::string judge_answer(const DriverAnswer& answer, std::chrono::seconds limit,
                         FindingList& findings);

}  // namespace cudaguard::launcher
