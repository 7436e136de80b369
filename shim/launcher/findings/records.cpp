// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/records.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "policy/asked.h"
#include "policy/message.h"
#include "policy/text.h"
#include "shim/launcher/findings/groups.h"

namespace cudaguard::launcher {

namespace {

constexpr int64_t kMostDevice = 4095;
constexpr int64_t kNotInitialised = 3;
constexpr int64_t kNoDevice = 100;
constexpr std::string_view kApi = R"(,"api":")";
// A file in which all differ costs no more memory than these.
constexpr size_t kMostRests = size_t{16} << 20;
constexpr size_t kMostStacks = 10000;
constexpr size_t kMostTexts = 16;
constexpr size_t kMostText = 256;

/// An initialisation that has failed with this CUresult or nvmlReturn_t.
bool has_failed(const Fields& what) {
  return what.decision == "allow" && what.result > 0 &&
         (what.event == "init" || what.event == "nvml");
}

/// What was refused or has failed.
std::string text_of(const Fields& what) {
  if (what.api == kRequestApi)
    return std::string(tail(what.object, what.object.find(' ') + 1)) + " around the guard";
  const std::string by = " by " + what.library;
  if (!has_failed(what)) {
    return what.api + (what.object.empty() ? "" : " ") + std::string(base_name(what.object)) + by;
  }
  if (what.event == "nvml") return "NVML error " + std::to_string(what.result) + by;
  if (what.result == kNotInitialised) return "forked after init";  // no matter by whom
  if (what.result != kNoDevice) return "error " + std::to_string(what.result) + by;
  return (what.api == "dlopen" ? "found no driver" : "found no GPU") + by;
}

bool is_touch(const Fields& rest) {
  return rest.decision == "deny" || rest.event == "init" || rest.event == "nvml";
}

bool begins_as_record(std::string_view text) {
  return text.size() > 1 && head(text, kRecordMark.size()) == head(kRecordMark, text.size());
}

/// 0 is no time.
void note_time(double at, double& first, double& last) {
  if (at == 0) return;
  if (first == 0 || at < first) first = at;
  last = std::max(last, at);
}

}  // namespace

std::string place_of(const PythonFrame& frame) {
  return frame.file + ":" + std::to_string(frame.line);
}

const PythonFrame* own_frame(const Toucher& toucher) {
  const std::vector<PythonFrame>& frames = toucher.stack.python;
  const auto own = std::find_if(frames.begin(), frames.end(), [&](const PythonFrame& frame) {
    return ("/" + place_of(frame)).ends_with("/" + toucher.line);
  });
  return own == frames.end() ? nullptr : &*own;
}

bool Records::SameToucher::operator()(size_t a, size_t b) const {
  const auto key = [&](size_t i) {
    const Toucher& one = touchers[i];
    return std::tie(one.asked, one.denied, one.api, one.object, one.library, one.line, one.stack);
  };
  return key(a) < key(b);
}

bool Records::add(std::string_view line, const Take& take, const Sender* sender) {
  sender_ = sender;
  touched_ = false;
  Kind kind = add_one(line, take);
  const size_t mark = kind == Kind::kRecord ? std::string_view::npos : line.find(kRecordMark, 1);
  if (mark != std::string_view::npos) {
    std::string_view piece = head(line, mark);
    for (line.remove_prefix(mark); !piece.empty(); line.remove_prefix(piece.size())) {
      kind = add_one(piece, take);
      findings_.torn += kind == Kind::kTorn ? 1 : 0;
      findings_.not_understood += kind == Kind::kForeign ? 1 : 0;
      piece = head(line, line.find(kRecordMark, 1));
    }
    return touched_;
  }
  findings_.torn += kind == Kind::kTorn ? 1 : 0;
  findings_.not_understood += kind == Kind::kForeign ? 1 : 0;
  return touched_;
}

