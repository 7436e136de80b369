// SPDX-License-Identifier: Apache-2.0
#include "shim/guard/record/facts.h"

#include <sys/auxv.h>

#include <cerrno>
#include <cstring>

#include "policy/program.h"
#include "policy/user_code.h"
#include "shim/guard/state/process.h"
#include "shim/guard/sys/system.h"

namespace cudaguard {

namespace {

/// Returns the effective user id. A service may give up its rights after the start, so the owner of
/// /proc/self shows the present id. This needs no extra kind of system call, which a strict seccomp
/// filter might forbid.
uint32_t user(bool at_start) {
  struct stat status = {};
  return at_start || sys::stat("/proc/self", &status) != 0
             ? static_cast<uint32_t>(getauxval(AT_EUID))
             : status.st_uid;
}

constexpr int kMostStarters = 8;

/// Returns the argument that is the script, a file, or nothing. Only for interpreters whose options
/// are not known.
std::string_view find_script(std::string_view arguments) {
  arguments = head(arguments, arguments.rfind('\0') + 1);  // without one that is cut
  std::string_view rest = arguments;
  const Interpreter* interpreter = interpreter_of(base_name(take_argument(rest)));
  if (interpreter == nullptr || interpreter->known) return {};
  ScriptSearch search(arguments);
  for (int i = 0; i < 32; ++i) {
    const std::string_view word = search.next();
    struct stat status = {};
    if (word.empty()) break;
    if (sys::stat(word.data(), &status) == 0 && S_ISREG(status.st_mode)) return word;
  }
  return {};
}

/// Returns the path of the interpreter's script if that is the `code` that a message names;
/// otherwise nothing, also if the path depends on the directory in which the process was started.
std::string_view named_script(const Script& script, std::string_view code) {
  if (script.is_module || file_name(code) != script.name) return {};
  const std::string_view path = code.starts_with('/') ? code : script.path;
  return path.starts_with('/') ? path : std::string_view();
}

bool is_missing(std::string_view path, ProgramRoom& room) {
  struct stat status = {};
  if (path.empty() || path.size() >= sizeof room.starter) return false;
  memcpy(room.starter, path.data(), path.size());
  room.starter[path.size()] = '\0';
  return sys::stat(room.starter, &status) == -ENOENT;
}

/// True for code that came through a pipe, or whose text is in the program that started this one:
/// `python3 - <<EOF`, `bash <(generate)`, `python3 -c CODE`, `ruby -e CODE`. `code`: what a message
/// names; empty if the interpreter's frames are not known.
bool is_elsewhere(const Script& script, std::string_view code) {
  if (script.is_module || !(script.is_code || script.name.empty())) return false;
  return code.empty() || code[0] == '<' || file_name(code).starts_with('/');
}

/// Returns a file of /proc/PID.
std::string_view read_of(uint32_t pid, const char* name, char* to, size_t size) {
  char path[48];
  Text out(path, sizeof path - 1);
  out.print("/proc/%u/%c", pid, name);
  path[out.view().size()] = '\0';
  return read_all(path, to, size);
}

/// Returns 0 if it is not known.
uint32_t parent_of(uint32_t pid) {
  char text[512];
  const int64_t parent = stat_field(read_of(pid, "stat", text, sizeof text), 4);
  return parent < 0 ? 0 : static_cast<uint32_t>(parent);
}

/// Returns the start of this process in clock ticks since boot; -1 if there is no /proc.
int64_t started() {
  char text[512];
  return stat_field(read_all("/proc/self/stat", text, sizeof text), 22);
}

/// Writes "python3 app.py": the first program further out that is more than a shell's command or a
/// tool such as `timeout`. Nothing if the user has typed the command, or cudaguard has started it.
std::string_view find_starter(ProgramRoom& room) {
  std::string_view found;
  uint32_t pid = sys::getppid();
  for (int i = 0; i < kMostStarters && pid > 1; ++i, pid = parent_of(pid)) {
    const std::string_view arguments = read_of(pid, "cmdline", room.starter, sizeof room.starter);
    const Starter starter = starter_of(arguments);
    if (starter == Starter::kFurtherOut) continue;
    if (starter == Starter::kNobody) break;
    if (starter == Starter::kCode && !found.empty()) continue;
    Text out(room.started_by, sizeof room.started_by);
    found = put_program(out, arguments, find_script(arguments)).view();
    if (starter == Starter::kNamed) break;
  }
  return found;
}

}  // namespace

void read_program(ProgramRoom& room, Attempt& attempt) {
  attempt.program = read_all("/proc/self/cmdline", room.arguments, sizeof room.arguments);
  attempt.script = find_script(attempt.program);
  std::string_view rest = attempt.program;
  const std::string_view name = base_name(take_argument(rest));
  const Interpreter* interpreter = interpreter_of(name);
  Script script;
  if (interpreter != nullptr) script = script_of(*interpreter, attempt.program, attempt.script);
  const std::string_view code = named_code(attempt).file;
  // The reader of the message does not find such code, so its starter is named, too.
  const bool is_gone = is_missing(named_script(script, code), room);
  if (is_query_tool(name) || is_gone || (interpreter != nullptr && is_elsewhere(script, code)))
    attempt.started_by = find_starter(room);
  attempt.is_deleted = is_gone && attempt.started_by.empty();
}

std::string_view read_all(const char* path, char* to, size_t size) {
  const sys::File file(path, O_RDONLY | O_CLOEXEC);
  size_t used = 0;
  while (file.ok() && used < size) {
    const long got = sys::read(file.fd(), to + used, size - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  return {to, used};
}

std::string_view read_host(char* to, size_t size) {
  std::string_view host = read_all("/proc/sys/kernel/hostname", to, size);
  if (host.ends_with('\n')) host.remove_suffix(1);
  return host;
}

bool read_file_user(uint32_t& user) {
  // The owner of /proc/self is root after a change of the user, and each thread has a user.
  char text[512];
  std::string_view rest = read_all("/proc/thread-self/status", text, sizeof text);
  if (rest.empty()) rest = read_all("/proc/self/status", text, sizeof text);  // before Linux 3.17
  constexpr std::string_view kLine = "\nUid:";
  const size_t at = rest.find(kLine);
  if (at == std::string_view::npos) return false;
  rest = tail(rest, at + kLine.size());
  for (int i = 0; i < 4; ++i) {  // the real, effective and saved one, and that of files
    rest = tail(rest, 1);
    user = 0;
    for (; !rest.empty() && is_digit(rest.front()); rest = tail(rest, 1)) {
      user = user * 10 + static_cast<uint32_t>(rest.front() - '0');
    }
  }
  return rest.starts_with('\n');
}

ProcessFacts gather_facts(FactsRoom& room, uint32_t pid, const Attempt& attempt) {
  ProcessFacts facts;
  facts.v = {kRecordVersion};
  facts.pid = {pid};
  facts.ppid = {sys::getppid()};
  facts.tid = {sys::gettid()};
  const timespec time = sys::now();
  facts.ts = {static_cast<uint64_t>(time.tv_sec), static_cast<uint32_t>(time.tv_nsec / 1000)};
  facts.uid = {user(attempt.event == EventKind::kStart)};
  char* at = room.text;
  const long length = sys::readlink("/proc/self/exe", at, FactsRoom::kPath);
  if (length > 0) facts.exe.value = {at, static_cast<size_t>(length)};
  facts.argv.value = attempt.program;
  if (const char* job = variable("SLURM_JOB_ID"); job != nullptr) facts.slurm.value = job;
  // These three take as long as the rest of a start record; the record of the first CUDA attempt
  // has them.
  if (attempt.event == EventKind::kStart) return facts;
  facts.since = {started()};
  at += facts.exe.value.size();
  facts.host.value = read_host(at, FactsRoom::kHost);
  at += facts.host.value.size();
  const std::string_view groups = read_all("/proc/self/cgroup", at, FactsRoom::kCgroup);
  facts.cgroup.value = cgroup_of(groups);
  return facts;
}

}  // namespace cudaguard
