// SPDX-License-Identifier: Apache-2.0
#include "policy/process_rules.h"

#include "policy/variables.h"

namespace cudaguard {

namespace {

using Why = RuleMistake::Why;

constexpr bool ends_line(char c) { return c == '\n'; }
constexpr bool ends_word(char c) { return is_blank(c) || c == ';'; }

/// Removes the first `count` bytes, and counts the lines that end in them.
void skip(RuleText& text, size_t count) {
  for (const char c : head(text.rest, count)) text.line += ends_line(c) ? 1 : 0;
  text.rest = tail(text.rest, count);
}

size_t length_of_line(std::string_view text) {
  const size_t end = text.find('\n');
  return end == std::string_view::npos ? text.size() : end;
}

/// Removes and returns what comes before the end of a word.
std::string_view take_part(RuleText& text) {
  size_t length = 0;
  while (length < text.rest.size() && !ends_word(text.rest[length])) ++length;
  const std::string_view part = head(text.rest, length);
  text.rest = tail(text.rest, length);
  return part;
}

void skip_blanks(RuleText& text) {
  while (!text.rest.empty() && is_blank(text.rest[0]) && !ends_line(text.rest[0])) skip(text, 1);
}

bool is_separator(const RuleText& text) {
  return text.source == RuleSource::kVariable && !text.rest.empty() && text.rest[0] == '&';
}

/// True if the rule has no more words.
bool ends_rule(const RuleText& text) {
  return text.rest.empty() || ends_line(text.rest[0]) || text.rest[0] == ';' ||
         text.rest[0] == '#' || is_separator(text);
}

/// True if the rest of the line has a control character. A blank, a tab and the CR of a CRLF are
/// none. An editor may show the others as the end of a line, or not at all.
bool has_control(RuleText& text) {
  if (text.clean_line == text.line) return false;
  const std::string_view line = head(text.rest, length_of_line(text.rest));
  for (size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    const bool ends = c == '\r' && i + 1 == line.size() && line.size() < text.rest.size();
    if ((c < ' ' && c != '\t' && !ends) || c == 0x7f) return true;
  }
  text.clean_line = text.line;
  return false;
}

/// Removes what is between rules. Returns how many "&" were there. Stops at a line that has a
/// control character, also in a comment.
size_t skip_to_rule(RuleText& text) {
  size_t separators = 0;
  for (;;) {
    if (has_control(text)) return separators;
    skip_blanks(text);
    if (text.rest.empty()) return separators;
    if (text.rest[0] == '#') {
      skip(text, length_of_line(text.rest));
    } else if (ends_line(text.rest[0]) || text.rest[0] == ';') {
      skip(text, 1);
    } else if (is_separator(text)) {
      ++separators;
      skip(text, 1);
    } else {
      return separators;
    }
  }
}

/// Removes the value after "key=". Returns what is wrong with its quotes, or kNone.
Why take_value(RuleText& text, std::string_view& value) {
  if (!text.rest.starts_with('"')) {
    value = take_part(text);
    if (value.starts_with('\'')) return Why::kSingleQuote;
    if (value.find('"') != std::string_view::npos) return Why::kQuote;
    return value.find('#') != std::string_view::npos ? Why::kHash : Why::kNone;
  }
  text.rest = tail(text.rest, 1);
  const std::string_view line = head(text.rest, length_of_line(text.rest));
  const size_t end = line.find('"');
  value = head(line, end);
  if (end == std::string_view::npos) return Why::kQuote;
  text.rest = tail(text.rest, end + 1);
  return text.rest.empty() || ends_word(text.rest[0]) ? Why::kNone : Why::kQuote;
}

bool is_number(std::string_view text) {
  for (const char c : text) {
    if (!is_digit(c)) return false;
  }
  return !text.empty();
}

/// Reads a number. Returns false if no user or group can have it: the kernel takes the last one as
/// "no change".
bool number_from(std::string_view digits, uint32_t& number) {
  uint64_t value = 0;
  for (const char c : digits) {
    value = value * 10 + static_cast<uint64_t>(c - '0');
    if (value >= UINT32_MAX) return false;
  }
  number = static_cast<uint32_t>(value);
  return true;
}

RuleMistake check_value(const ProcessRule& rule, RuleKey key, RuleSource source) {
  const std::string_view value = rule.value(key);
  const auto wrong = [&](Why why) { return RuleMistake{why, key, value, {}}; };
  if (value.empty()) return wrong(Why::kEmpty);
  if (key == RuleKey::kGpus) {
    if (!allows_cuda(rule.policy)) return wrong(Why::kGpusInVain);
    if (value.size() > kMaxVisibleDevices) {
      return {Why::kGpus, key, value, {ListError::Why::kTooLong, 0, {}}};
    }
    const AllowList list = parse_allow_list(value);
    if (list.none) return wrong(Why::kNoGpu);
    if (list.error.why != ListError::Why::kNone) return {Why::kGpus, key, value, list.error};
  }
  if ((key == RuleKey::kUser || key == RuleKey::kGroup) && is_impossible_number(value)) {
    return wrong(Why::kNumber);
  }
  if (key == RuleKey::kLog &&
      place_of_word(row_of(Variable::kLog).accepted, value) == std::string_view::npos) {
    return wrong(Why::kLog);
  }
  const bool is_report = (value[0] == '/' && value.size() <= kMaxReportPath) || value == kSyslog;
  if (key == RuleKey::kReport && !is_report) {
    return wrong(Why::kReport);
  }
  if (key == RuleKey::kEnvironment) {
    if (source != RuleSource::kFile) return wrong(Why::kFileOnly);
    if (value != kMayWiden) return wrong(Why::kEnvironment);
  }
  return {};
}

/// Removes one "key=value".
RuleMistake take_pair(RuleText& text, ProcessRule& rule) {
  size_t length = 0;
  while (length < text.rest.size() && text.rest[length] != '=' && !ends_word(text.rest[length])) {
    ++length;
  }
  const std::string_view name = head(text.rest, length);
  if (length == text.rest.size() || text.rest[length] != '=') {
    return {Why::kWord, {}, name, {}};
  }
  size_t place = 0;
  while (place < std::size(kRuleKeys) && name != kRuleKeys[place]) ++place;
  if (place == std::size(kRuleKeys)) return {Why::kKey, {}, name, {}};
  const auto key = static_cast<RuleKey>(place);
  text.rest = tail(text.rest, length + 1);
  std::string_view value;
  if (const Why why = take_value(text, value); why != Why::kNone) return {why, key, value, {}};
  if (rule.has(key)) return {Why::kTwice, key, value, {}};
  rule.given |= bit_of(key);
  rule.values[place] = value;
  return check_value(rule, key, text.source);
}

RuleMistake take_words(RuleText& text, ProcessRule& rule) {
  if (text.rest.starts_with("\xef\xbb\xbf")) return {Why::kByteOrderMark, {}, {}, {}};
  if (has_control(text)) return {Why::kControl, {}, {}, {}};
  const std::string_view word = take_part(text);
  const size_t policy = place_of_word(row_of(Variable::kPolicy).accepted, word);
  if (policy == std::string_view::npos) return {Why::kPolicy, {}, word, {}};
  rule.policy = static_cast<Policy>(policy);
  const char* const begin = rule.text.data();
  for (;;) {
    rule.text = {begin, static_cast<size_t>(text.rest.data() - begin)};
    skip_blanks(text);
    if (ends_rule(text)) return {};
    const RuleMistake mistake = take_pair(text, rule);
    if (mistake.why != Why::kNone) return mistake;
  }
}

enum class Match : uint8_t { kNo, kUnknown, kYes };

constexpr Match match_of(bool yes) { return yes ? Match::kYes : Match::kNo; }
constexpr Match both(Match one, Match other) { return one < other ? one : other; }

Match match_glob(std::string_view pattern, const RuleFact& fact) {
  if (!fact.known) return Match::kUnknown;
  if (!fact.cut) return match_of(matches_glob(pattern, fact.text));
  // Whatever follows matches a star at the end.
  const bool surely = pattern.ends_with('*') && matches_glob(pattern, fact.text);
  return surely ? Match::kYes : Match::kUnknown;
}

/// Reads the number in a line like "name:x:1000:…". Returns false if it has none.
bool number_in_line(std::string_view line, uint32_t& number) {
  for (int fields = 0; fields < 2; ++fields) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    line = tail(line, colon + 1);
  }
  const std::string_view digits = head(line, line.find(':'));
  return is_number(digits) && number_from(digits, number);
}

/// Removes the next line, unless its end is not known. Returns false if there is none.
bool take_line(const RuleFact& file, std::string_view& rest, std::string_view& line) {
  line = head(rest, length_of_line(rest));
  if (rest.empty() || (line.size() == rest.size() && file.cut)) return false;
  rest = tail(rest, line.size() + 1);
  return true;
}

/// Finds a name's number in a text like /etc/passwd. Returns false if it is not there: another
/// service, such as LDAP, may know it.
bool find_number(const RuleFact& file, std::string_view name, uint32_t& number) {
  if (name.find(':') != std::string_view::npos) return false;  // is no name, but several fields
  std::string_view line;
  for (std::string_view rest = file.text; take_line(file, rest, line);) {
    if (line.starts_with(name) && tail(line, name.size()).starts_with(':')) {
      return number_in_line(line, number);
    }
  }
  return false;
}

bool has_name(const RuleFact& file, uint32_t number) {
  std::string_view line;
  for (std::string_view rest = file.text; take_line(file, rest, line);) {
    uint32_t found = 0;
    if (!line.starts_with(':') && number_in_line(line, found) && found == number) return true;
  }
  return false;
}

bool is_known_name(std::string_view wanted, const RuleFact& names) {
  uint32_t number = 0;
  return is_number(wanted) || find_number(names, wanted, number);
}

Match match_identity(std::string_view wanted, const RuleFact& names, bool known,
                     std::span<const uint32_t> numbers) {
  if (!known) return Match::kUnknown;
  uint32_t number = 0;
  const bool has_number =
      is_number(wanted) ? number_from(wanted, number) : find_number(names, wanted, number);
  if (!has_number) {
    // A service that knows this name may also know the numbers that have no name here.
    for (const uint32_t one : numbers) {
      if (!has_name(names, one)) return Match::kUnknown;
    }
    return Match::kNo;
  }
  for (const uint32_t one : numbers) {
    if (one == number) return Match::kYes;
  }
  return Match::kNo;
}

/// True if one of the process's other cgroups is below this one, and so says more.
bool is_above_another(std::string_view path, std::string_view lines) {
  if (path == "/") path = {};
  while (!lines.empty()) {
    const std::string_view other = take_cgroup(lines);
    if (other.size() > path.size() + 1 && other.starts_with(path) && other[path.size()] == '/') {
      return true;
    }
  }
  return false;
}

/// Version 1 has a cgroup for each controller. If the glob matches some of them only, the process
/// may be meant or not.
Match match_cgroups(std::string_view pattern, const RuleFact& lines) {
  if (!lines.known || lines.cut) return Match::kUnknown;
  bool some = false;
  bool all = true;
  size_t count = 0;
  for (std::string_view rest = lines.text; !rest.empty();) {
    const std::string_view path = take_cgroup(rest);
    if (path.empty() || is_above_another(path, lines.text)) continue;
    const bool yes = matches_glob(pattern, path);
    some = some || yes;
    all = all && yes;
    ++count;
  }
  return count == 0 || some != all ? Match::kUnknown : match_of(all);
}

Match match_key(RuleKey key, std::string_view value, const RuleFacts& facts) {
  switch (key) {
    case RuleKey::kProgram: {
      RuleFact program = facts.program;
      if (value.find('/') == std::string_view::npos) {
        if (program.cut) program.known = false;
        program.text = base_name(program.text);
      }
      return match_glob(value, program);
    }
    case RuleKey::kArgs: {
      RuleFact args = facts.args;
      // The last word is ended by a zero byte, too.
      if (!args.cut && args.text.ends_with('\0')) args.text.remove_suffix(1);
      return match_glob(value, args);
    }
    case RuleKey::kUser:
      return match_identity(value, facts.user_file, facts.knows_user, {&facts.user, 1});
    case RuleKey::kGroup:
      return match_identity(value, facts.group_file, facts.knows_groups, facts.groups);
    case RuleKey::kCgroup:
      return match_cgroups(value, facts.cgroup);
    default:
      return Match::kYes;
  }
}

Match match_rule(const ProcessRule& rule, const RuleFacts& facts) {
  Match match = Match::kYes;
  for (size_t i = 0; i < std::size(kRuleKeys); ++i) {
    const auto key = static_cast<RuleKey>(i);
    if (rule.has(key)) match = both(match, match_key(key, rule.value(key), facts));
  }
  return match;
}

/// The name because of which it is not known whether the rule matches, if there is one.
UnknownName unknown_name(const ProcessRule& rule, const RuleFacts& facts) {
  for (const RuleKey key : {RuleKey::kUser, RuleKey::kGroup}) {
    const RuleFact& names = key == RuleKey::kUser ? facts.user_file : facts.group_file;
    if (!rule.has(key) || is_known_name(rule.value(key), names)) continue;
    if (match_key(key, rule.value(key), facts) == Match::kUnknown) return {key, rule.value(key)};
  }
  return {};
}

Ruling ruling_of(const ProcessRule& rule) {
  Ruling ruling;
  ruling.decided = true;
  ruling.line = rule.line;
  ruling.rule = rule.text;
  ruling.mistake = rule.mistake;
  if (rule.mistake.why != Why::kNone) return ruling;
  ruling.policy = rule.policy;
  ruling.gpus = rule.value(RuleKey::kGpus);
  ruling.may_widen = rule.has(RuleKey::kEnvironment);
  ruling.report = rule.value(RuleKey::kReport);
  if (rule.has(RuleKey::kLog)) {
    ruling.log =
        static_cast<int>(place_of_word(row_of(Variable::kLog).accepted, rule.value(RuleKey::kLog)));
  }
  return ruling;
}

constexpr int width(Policy policy) {
  return policy == Policy::kForceCpu ? 0
         : refuses_contexts(policy)  ? 1
         : allows_cuda(policy)       ? 2
                                     : 3;
}

/// True if each entry of the list is, as written, an entry of the other one.
bool is_part(std::string_view list, std::string_view whole) {
  while (!list.empty()) {
    if (place_of_entry(whole, take_entry(list)) == std::string_view::npos) return false;
  }
  return true;
}

/// `set` is the inside of the brackets.
bool is_in_set(std::string_view set, char c) {
  const bool no = set.starts_with('!');
  if (no) set = tail(set, 1);
  const auto byte = static_cast<unsigned char>(c);
  bool found = false;
  while (!set.empty()) {
    const auto low = static_cast<unsigned char>(set[0]);
    const bool range = set.size() > 2 && set[1] == '-';
    const auto high = range ? static_cast<unsigned char>(set[2]) : low;
    found = found || (byte >= low && byte <= high);
    set = tail(set, range ? 3 : 1);
  }
  return found != no;
}

class Glob {
 public:
  explicit Glob(std::string_view pattern)
      : pattern_(pattern), brackets_end_(pattern.rfind(']') + 1) {}

