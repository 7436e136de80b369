// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/findings/records.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "policy/driver_api.h"
#include "policy/program.h"
#include "policy/text.h"
#include "policy/user_code.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/findings/groups.h"

namespace cudaguard::launcher {

namespace {

constexpr int64_t kMostDevice = 4095;
constexpr std::string_view kApi = R"(,"api":")";
constexpr std::string_view kTableApi = "cuGetExportTable";
// Limits the memory for a file in which all rests differ.
constexpr size_t kMostRests = size_t{16} << 20;
constexpr size_t kMostStacks = 10000;
constexpr size_t kMostTexts = 16;
constexpr size_t kMostText = 256;

/// True if an initialisation has failed with this CUresult or nvmlReturn_t.
bool has_failed(const CallFields& call) {
  return call.decision == "allow" && call.result > 0 &&
         (call.event == "init" || call.event == "nvml");
}

/// The text about a call that was refused or has failed.
std::string text_of(const CallFields& call) {
  if (call.api == kRequestApi)
    return std::string(tail(call.object, call.object.find(' ') + 1)) + " bypassing the guard";
  const std::string by = " by " + call.library;
  if (!has_failed(call)) {
    return call.api + (call.object.empty() ? "" : " ") + std::string(base_name(call.object)) + by;
  }
  if (call.event == "nvml") return "NVML error " + std::to_string(call.result) + by;
  if (call.result == kNotInitialized) return "forked after init";  // for any caller
  if (call.result != kNoDevice) return "error " + std::to_string(call.result) + by;
  return (call.api == "dlopen" ? "found no driver" : "found no GPU") + by;
}

DriverApi asked_by(const CallFields& call) {
  for (const DriverApi one : kDriverApis) {
    if (call.asked == word_of(one)) return one;
  }
  return DriverApi::kCuda;
}

bool is_attempt(const CallFields& call) {
  return call.decision == "deny" || call.event == "init" || call.event == "nvml" ||
         call.event == "context";
}

void add_once(std::vector<SharedText>& list, const SharedText& text) {
  const bool is_known =
      std::any_of(list.begin(), list.end(), [&](const SharedText& one) { return *one == *text; });
  if (!is_known && list.size() < kMostTexts) list.push_back(text);
}

bool begins_as_record(std::string_view text) {
  return text.size() > 1 && head(text, kRecordMark.size()) == head(kRecordMark, text.size());
}

}  // namespace

bool Records::SameCallSite::operator()(size_t a, size_t b) const {
  const auto key = [&](size_t i) {
    const CallSite& one = sites[i];
    return std::tie(one.asked, one.denied, one.api, one.object, one.library, one.line,
                    one.started_by, one.stack);
  };
  return key(a) < key(b);
}

bool Records::add(std::string_view line, const Take& take, const Sender* sender) {
  sender_ = sender;
  is_attempt_ = false;
  if (const Kind kind = add_one(line, take); kind == Kind::kRecord || kind == Kind::kOld) {
    return is_attempt_;
  }
  do {
    const std::string_view piece = head(line, line.find(kRecordMark, 1));
    const Kind kind = add_one(piece, take);
    findings_.torn += kind == Kind::kTorn ? 1 : 0;
    findings_.not_understood += kind == Kind::kForeign ? 1 : 0;
    line.remove_prefix(piece.size());
  } while (!line.empty());
  return is_attempt_;
}

/// The guard writes the facts about the process first, and the rest is mostly known already. A
/// record with another order of fields is understood, too.
Records::Kind Records::add_one(std::string_view text, const Take& take) {
  if (text.size() > kMaxRecord) return Kind::kForeign;
  WriterFields writer;
  Rest only_here;
  Rest* rest = nullptr;
  if (const size_t api = text.find(kApi); api != std::string_view::npos) {
    scratch_.assign(head(text, api)).append("}");
    CallFields none;
    const bool good = read_fields(scratch_, writer, none) == Whole::kYes && none == CallFields();
    if (good) rest = rest_of(tail(text, api));
  }
  if (rest == nullptr) {
    writer = {};
    rest = &only_here;
    const Whole whole = read_fields(text, writer, rest->call);
    if (whole == Whole::kCut && begins_as_record(text)) return Kind::kTorn;
    if (whole != Whole::kYes) return Kind::kForeign;
  }
  const Kind kind = apply(writer, *rest);
  if (kind == Kind::kRecord && take) take(text, writer, rest->call);
  return kind;
}

