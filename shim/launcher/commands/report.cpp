// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include "policy/process_rules.h"
#include "policy/text.h"
#include "shim/launcher/commands/commands.h"
#include "shim/launcher/findings/groups.h"
#include "shim/launcher/findings/records.h"
#include "shim/launcher/format.h"
#include "shim/launcher/message.h"
#include "shim/launcher/print/json.h"
#include "shim/launcher/print/output.h"
#include "shim/launcher/print/print.h"
#include "shim/launcher/print/prometheus.h"

namespace cudaguard::launcher {

namespace {

namespace fs = std::filesystem;

constexpr size_t kPart = size_t{256} << 10;  // stays in the processor's cache

struct Read : ReadFiles {
  Records records;
  std::set<std::pair<dev_t, ino_t>> seen;  ///< each file counts once, by whatever name
  Records::Take take;                      ///< called with each record
};

struct Input {
  std::string path;
  bool of_directory = false;
};

/// Returns one key or two.
Keys keys_of(const Options& options) {
  if (!options.by) return {};
  Keys keys;
  std::string_view rest = *options.by;
  while (!rest.empty() || keys.empty()) {
    const std::string_view word = head(rest, rest.find(','));
    const bool more = word.size() < rest.size();
    rest = tail(rest, word.size() + 1);
    const auto* const by =
        std::ranges::find_if(kByWords, [&](const ByWord& one) { return one.word == word; });
    const bool twice =
        std::ranges::any_of(keys, [&](const ByWord& one) { return one.word == word; });
    if (by != std::end(kByWords) && !twice && keys.size() < 2 && (!more || !rest.empty())) {
      keys.push_back(*by);
      continue;
    }
    throw Refusal(kRefused, "--by " + in_quotes(*options.by) + " is not accepted (accepted: " +
                                joined(kByWords | std::views::transform(&ByWord::word), ", ") +
                                ", or two of these: job,line)");
  }
  return keys;
}

/// Returns the time that "7d", "12h", "30m" or "2026-11-27" means; 0: all records count.
double since_of(const Options& options) {
  if (!options.since) return 0;
  const std::string& text = *options.since;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits != 0 && digits < 7 && digits + 1 == text.size()) {
    const double number = std::stod(text.substr(0, digits));
    const double unit = text[digits] == 'd'   ? 86400
                        : text[digits] == 'h' ? 3600
                        : text[digits] == 'm' ? 60
                                              : 0;
    // No record is from before 1970.
    if (unit != 0) return std::max(1.0, static_cast<double>(time(nullptr)) - number * unit);
  }
  tm date = {};
  const char* const end = strptime(text.c_str(), "%Y-%m-%d", &date);
  const double at = end != nullptr && *end == '\0' ? static_cast<double>(timegm(&date)) : 0;
  if (at > 0 && utc_time(at, "%Y-%m-%d") == text) return at;
  throw Refusal(kRefused,
                "--since " + in_quotes(text) +
                    " is not accepted (accepted: a number of days, hours or minutes, such "
                    "as 7d, 12h or 30m, or a date, such as 2026-11-27)");
}

std::map<uint32_t, std::string> users_of_this_machine() {
  std::map<uint32_t, std::string> users;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(kUserFile, "re"), &fclose);
  if (file == nullptr) return users;
  while (const passwd* entry = fgetpwent(file.get())) {
    users.try_emplace(entry->pw_uid, entry->pw_name);
  }
  return users;
}

Refusal cannot_be_read(const std::string& path, int error) {
  return {kRefused, in_quotes(path) + " cannot be read: " + strerror(error)};
}

/// True for gzip, zstd and xz.
bool is_compressed(std::string_view bytes) {
  for (const std::string_view magic : {"\x1f\x8b", "\x28\xb5\x2f\xfd", "\xfd\x37zXZ"}) {
    if (bytes.starts_with(magic)) return true;
  }
  return false;
}

