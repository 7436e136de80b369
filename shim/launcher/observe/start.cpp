// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/start.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/text.h"
#include "policy/variables.h"
#include "shim/launcher/elf/binfmt.h"
#include "shim/launcher/elf/elf_file.h"
#include "shim/launcher/elf/program.h"
#include "shim/launcher/observe/exec_call.h"
#include "shim/launcher/observe/process.h"
#include "shim/launcher/preload/judge.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/process.h"

namespace cudaguard::launcher {

namespace {

/// The kernel's own limit of one string.
constexpr size_t kMostString = size_t{32} * 4096;
constexpr uint64_t kLeastRoom = uint64_t{128} << 10;

/// One search through the whole file.
bool has_names(const std::string& path) {
  constexpr std::string_view kNames[] = {"/dev/nvidia", "libcuda.so", "libnvidia-ml.so"};
  const FileBytes file(path);
  return std::ranges::any_of(kNames, [&](std::string_view name) { return contains(file, name); });
}

/// True if a process has the file open for writing, so that execve answers ETXTBSY.
bool is_written(const std::string& path, const struct stat& status) {
  constexpr time_t kRecent = 600;  // seconds; only a file that was just made has writers
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec - status.st_ctim.tv_sec > kRecent) return false;
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // A writer that comes in this moment waits for the end of the lease. The signal that reports it
  // is one that the launcher expects.
  fcntl(file.number(), F_SETSIG, SIGCHLD);
  const bool is_leased = fcntl(file.number(), F_SETLEASE, F_RDLCK) == 0;
  const bool has_writer = !is_leased && errno == EAGAIN;
  if (is_leased) fcntl(file.number(), F_SETLEASE, F_UNLCK);
  return has_writer;
}

void examine_elf(const std::string& path, const ElfFacts& elf, FileFacts& facts) {
  using Kind = FileFacts::Kind;
  const Examined examined = examine_file({path, elf});
  facts.kind = Kind::kDynamic;
  facts.interpreter = elf.interpreter;
  if (!examined.hindrances.empty()) {
    const std::string_view id = examined.hindrances.front().id;
    facts.kind = Kind::kUnguarded;
    facts.why = examined.hindrances.front().why;
    facts.never_guarded = id == "musl";
    facts.word = id == "static_driver" ? "static" : id == "architecture" ? "32-bit" : id;
    facts.foreign = is_foreign(elf);
  } else if (examined.kind == Examined::Kind::kLauncher || id_of(path) == executable_id(getpid())) {
    facts.kind = Kind::kLauncher;
  } else if (examined.kind == Examined::Kind::kLoader) {
    facts.is_loader = true;
  } else if (examined.kind == Examined::Kind::kStatic) {
    facts.kind = Kind::kUnguarded;
    facts.word = "static";
    facts.why = "it is a static executable";
  }
}

FileFacts examine(const std::string& path) {
  FileFacts facts;
  const FileBytes file(path);
  if (file.error() != 0) {
    facts.kind = FileFacts::Kind::kUnreadable;
    return facts;
  }
  facts.has_capabilities = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  const std::string head = read_head(file);
  ScriptLine line = read_script(head);
  if (!line.interpreter.empty()) {
    facts.interpreter = std::move(line.interpreter);
    facts.kind = FileFacts::Kind::kScript;
    return facts;
  }
  const ElfFacts elf = read_elf(file);
  // The kernel looks at the program's header alone.
  const bool runs = elf.is_elf && (!elf.loads.empty() || !elf.is_64 || !elf.little_endian);
  if (runs) examine_elf(path, elf, facts);
  if (facts.kind == FileFacts::Kind::kOther || facts.foreign) facts.head = head;
  return facts;
}

}  // namespace

FileFacts& Executables::of(const std::string& path, const FileId& id) {
  const auto known = files_.find(id);
  if (known != files_.end()) return known->second;
  FileFacts facts = examine(path);
  // Another file may have got this name, or the process another program.
  const bool same = id_of(path) == id;
  return files_.insert_or_assign(same ? id : FileId{}, std::move(facts)).first->second;
}