/// The guard writes what is said of the process first; the rest is mostly known. Who has ordered
/// the fields otherwise is understood, too.
Records::Kind Records::add_one(std::string_view text, const Take& take) {
  if (text.size() > kMaxRecord) return Kind::kForeign;
  Kind kind = Kind::kForeign;
  clear(fields_);
  const size_t api = text.find(kApi);
  Rest* known = nullptr;
  if (api != std::string_view::npos) {
    scratch_.assign(head(text, api)).append("}");
    if (read_fields(scratch_, fields_) == Whole::kYes && is_only(fields_, true)) {
      known = rest_of(tail(text, api));
    }
  }
  if (known != nullptr) {
    kind = apply(fields_, *known);
  } else {
    Rest rest;
    const Whole whole = read_fields(text, rest.fields);
    if (whole == Whole::kCut && begins_as_record(text)) return Kind::kTorn;
    if (whole == Whole::kYes) kind = apply(rest.fields, rest);
    std::swap(fields_, rest.fields);
  }
  if (kind == Kind::kRecord && take) take(text, static_cast<uint32_t>(fields_.pid));
  return kind;
}

/// `bytes`: from the comma in front of "api" on. Null: it is not the end of a record.
Records::Rest* Records::rest_of(std::string_view bytes) {
  const size_t hash = std::hash<std::string_view>()(bytes);
  const auto [from, to] = rests_.equal_range(hash);
  for (auto place = from; place != to; ++place) {
    if (place->second.bytes == bytes) return &place->second;
  }
  Rest rest;
  rest.bytes = bytes;
  rest.bytes[0] = '{';
  const bool good =
      read_fields(rest.bytes, rest.fields) == Whole::kYes && is_only(rest.fields, false);
  rest.bytes[0] = ',';
  if (!good) return nullptr;
  rests_size_ += sizeof rest + 2 * bytes.size();
  if (rests_size_ > kMostRests) {
    rests_.clear();
    rests_size_ = sizeof rest + 2 * bytes.size();
  }
  return &rests_.emplace(hash, std::move(rest))->second;
}

Records::Kind Records::apply(Fields& who, Rest& rest) {
  if (sender_ != nullptr) {
    who.pid = sender_->pid;
    who.ppid = sender_->ppid;
  }
  const Fields& what = rest.fields;
  const bool starts = what.event == "start" && what.decision.empty();
  const bool known = starts || what.decision == "allow" || what.decision == "deny";
  if (who.v != 1 || who.pid <= 0 || who.pid > INT32_MAX || !known) return Kind::kForeign;
  ++findings_.records;
  const size_t number = process_of(who, starts);
  ObservedProcess& process = findings_.processes[number];
  note_time(who.ts, process.first, process.last);
  if (starts) {
    process.started = who.ts;
    process.policy = what.policy;
    return Kind::kRecord;
  }
  process.only_start = false;
  if (!rest.known) understand(rest);
  note(what, rest.text, process);
  if (!is_touch(what)) return Kind::kRecord;
  Toucher& one = findings_.touchers[rest.toucher];
  note_time(who.ts, one.first, one.last);
  one.processes.push_back(number);
  one.at.push_back(who.ts);
  sorted_ = false;
  touched_ = true;
  return Kind::kRecord;
}

void Records::add_once(Texts& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) != list.end()) return;
  if (list.size() == kMostTexts) return;
  Texts& longer = longer_[{&list.list(), text}];
  if (longer.empty()) longer = list.with(text);
  list = longer;
}

void Records::note(const Fields& what, const std::string& text, ObservedProcess& process) {
  if (what.decision == "deny") {
    add_once(process.refused, text);
  } else if (has_failed(what)) {
    const bool none = what.event == "init" && what.result == kNoDevice;
    (none ? process.found_none : process.failed) = true;
    add_once(process.tried, text);
  } else if (what.result > 0) {
    return;
  } else if (what.event == "init") {
    process.initialised = true;
    process.by = what.library;
    process.told = what.object;
  } else if (what.event == "context") {
    if (what.device >= 0 && what.device <= kMostDevice) {
      process.contexts.insert(static_cast<int>(what.device));
    }
  } else if (what.event == "work") {
    process.worked = true;
  } else if (what.event == "nvml") {
    process.nvml = true;
  }
}