/// The flags for a file of a directory. In a spool directory, another user may replace it by a
/// pipe, which must not stop root's report, or by a link to any file.
int flags_for(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return O_NONBLOCK | O_NOFOLLOW;
  if (status.st_uid == 0 || status.st_uid == geteuid()) return O_NONBLOCK;
  throw Refusal(kRefused, in_quotes(path) + " is another user's link");
}

/// Opens a file; "-" is the standard input.
int open_input(const Input& input) {
  if (input.path == "-") return dup(STDIN_FILENO);
  const int more = input.of_directory ? flags_for(input.path) : 0;
  const int fd = open(input.path.c_str(), O_RDONLY | O_CLOEXEC | more);
  struct stat status = {};
  if (fd < 0 || !input.of_directory || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))) {
    return fd;
  }
  close(fd);
  errno = EINVAL;
  return -1;
}

/// Goes on where the next data are: any user can make a file of terabytes that has none.
void skip_hole(FILE* file) {
  const off_t at = ftello(file);
  if (at < 0) return;  // a pipe
  const off_t data = lseek(fileno(file), at, SEEK_DATA);
  const bool at_end = data < 0 && errno == ENXIO;
  fseeko(file, data >= 0 ? data : at_end ? 0 : at, at_end ? SEEK_END : SEEK_SET);
}

/// True for a device that may have no end, such as /dev/zero.
bool may_be_endless(int fd, const struct stat& status) {
  if (S_ISBLK(status.st_mode)) return true;
  const bool is_null = status.st_rdev == makedev(1, 3);
  return S_ISCHR(status.st_mode) && !is_null && isatty(fd) == 0;
}

/// Adds the records of a file. Returns false if it is compressed.
bool read_file(const Input& input, Read& all) {
  const std::string name = input.path == "-" ? "standard input" : input.path;
  const int fd = open_input(input);
  if (fd < 0) throw cannot_be_read(name, errno);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fdopen(fd, "r"), &fclose);
  if (file == nullptr) throw cannot_be_read(name, errno);
  struct stat status = {};
  const bool known = fstat(fd, &status) == 0;
  if (known && may_be_endless(fd, status)) {
    throw Refusal(kRefused, in_quotes(name) + " is a device; give a file of records");
  }
  if (known && S_ISREG(status.st_mode) && !all.seen.emplace(status.st_dev, status.st_ino).second)
    return true;
  Lines lines([&](std::string_view line) { all.records.add(line, all.take); });
  std::vector<char> part(kPart);
  for (bool first = true;; first = false) {
    const size_t size = fread(part.data(), 1, part.size(), file.get());
    if (ferror(file.get()) != 0) throw cannot_be_read(name, errno);
    const std::string_view bytes(part.data(), size);
    if (first && is_compressed(bytes)) return false;
    if (bytes.empty()) break;
    lines.feed(bytes);
    if (bytes.find_first_not_of('\0') == std::string_view::npos) skip_hole(file.get());
  }
  lines.finish();
  ++all.files;
  return true;
}

/// Counts an unreadable file of a directory that the user has named, and skips it.
void leave_out(Read& all, const Refusal& refusal) {
  if (all.unreadable++ == 0) all.why = refusal.what();
}