bool Executables::names_nvidia(const std::string& path) {
  FileFacts& facts = of(path);
  if (!facts.names_nvidia) facts.names_nvidia = has_names(path);
  return *facts.names_nvidia;
}

struct StartReader::Strings {
  std::vector<std::string> words;  ///< the arguments of an ld.so
  std::optional<std::string> preload;
  std::string hello;
  bool lists = false;  ///< LD_TRACE_LOADED_OBJECTS
};

namespace {

/// Reads a list of pointers that ends with a null pointer. Returns false if it is unreadable.
bool read_pointers(WaitingProcess& memory, uint64_t from, size_t size, std::vector<uint64_t>& to) {
  if (from == 0) return true;
  constexpr size_t kMost = size_t{1} << 20;
  for (; to.size() < kMost; from += size) {
    uint64_t pointer = 0;
    if (!memory.read(from, &pointer, size)) return false;
    if (pointer == 0) return true;
    to.push_back(pointer);
  }
  return true;
}

/// The most bytes that execve takes, for the strings and their pointers.
uint64_t most_bytes(pid_t process) {
  constexpr uint64_t kMost = uint64_t{6} << 20;
  rlimit stack = {RLIM_INFINITY, RLIM_INFINITY};
  prlimit(process, RLIMIT_STACK, nullptr, &stack);
  return std::max<uint64_t>(kLeastRoom, std::min<uint64_t>(kMost, stack.rlim_cur / 4));
}

/// Why the memory of the calling process cannot be read.
std::string why_closed(pid_t thread) {
  if (access(("/proc/" + std::to_string(thread)).c_str(), F_OK) != 0)
    return "/proc does not show it";
  std::string scope;
  read_file("/proc/sys/kernel/yama/ptrace_scope", scope, 1);
  if (scope >= "2") {
    return "kernel.yama.ptrace_scope is " + scope.substr(0, 1) + ", so no memory can be read";
  }
  const std::vector<uint64_t> users = status_of(thread, "Uid");  // real, effective, saved, of files
  if (users.size() > 1 && users[1] != geteuid()) {
    return "started by user " + std::to_string(users[1]) + ", whose memory cannot be read";
  }
  return "started by a process that does not let others look at its memory";
}

}  // namespace

StartReader::StartReader(const std::string& guard) : guard_(id_of(guard)) {}

