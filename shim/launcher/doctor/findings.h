// SPDX-License-Identifier: Apache-2.0
// What doctor has found: one list, from which its verdict, its text and its JSON are made. Pure.
#pragma once

#include <string>
#include <vector>

namespace cudaguard::launcher {

enum class Question {
  kProgram,    ///< can this program be guarded?
  kInstalled,  ///< is cudaguard installed, and active here?
  kDriver,     ///< which driver files would be found, and does the driver answer?
};

enum class State {
  kFact,
  kProblem,  ///< of this machine or environment
  kInPart,   ///< the program is guarded, with an exception
  kNo,       ///< the program is not guarded
};

struct Finding {
  std::string id;  ///< never changed; of a fact also the heading of its row
  Question question = Question::kProgram;
  State state = State::kFact;
  std::string text;    ///< printable; of kInPart and kNo a clause after "because"
  std::string remedy;  ///< empty: there is none
};
using FindingList = std::vector<Finding>;

/// Is the program guarded? "yes", "in part" or "no".
const char* verdict(const FindingList& findings);
/// "guarded: no, because ...", with the first of the weightiest reasons.
std::string guarded_line(const FindingList& findings);
/// 0: well; 1: guarded in part, or a problem; 2: not guarded.
int exit_code(const FindingList& findings);

struct Document {
  std::string answer;  ///< the first line
  bool has_program = false;
  FindingList findings;
};
/// Lines of at most 100 columns, unless a path is longer.
std::string as_text(const Document& document);
/// As doctor.schema.json describes it.
std::string as_json(const Document& document);

}  // namespace cudaguard::launcher
