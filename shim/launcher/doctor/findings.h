// SPDX-License-Identifier: Apache-2.0
// The list of doctor's findings, from which its verdict, text and JSON are made. Pure.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

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

}  // namespace cudaguard::launcher