/// The files in the directory: report.jsonl, report.jsonl.1, report.jsonl-20261122, sorted by name.
std::vector<std::string> files_below(const std::string& directory, Read& all) {
  std::vector<std::string> files;
  std::vector<std::string> directories = {directory};
  while (!directories.empty()) {
    const std::string next = std::move(directories.back());
    directories.pop_back();
    std::error_code error;
    fs::directory_iterator entries(next, error);
    for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
      const fs::path& path = entries->path();
      std::error_code gone;
      if (entries->is_directory(gone)) {
        if (!entries->is_symlink(gone)) directories.push_back(path.native());
      } else if (path.filename().native().find(".jsonl") != std::string::npos &&
                 entries->is_regular_file(gone)) {
        files.push_back(path.native());
      }
    }
    if (!error) continue;
    if (next == directory) throw cannot_be_read(next, error.value());
    leave_out(all, cannot_be_read(next, error.value()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Input> inputs_of(char** words, Read& all) {
  std::vector<Input> inputs;
  for (; *words != nullptr; ++words) {
    std::error_code error;
    if (!fs::is_directory(*words, error)) {
      inputs.push_back({*words});
      continue;
    }
    for (std::string& file : files_below(*words, all)) inputs.push_back({std::move(file), true});
  }
  return inputs;
}

std::vector<TakenFile> taken_by(const std::vector<Input>& inputs) {
  std::vector<TakenFile> taken;
  taken.reserve(inputs.size());
  for (const auto& [path, of_directory] : inputs) {
    taken.push_back({path == "-" ? "/dev/stdin" : path, "is a file of records to read"});
  }
  return taken;
}

void read_input(const Input& input, Read& all) {
  try {
    if (read_file(input, all)) return;
  } catch (const Refusal& refusal) {
    if (!input.of_directory) throw;
    leave_out(all, refusal);
    return;
  }
  if (!input.of_directory) {
    throw Refusal(kRefused, in_quotes(input.path) +
                                " is compressed; unpack it first: zcat FILE | cudaguard report - "
                                "(also zstdcat, xzcat)");
  }
  ++all.compressed;
}

void put_list(OutputFile& out, const char* name, const auto& list) {
  std::string text = std::string(",\n\"") + name + "\":[";
  std::string_view before = "\n";
  for (const auto& one : list) {
    Json json;
    json.begin_object();
    put(json, one);
    json.end_object();
    text.append(before).append(json.text());
    before = ",\n";
    if (text.size() < kPart) continue;
    out.put(text);
    text.clear();
  }
  out.put(text + "]");
}

/// Writes one part at a time, because there may be hundreds of thousands of processes.
void write_json(OutputFile& out, const Findings& findings, const Read& all, const Keys& by) {
  Json start;  // its object is still open
  start.begin_object()
      .field("v", 1)
      .field("cudaguard", CUDAGUARD_VERSION)
      .field("files", all.files)
      .field("compressed", all.compressed)
      .field("unreadable", all.unreadable)
      .field("records", findings.records)
      .field("torn", findings.torn)
      .field("not_understood", findings.not_understood);
  if (findings.since != 0) start.field("since", findings.since).field("older", findings.older);
  if (!by.empty()) start.field("by", text_of(by));
  out.put(start.text());
  if (!by.empty()) {
    put_list(out, "groups", groups_of(findings, by));
  } else {
    put_list(out, "places", findings.places);
    put_list(out, "calls", findings.sites);
    put_list(out, "processes", findings.processes);
  }
  put_list(out, "sick_drivers", findings.sick_drivers);
  out.put("}\n");
  out.finish();
}

}  // namespace

int report(const Options& options) {
  const Keys by = keys_of(options);
  Read all;
  all.records.leave_out_before(since_of(options));
  const std::vector<Input> inputs = inputs_of(options.program, all);
  std::vector<TakenFile> taken;
  if (options.json_file || options.html_file || options.prometheus_file) taken = taken_by(inputs);
  OutputFile json("--json", options.json_file, options.force, taken);
  OutputFile html("--html", options.html_file, options.force, taken);
  OutputFile prometheus("--prometheus", options.prometheus_file, options.force, taken);
  Metrics metrics;
  if (prometheus) {
    all.take = [&](std::string_view /*record*/, const WriterFields& writer,
                   const CallFields& call) { metrics.add(writer, call); };
  }
  for (const Input& input : inputs) read_input(input, all);
  all.records.name_users(users_of_this_machine());
  const Findings& findings = all.records.findings();
  const std::string text = text_of_records(findings, all, by);
  if (html) html.write(page_of_records(findings, what_was_read(findings, all), text));
  if (json) write_json(json, findings, all, by);
  if (prometheus) prometheus.write(metrics.text());
  if (!json.is_stdout() && !html.is_stdout() && !prometheus.is_stdout()) print(text);
  return 0;
}

}  // namespace cudaguard::launcher