void Records::understand(Rest& rest) {
  rest.known = true;
  rest.text = head(text_of(rest.fields), kMostText);
  if (is_touch(rest.fields)) rest.toucher = toucher_of(rest.fields);
}

size_t Records::key_of(const Fields& who, const std::string& host, const std::string& job) {
  const std::hash<std::string_view> hash;
  return ((hash(host) * 31 + hash(who.exe)) * 31 + hash(job)) * 31 + static_cast<size_t>(who.pid);
}

Records::Places::iterator Records::place_of(const Fields& who, const std::string& host,
                                            const std::string& job) {
  const auto [from, to] = places_.equal_range(key_of(who, host, job));
  for (auto place = from; place != to; ++place) {
    const ObservedProcess& one = findings_.processes[place->second];
    if (one.pid == static_cast<uint32_t>(who.pid) && one.since == since() && one.host == host &&
        one.exe == who.exe && one.job == job) {
      return place;
    }
  }
  return places_.end();
}

/// A start record does not say the host, nor a job that the cgroup tells: the process's first
/// other record does.
bool Records::adopt(const Fields& who, const std::string& job, size_t& number) {
  const auto begun = place_of(who, {}, job_of(who.slurm, {}));
  if (begun == places_.end() || !findings_.processes[begun->second].only_start) return false;
  number = begun->second;
  places_.erase(begun);
  if (const auto older = place_of(who, who.host, job); older != places_.end()) {
    places_.erase(older);
  }
  places_.emplace(key_of(who, who.host, job), static_cast<uint32_t>(number));
  findings_.processes[number].host = who.host;
  findings_.processes[number].job = job;
  return true;
}

size_t Records::process_of(const Fields& who, bool starts) {
  const auto pid = static_cast<uint32_t>(who.pid);
  const std::string job = job_of(who.slurm, who.cgroup);
  bare_starts_ |= starts && who.host.empty();
  size_t number = 0;
  if (!starts && bare_starts_ && !who.host.empty() && adopt(who, job, number)) return number;
  const auto place = place_of(who, who.host, job);
  if (place != places_.end()) {
    // A number that was given again; but files may be read in any order.
    const ObservedProcess& one = findings_.processes[place->second];
    if (!starts || (one.policy.empty() && who.ts <= one.first)) return place->second;
    place->second = static_cast<uint32_t>(findings_.processes.size());
  } else {
    places_.emplace(key_of(who, who.host, job), static_cast<uint32_t>(findings_.processes.size()));
  }
  ObservedProcess& process = findings_.processes.emplace_back();
  process.host = who.host;
  process.pid = pid;
  process.since = since();
  process.ppid = who.ppid < 0 ? 0 : static_cast<uint32_t>(who.ppid);
  if (who.uid >= 0) process.uid = static_cast<uint32_t>(who.uid);
  process.exe = who.exe;
  process.command = who.command.empty() ? std::string(base_name(who.exe)) : who.command;
  if (process.command.empty()) process.command = "?";  // without /proc
  process.job = job;
  return findings_.processes.size() - 1;
}

size_t Records::toucher_of(const Fields& what) {
  std::vector<Toucher>& all = findings_.touchers;
  Toucher one;
  one.asked = asked_for(what.api, what.object);
  one.denied = what.decision == "deny";
  one.api = what.api;
  if (one.denied || what.api == "dlopen") one.object = what.object;  // else what it was told
  one.library = what.library;
  one.line = what.code;
  if (all.size() < kMostStacks) {
    one.stack = what.stack;
  } else {
    one.stack.python_missing = one.stack.native_missing = "too many that differ";
  }
  all.push_back(std::move(one));
  const auto [place, is_new] = touchers_.insert(all.size() - 1);
  if (!is_new) all.pop_back();
  return *place;
}

const Findings& Records::findings() {
  if (sorted_) return findings_;
  sorted_ = true;
  for (Toucher& one : findings_.touchers) keep_first(one.processes, one.at);
  group_by_place(findings_);
  return findings_;
}

}  // namespace cudaguard::launcher