  bool matches(std::string_view text);
  size_t steps() const { return steps_; }

 private:
  size_t end_of_set(size_t at);
  size_t match_one(size_t at, char c);
  bool has_star(size_t at) const { return at < pattern_.size() && pattern_[at] == '*'; }

  std::string_view pattern_;
  size_t brackets_end_;  ///< No set ends after it, so many "[" without an end cost nothing.
  size_t steps_ = 0;
};

/// Returns where a set that begins at `at` ends, or 0 if "[" stands for itself.
size_t Glob::end_of_set(size_t at) {
  size_t end = at + 1;
  if (end < brackets_end_ && pattern_[end] == '!') ++end;
  if (end < brackets_end_ && pattern_[end] == ']') ++end;
  for (; end < brackets_end_ && pattern_[end] != ']'; ++end) ++steps_;
  return end < brackets_end_ ? end : 0;
}

/// Returns the length of the pattern at `at` that matches this character, or 0.
size_t Glob::match_one(size_t at, char c) {
  ++steps_;
  if (at >= pattern_.size()) return 0;
  if (c == '\0') c = ' ';
  if (pattern_[at] == '?') return 1;
  if (pattern_[at] == '[') {
    if (const size_t end = end_of_set(at); end != 0) {
      const std::string_view set = head(tail(pattern_, at + 1), end - at - 1);
      return is_in_set(set, c) ? end + 1 - at : 0;
    }
  }
  return pattern_[at] == c ? 1 : 0;
}

bool Glob::matches(std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0;        // in the pattern
  size_t star = kNone;  // the last star, and where the text went on after it
  size_t retry = 0;
  for (size_t i = 0; i < text.size();) {
    if (has_star(at)) {
      star = at++;
      retry = i;
    } else if (const size_t length = match_one(at, text[i]); length != 0) {
      at += length;
      ++i;
    } else if (star != kNone) {
      at = star + 1;
      i = ++retry;
    } else {
      return false;
    }
  }
  while (has_star(at)) ++at;
  return at == pattern_.size();
}

}  // namespace