/// `bytes` starts at the comma before "api". Null if this is not the end of a record.
Records::Rest* Records::rest_of(std::string_view bytes) {
  if (const auto known = rests_.find(bytes); known != rests_.end()) return &known->second;
  scratch_.assign(bytes);
  scratch_[0] = '{';
  Rest rest;
  WriterFields writer;
  if (read_fields(scratch_, writer, rest.call) != Whole::kYes || writer != WriterFields()) {
    return nullptr;
  }
  rests_size_ += sizeof rest + 2 * bytes.size();
  if (rests_size_ > kMostRests) {
    rests_.clear();
    rests_size_ = sizeof rest + 2 * bytes.size();
  }
  return &rests_.emplace(bytes, std::move(rest)).first->second;
}

Records::Kind Records::apply(WriterFields& writer, Rest& rest) {
  if (sender_ != nullptr) {
    writer.pid = sender_->pid;
    writer.ppid = sender_->ppid;
  }
  const CallFields& call = rest.call;
  writer.argv.is_cut |= call.cut.argv;
  const bool starts = call.event == "start" && call.decision.empty();
  const bool refused = call.decision == "refuse";
  const bool native = call.event == "native";
  const bool known =
      starts || native || call.decision == "allow" || call.decision == "deny" || refused;
  if (writer.v != kRecordVersion || writer.pid <= 0 || writer.pid > INT32_MAX || !known)
    return Kind::kForeign;
  if (writer.ts != 0 && writer.ts < findings_.since) {
    findings_.older += native ? 0 : 1;
    return Kind::kOld;
  }
  if (native) {
    native_ = {call.native, call.native_missing};
    native_ts_ = writer.ts;
    return Kind::kRecord;
  }
  ++findings_.records;
  const NativeStack beside = std::exchange(native_, {});
  if (call.event == "health") {
    if (call.decision == "deny") note_sick(writer, call);
    return Kind::kRecord;
  }
  if (!starts && writer.exe.empty() && writer.argv.text.empty()) name_program(writer);
  const size_t number = process_of(writer, starts);
  ObservedProcess& process = findings_.processes[number];
  note_times(writer.ts, writer.ts, process);
  if (starts) {
    process.started = writer.ts;
    process.policy = call.policy;
    return Kind::kRecord;
  }
  if (call.event == "exposed") {
    process.exposed.insert(asked_by(call));
    return Kind::kRecord;
  }
  process.only_start = false;
  process.by_guard |= call.api != kRequestApi;
  process.last_place |= call.last_place;
  if (refused) process.not_loaded.insert(asked_by(call));
  if (!rest.known) understand(rest);
  note(call, rest.text, process);
  if (rest.rule != nullptr) process.rule = rest.rule;
  if (!is_attempt(call)) return Kind::kRecord;
  const bool is_beside = beside.is_known() && native_ts_ == writer.ts;
  const NativeStack& stack = sender_ != nullptr ? sender_->native
                             : is_beside        ? beside
                                                : NativeStack();
  // The guard cannot name what has started a tool and has ended since.
  const bool is_orphan = sender_ != nullptr && !sender_->started_by.empty() &&
                         call.started_by.empty() && is_query_tool(process.command.program());
  const std::string& started_by = is_orphan ? sender_->started_by : call.started_by;
  const bool is_own = stack.is_known() || is_orphan;
  if (!is_own && !rest.site) rest.site = site_of(call, stack, started_by);
  CallSite& one = findings_.sites[is_own ? site_of(call, stack, started_by) : *rest.site];
  note_times(writer.ts, writer.ts, one);
  one.processes.push_back(number);
  one.at.push_back(writer.ts);
  is_attempt_ = true;
  return Kind::kRecord;
}

void Records::note_sick(const WriterFields& writer, const CallFields& call) {
  std::vector<SickDriver>& all = findings_.sick_drivers;
  const auto [place, is_new] = sick_hosts_.try_emplace(writer.host, all.size());
  if (is_new) all.push_back({writer.host, "", 0, 0, 0});
  SickDriver& one = all[place->second];
  if (writer.ts >= one.last) one.reason = head(call.reason, kMostText);
  note_times(writer.ts, writer.ts, one);
  ++one.programs;
}