/// False if the file's ld.so is missing or no executable, so that execve fails. Examines it once.
bool StartReader::has_interpreter(ExecCall& call, FileFacts& facts) const {
  if (facts.is_complete || facts.interpreter.empty()) return true;
  const Descriptor file = call.open_file(facts.interpreter, X_OK);
  if (call.hides_files() || call.is_lost()) return true;
  struct stat status = {};
  if (fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  facts.is_complete = true;
  const ElfFacts elf = read_elf(FileBytes(file.path()));
  // The name of a 32-bit one is not read.
  const std::string_view name = elf.is_64 ? elf.soname : base_name(facts.interpreter);
  facts.by_loader = name.starts_with("ld-linux") || name.starts_with("ld.so");
  if (facts.kind == FileFacts::Kind::kDynamic && !facts.by_loader) {
    facts.kind = FileFacts::Kind::kUnguarded;
    facts.word = "its interpreter is not glibc's ld.so";
  }
  return true;
}

/// Sets the kind, as far as it follows from the file.
void StartReader::judge_file(ExecCall& call, Start& start) {
  using Kind = FileFacts::Kind;
  std::string name = call.full_name(start.program);
  bool follow = (call.flags & AT_SYMLINK_NOFOLLOW) == 0 || start.program.empty();
  for (int i = 0; i <= kMostScripts; ++i) {
    call.opened = call.open_file(name, X_OK, std::exchange(follow, true));
    start.kind = Start::Kind::kUnknown;
    if (call.opened.number() < 0 && call.hides_files()) {
      start.reason = why_closed(call.thread);
      return;
    }
    if (call.is_lost()) {
      start.reason = call.error == EXDEV
                         ? "verify cannot follow its name"
                         : std::string("verify cannot open its file: ") + strerror(call.error);
      return;
    }
    start.kind = Start::Kind::kFails;
    start.reason = "its file could not be executed at first";
    struct stat status = {};
    if (fstat(call.opened.number(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    const std::string path = call.opened.path();
    if (is_written(path, status)) return;
    start.file = id_of(status);
    FileFacts& facts = executables_.of(path, start.file);
    if (facts.kind == Kind::kScript) {
      start.texts.push_back(std::exchange(name, facts.interpreter));
      call.added += name.size() + 1;
      continue;
    }
    if (facts.kind == Kind::kOther || facts.foreign) {
      if (is_emulated(facts.head, name)) start.kind = Start::Kind::kUnknown;
      start.reason = "binfmt_misc decides what runs it";
      return;
    }
    if (!has_interpreter(call, facts)) return;
    const std::string privileges = call.privileges(status, facts.has_capabilities);
    call.is_privileged = !privileges.empty();
    call.is_loader = facts.is_loader || (facts.word == "32-bit" && facts.interpreter.empty() &&
                                         base_name(name).starts_with("ld-linux"));
    call.by_loader = call.is_loader || facts.by_loader;
    start.reason = facts.word;
    start.is_final = facts.never_guarded;
    if (facts.kind == Kind::kLauncher) {
      start.kind = Start::Kind::kLauncher;
    } else if (facts.kind == Kind::kUnguarded || !privileges.empty()) {
      start.kind = Start::Kind::kUnguarded;
      if (start.reason.empty()) start.reason = privileges;
    } else if (facts.kind == Kind::kUnreadable) {
      start.kind = Start::Kind::kUnknown;
      start.reason = "its file cannot be read";
    } else {
      start.kind = Start::Kind::kGuarded;
    }
    return;
  }
}

/// The program that an ld.so with these arguments starts; empty if it starts none.
std::string program_of(const std::vector<std::string>& words) {
  constexpr std::string_view kWithValue[] = {
      "--library-path",      "--inhibit-rpath",       "--audit", "--preload", "--argv0",
      "--glibc-hwcaps-mask", "--glibc-hwcaps-prepend"};
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) return word;
    if (word == "--verify" || word == "--help" || word == "--version" ||
        word.starts_with("--list")) {
      break;
    }
    if (std::ranges::find(kWithValue, word) != std::end(kWithValue)) ++i;
  }
  return {};
}

void StartReader::judge_strings(ExecCall& call, const Strings& strings, Start& start) const {
  const auto unguarded = [&](const char* reason) {
    start.kind = Start::Kind::kUnguarded;
    start.reason = reason;
  };
  if (call.is_loader) start.texts.push_back(program_of(strings.words));
  if ((call.is_loader && start.texts.back().empty()) ||
      (call.by_loader && !call.is_privileged && strings.lists)) {
    start.kind = Start::Kind::kLists;
    return;
  }
  if (start.kind != Start::Kind::kGuarded) return;
  if (!strings.preload) return unguarded("its environment has no LD_PRELOAD");
  bool replaced = true;
  bool found = false;
  for (const std::string& entry : preload_entries(strings.preload->c_str())) {
    if (!base_name(entry).starts_with("libcudaguard.so")) continue;
    replaced = false;
    const FileId id = entry.front() == '/' ? id_of(call.absolute(entry)) : FileId{};
    found |= entry.front() != '/' || id != FileId{};
    // If another user may not, ld.so goes on without it.
    start.own_guard |= id != FileId{} && id == guard_ && call.may_load(entry);
  }
  if (replaced) return unguarded("its LD_PRELOAD was replaced");
  if (!found) return unguarded("its LD_PRELOAD names a guard that is not there");
  if (strings.hello == "1") return;
  // The guard may work without this variable, but sends no start beacon.
  start.kind = Start::Kind::kUnknown;
  start.reason = "its environment has no CUDAGUARD_HELLO=1";
}

bool StartReader::names_nvidia(ExecCall& call, const std::string& path, const Start& start) {
  return executables_.names_nvidia(path) ||
         std::ranges::any_of(start.texts, [&](const std::string& name) {
           const Descriptor file = call.open_file(name);
           return file.number() >= 0 && executables_.names_nvidia(file.path());
         });
}

bool StartReader::names_nvidia(pid_t pid, const Start& start) {
  ExecCall call(pid, {});
  return names_nvidia(call, call.proc("exe"), start);
}

/// Reads the arguments and the environment. Returns false if execve will fail because of them.
bool StartReader::read_strings(const ExecCall& call, WaitingProcess& memory, Strings& strings,
                               Start& start) {
  std::vector<uint64_t> pointers;
  if (!read_pointers(memory, call.words, call.pointer, pointers)) return false;
  const size_t words = pointers.size();
  if (!read_pointers(memory, call.variables, call.pointer, pointers)) return false;
  std::string text;
  const auto value = [&text](std::string_view name) -> std::optional<std::string> {
    if (!text.starts_with(name) || !tail(text, name.size()).starts_with('=')) return {};
    return text.substr(name.size() + 1);
  };
  uint64_t size = pointers.size() * call.pointer + start.program.size() + 1 + call.added;
  for (size_t i = 0; i < pointers.size(); ++i) {
    if (!memory.has(pointers[i])) memory.fetch(std::span(pointers).subspan(i));
    text.clear();
    if (!memory.read_text(pointers[i], kMostString, text) || text.size() == kMostString)
      return false;
    size += text.size() + 1;
    if (i < words) {
      start.command.add(head(text, Command::kMost));
      // A script's process gets the arguments of its interpreter.
      if (start.texts.empty() && start.arguments.size() < kMostCommand) {
        start.arguments.append(text).push_back('\0');
        start.arguments.resize(std::min(start.arguments.size(), kMostCommand));
      }
      if (call.is_loader) strings.words.push_back(text);
    } else {
      // For ld.so and for the guard the last one counts.
      if (auto list = value("LD_PRELOAD")) strings.preload = std::move(list);
      if (auto hello = value(kHello)) strings.hello = std::move(*hello);
      strings.lists |= value("LD_TRACE_LOADED_OBJECTS").has_value();
    }
  }
  return size <= kLeastRoom || size <= most_bytes(call.thread);
}

Start StartReader::read(pid_t thread, const seccomp_data& data) {
  ExecCall call(thread, data);
  WaitingProcess memory(thread, has_own_numbers());
  Start start;
  const uint64_t first[] = {call.path, call.words, call.variables};
  const int error = memory.fetch(first);
  if (!memory.read_text(call.path, PATH_MAX, start.program)) {
    start.reason = why_closed(thread);
    const bool closed =
        (error == EPERM || error == EACCES || error == ENOSYS) && !memory.is_read_through_proc();
    if (!closed) start.kind = Start::Kind::kFails;
    return start;
  }
  start.command.text = start.program;
  if ((call.flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) != 0) {
    start.kind = Start::Kind::kFails;  // AT_EXECVE_CHECK starts nothing, and no other flag is valid
  } else if (has_own_numbers()) {
    judge_file(call, start);
  }
  if (start.kind == Start::Kind::kFails) return start;  // most calls of a search in PATH
  Strings strings;
  Command command = std::exchange(start.command, {});
  if (!read_strings(call, memory, strings, start)) {
    start.kind = Start::Kind::kFails;
    return start;
  }
  if (start.command.text.empty()) start.command = std::move(command);
  if (!has_own_numbers()) start.reason = "/proc does not show it";
  judge_strings(call, strings, start);
  using Kind = Start::Kind;
  if (call.opened.number() >= 0 &&
      (start.kind == Kind::kUnguarded || start.kind == Kind::kUnknown)) {
    start.names_nvidia = names_nvidia(call, call.opened.path(), start);
  }
  if (start.kind == Kind::kGuarded && start.own_guard) start.process = std::move(call.process);
  return start;
}

}  // namespace cudaguard::launcher