bool is_impossible_number(std::string_view value) {
  uint32_t number = 0;
  if (is_number(value)) return !number_from(value, number);
  return (value.starts_with('-') || value.starts_with('+')) && is_number(tail(value, 1));
}

std::string_view take_cgroup(std::string_view& lines) {
  std::string_view path = head(lines, length_of_line(lines));
  lines = tail(lines, path.size() + 1);
  for (int colons = 0; colons < 2; ++colons) {
    const size_t colon = path.find(':');
    path = colon == std::string_view::npos ? std::string_view{} : tail(path, colon + 1);
  }
  return path;
}

bool matches_glob(std::string_view pattern, std::string_view text, size_t* steps) {
  Glob glob(pattern);
  const bool yes = glob.matches(text);
  if (steps != nullptr) *steps = glob.steps();
  return yes;
}

bool take_rule(RuleText& text, ProcessRule& rule) {
  rule = {};
  const size_t separators = skip_to_rule(text);
  rule.begins_list = separators != 0;
  rule.line = text.line;
  if (separators > 1 || (rule.begins_list && text.rest.empty())) {
    rule.mistake.why = Why::kNoRule;
    return true;
  }
  if (text.rest.empty()) return false;
  rule.text = head(text.rest, length_of_line(text.rest));
  const RuleText before = text;
  rule.mistake = take_words(text, rule);
  if (rule.mistake.why != Why::kNone) {
    text = before;
    rule.text = head(text.rest, length_of_line(text.rest));
    skip(text, rule.text.size());
  }
  return true;
}

