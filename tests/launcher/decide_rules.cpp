// SPDX-License-Identifier: Apache-2.0
// Decides the cases of test_process_rules.py. A case is a line of 10 words, in hexadecimal after an
// "x", or "-" for what is not known:
//   SOURCE TEXT PROGRAM ARGS CGROUP PASSWD GROUP USER GROUPS OTHERWISE
// The answer is a line: POLICY LINE UNSURE MISTAKE GPUS.
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "policy/process_rules.h"
#include "policy/variables.h"

namespace {

using namespace cudaguard;  // NOLINT(google-build-using-namespace)

/// A buffer of the exact size, so that the sanitizer finds a read behind the end.
std::vector<char> bytes_of(const std::string& word) {
  std::vector<char> bytes(word.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(std::stoi(word.substr(1 + 2 * i, 2), nullptr, 16));
  }
  return bytes;
}

std::string_view text_of(const std::vector<char>& bytes) { return {bytes.data(), bytes.size()}; }

RuleFact fact_of(const std::string& word, const std::vector<char>& bytes) {
  return {text_of(bytes), word != "-", false};
}

void decide(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words(10);
  for (std::string& word : words) in >> word;
  std::vector<std::vector<char>> bytes;
  bytes.reserve(words.size());
  for (const std::string& word : words) bytes.push_back(bytes_of(word));
  std::vector<uint32_t> groups;
  std::istringstream numbers(std::string(text_of(bytes[8])));
  for (uint32_t number = 0; numbers >> number;) groups.push_back(number);
  RuleFacts facts;
  facts.program = fact_of(words[2], bytes[2]);
  facts.args = fact_of(words[3], bytes[3]);
  facts.cgroup = fact_of(words[4], bytes[4]);
  facts.user_file = fact_of(words[5], bytes[5]);
  facts.group_file = fact_of(words[6], bytes[6]);
  facts.knows_user = words[7] != "-";
  facts.user =
      facts.knows_user ? static_cast<uint32_t>(std::stoul(std::string(text_of(bytes[7])))) : 0;
  facts.knows_groups = words[8] != "-";
  facts.groups = groups;
  Ruling otherwise;
  otherwise.policy =
      static_cast<Policy>(place_of_word(row_of(Variable::kPolicy).accepted, text_of(bytes[9])));
  const Ruling ruling = decide_by_rules(
      text_of(bytes[1]), text_of(bytes[0]) == "file" ? RuleSource::kFile : RuleSource::kVariable,
      facts, otherwise);
  std::cout << name_of(ruling.policy) << ' ' << ruling.line << ' ' << ruling.unsure << ' '
            << (ruling.mistake.why != RuleMistake::Why::kNone) << " x" << ruling.gpus << '\n';
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) decide(line);
}