void Records::note(const CallFields& call, const SharedText& text, ObservedProcess& process) {
  if (call.decision == "deny" || call.decision == "refuse") {
    add_once(process.refused, text);
    process.in_vain |= asked_by(call) != DriverApi::kContext;
  } else if (has_failed(call)) {
    process.in_vain |= call.event == "nvml" || call.result != kNotInitialized;
    const bool none = call.event == "init" && call.result == kNoDevice;
    (none ? process.found_none : process.failed) = true;
    add_once(process.tried, text);
  } else if (call.result > 0) {
    return;
  } else if (call.event == "init") {
    process.initialised = true;
    process.by = call.library;
    process.visible_devices = call.object;
  } else if (call.event == "context") {
    if (call.device >= 0 && call.device <= kMostDevice) {
      process.contexts.insert(static_cast<int>(call.device));
    }
    process.memory |= call.device < 0;
  } else if (call.event == "work") {
    process.worked = true;
  } else if (call.event == "nvml") {
    process.nvml = true;
  }
}

void Records::understand(Rest& rest) {
  rest.known = true;
  rest.text = std::make_shared<const std::string>(head(text_of(rest.call), kMostText));
  if (rest.call.rule.empty()) return;
  rest.rule = std::make_shared<const std::string>(head(rest.call.rule, kMostText));
}

size_t Records::key_of(const WriterFields& writer, const std::string& host,
                       const std::string& job) {
  const std::hash<std::string_view> hash;
  return ((hash(host) * 31 + hash(writer.exe)) * 31 + hash(job)) * 31 +
         static_cast<size_t>(writer.pid);
}

/// False for a process that has called execve, which may have sent no start record.
bool Records::is_image_of(const ObservedProcess& process) const {
  return sender_ == nullptr || sender_->image.back() == 0 || process.image.back() == 0 ||
         sender_->image == process.image;
}

/// After a chroot, or the end of its first thread, a process finds no /proc that names its program.
/// Its start record did.
void Records::name_program(WriterFields& writer) const {
  if (sender_ == nullptr) return;
  const auto& all = findings_.processes;
  const auto known = std::find_if(all.rbegin(), all.rend(), [&](const ObservedProcess& one) {
    return one.pid == sender_->pid && one.since == sender_->since && is_image_of(one);
  });
  if (known == all.rend()) return;
  writer.exe = known->exe;
  writer.argv = known->command;
}

Records::Index::iterator Records::entry_of(const WriterFields& writer, const std::string& host,
                                           const std::string& job) {
  const auto [from, to] = index_.equal_range(key_of(writer, host, job));
  for (auto entry = from; entry != to; ++entry) {
    const ObservedProcess& one = findings_.processes[entry->second];
    if (one.pid == static_cast<uint32_t>(writer.pid) && one.since == since() && one.host == host &&
        one.exe == writer.exe && one.job == job && is_image_of(one)) {
      return entry;
    }
  }
  return index_.end();
}

/// Finds a process by its start record. That record has no host and no job from the cgroup; the
/// first other record supplies them.
bool Records::adopt(const WriterFields& writer, const std::string& job, size_t& number) {
  const auto begun = entry_of(writer, {}, job_of(writer.slurm, {}));
  if (begun == index_.end() || !findings_.processes[begun->second].only_start) return false;
  number = begun->second;
  index_.erase(begun);
  if (const auto older = entry_of(writer, writer.host, job); older != index_.end()) {
    index_.erase(older);
  }
  index_.emplace(key_of(writer, writer.host, job), static_cast<uint32_t>(number));
  findings_.processes[number].host = writer.host;
  findings_.processes[number].job = job;
  return true;
}

size_t Records::process_of(const WriterFields& writer, bool starts) {
  const auto pid = static_cast<uint32_t>(writer.pid);
  const std::string job = job_of(writer.slurm, writer.cgroup);
  starts_without_host_ |= starts && writer.host.empty();
  size_t number = 0;
  if (!starts && starts_without_host_ && !writer.host.empty() && adopt(writer, job, number))
    return number;
  const auto entry = entry_of(writer, writer.host, job);
  if (entry != index_.end()) {
    // A start record may mean a reused process id, but files may be read in any order.
    const ObservedProcess& one = findings_.processes[entry->second];
    if (!starts || (one.policy.empty() && writer.ts <= one.first)) return entry->second;
    entry->second = static_cast<uint32_t>(findings_.processes.size());
  } else {
    index_.emplace(key_of(writer, writer.host, job),
                   static_cast<uint32_t>(findings_.processes.size()));
  }
  ObservedProcess& process = findings_.processes.emplace_back();
  process.host = writer.host;
  process.pid = pid;
  process.since = since();
  if (sender_ != nullptr) process.image = sender_->image;
  process.ppid = writer.ppid < 0 ? 0 : static_cast<uint32_t>(writer.ppid);
  if (writer.uid >= 0) process.uid = static_cast<uint32_t>(writer.uid);
  process.exe = writer.exe;
  process.command = writer.argv;
  if (process.command.text.empty()) process.command.text = base_name(writer.exe);
  if (process.command.text.empty()) process.command.text = "?";  // there is no /proc
  process.job = job;
  return findings_.processes.size() - 1;
}