uint32_t keys_of(std::string_view text, RuleSource source) {
  uint32_t keys = 0;
  ProcessRule rule;
  for (RuleText rest = {text, source}; take_rule(rest, rule);) keys |= rule.given;
  return keys;
}

bool names_by_word(std::string_view text, RuleSource source, RuleKey key) {
  ProcessRule rule;
  for (RuleText rest = {text, source}; take_rule(rest, rule);) {
    if (rule.has(key) && !is_number(rule.value(key))) return true;
  }
  return false;
}

Ruling narrower(const Ruling& one, const Ruling& other) {
  Ruling result = width(other.policy) < width(one.policy) ? other : one;
  result.may_widen = one.may_widen && other.may_widen;
  if (width(result.policy) == 0) return result;
  if (one.gpus.empty() || other.gpus.empty()) {
    result.gpus = one.gpus.empty() ? other.gpus : one.gpus;
  } else if (is_part(other.gpus, one.gpus)) {
    result.gpus = other.gpus;
  } else if (is_part(one.gpus, other.gpus)) {
    result.gpus = one.gpus;
  } else {
    result.policy = Policy::kForceCpu;
    result.gpus = {};
    result.split = true;
  }
  return result;
}

Ruling decide_by_rules(std::string_view text, RuleSource source, const RuleFacts& facts,
                       const Ruling& otherwise) {
  Ruling all;  // of the lists that are complete
  bool has_all = false;
  Ruling now = otherwise;
  ProcessRule rule;
  for (RuleText rest = {text, source}; take_rule(rest, rule);) {
    const bool wrong = rule.mistake.why != Why::kNone;
    if (wrong && source != RuleSource::kFile) return ruling_of(rule);
    if (rule.begins_list) {
      all = has_all ? narrower(all, now) : now;
      has_all = true;
      now = otherwise;
    }
    const Match match = wrong ? Match::kYes : match_rule(rule, facts);
    if (match == Match::kNo) continue;
    const Ruling said = ruling_of(rule);
    if (match == Match::kYes) {
      now = said;
    } else {
      const UnknownName before = now.unknown;
      now = narrower(now, said);
      now.decided = true;
      now.unsure = true;
      now.unknown = before.name.empty() ? unknown_name(rule, facts) : before;
    }
  }
  return has_all ? narrower(all, now) : now;
}

}  // namespace cudaguard