size_t Records::site_of(const CallFields& call, const NativeStack& native,
                        const std::string& started_by) {
  std::vector<CallSite>& all = findings_.sites;
  CallSite one;
  one.asked = asked_by(call);
  one.denied = call.decision == "deny";
  one.api = call.api;
  if (one.denied || call.api == "dlopen") one.object = call.object;  // not the device list
  one.library = call.library;
  one.passes_on = call.passes_on;
  one.line = call.code;
  one.started_by = started_by;
  if (all.size() < kMostStacks) {
    // Without a stack there is the caller alone.
    const std::vector<NativeFrame>& frames = native.frames.empty() ? call.native : native.frames;
    const std::string& missing = native.frames.empty() ? native.cut : std::string();
    one.stack = {call.python, call.line_frame, frames, call.python_missing, missing};
  } else {
    one.stack.python_missing = one.stack.native_missing = "too many that differ";
  }
  all.push_back(std::move(one));
  const auto [place, is_new] = sites_.insert(all.size() - 1);
  if (!is_new) all.pop_back();
  return *place;
}

/// A refused export table is an attempt of its own only if no cuInit of the same process follows,
/// by the same library and at the same line: --allow may accept the one and not the other.
void Records::leave_out_tables() {
  using Asker = std::tuple<size_t, std::string, std::string>;
  std::map<Asker, double> inits;  // the last cuInit of each process, library and line
  const auto is_refused = [](const CallSite& site, std::string_view api) {
    return site.denied && site.api == api;
  };
  std::vector<CallSite>& sites = findings_.sites;
  for (const CallSite& site : sites) {
    if (!is_refused(site, "cuInit")) continue;
    for (size_t i = 0; i < site.processes.size(); ++i) {
      double& last = inits[{site.processes[i], site.library, site.line}];
      last = std::max(last, site.at[i]);
    }
  }
  std::map<size_t, bool> asks;  // of each process with a table: whether one is left
  const size_t before = sites.size();
  std::erase_if(sites, [&](CallSite& site) {
    if (!is_refused(site, kTableApi)) return false;
    size_t left = 0;
    for (size_t i = 0; i < site.processes.size(); ++i) {
      const size_t process = site.processes[i];
      const auto init = inits.find({process, site.library, site.line});
      const bool stays = init == inits.end() || init->second < site.at[i];
      asks[process] |= stays;
      if (!stays) continue;
      site.processes[left] = process;
      site.at[left++] = site.at[i];
    }
    site.processes.resize(left);
    site.at.resize(left);
    return left == 0;
  });
  for (const auto& [process, is_left] : asks) {
    if (is_left) continue;
    std::erase_if(findings_.processes[process].refused,
                  [](const SharedText& text) { return text->starts_with(kTableApi); });
  }
  if (sites.size() == before) return;
  rests_.clear();  // These two have the old numbers of the sites.
  sites_.clear();
  for (size_t i = 0; i < sites.size(); ++i) sites_.insert(i);
}

const Findings& Records::findings() {
  leave_out_tables();
  for (CallSite& one : findings_.sites) keep_first(one.processes, one.at);
  group_by_place(findings_);
  return findings_;
}

void Lines::feed(std::string_view part) {
  for (size_t end = part.find('\n'); end != std::string_view::npos; end = part.find('\n')) {
    if (rest_.empty() && !skipping_) {
      take_(head(part, end));
    } else {
      rest_.append(head(part, end));
      finish();
    }
    part.remove_prefix(end + 1);
  }
  rest_.append(part);
  if (skipping_ && rest_.find(kRecordMark) != std::string::npos) leave_out();
  if (rest_.size() <= kMaxRecord) return;
  // If a writer was killed, its record has no newline. A crash of the machine may leave zeros.
  const size_t mark = rest_.rfind(kRecordMark);
  if (mark != std::string::npos && mark != 0) {
    take_(head(rest_, mark));
    rest_.erase(0, mark);
  } else {
    skipping_ = true;
    rest_.erase(0, rest_.size() + 1 - kRecordMark.size());  // a mark may begin here
  }
}

void Lines::finish() {
  if (skipping_) leave_out();
  if (!rest_.empty()) take_(rest_);
  rest_.clear();
}

void Lines::leave_out() {
  take_({});
  rest_.erase(0, rest_.find(kRecordMark));
  skipping_ = false;
}

}  // namespace cudaguard::launcher
