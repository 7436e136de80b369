// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/observe/process.h"

#include <dirent.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>

#include "policy/text.h"
#include "shim/guard/text/record.h"
#include "shim/launcher/format.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/unwind/process.h"

namespace cudaguard::launcher {

namespace {

constexpr size_t kMostNames = 4;
constexpr size_t kMostArguments = 32768;
constexpr size_t kMostCgroup = 8192;
/// The kernel reports a call before the calling thread sleeps. It sleeps within so many looks, one
/// each millisecond.
constexpr int kMostLooks = 100;

std::string path_of(pid_t pid, const std::string& name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

/// The kernel gives the whole of such a file to one read.
std::string text_of(pid_t pid, const std::string& name) {
  std::string text;
  read_file(path_of(pid, name), text, 1);
  return text;
}

template <typename Take>
void each_entry(const std::string& directory, Take take) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), &closedir);
  if (open == nullptr) return;
  while (const dirent* entry = readdir(open.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] != '.') take(entry->d_name);
  }
}

uint64_t take_number(std::string_view& text) {
  uint64_t value = 0;
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  text.remove_prefix(std::min(text.size(), text.find_first_of(" \t\n")));
  return parsed.ec == std::errc() ? value : 0;
}

}  // namespace

std::string status_of(pid_t pid) { return text_of(pid, "status"); }

std::vector<uint64_t> numbers_in(std::string_view status, std::string_view name) {
  const size_t at = status.find("\n" + std::string(name) + ":");
  std::vector<uint64_t> numbers;
  if (at == std::string::npos) return numbers;
  std::string_view line = status.substr(at + name.size() + 2);
  line = line.substr(0, line.find('\n'));
  while (line.find_first_not_of(" \t") != std::string_view::npos) {
    numbers.push_back(take_number(line));
  }
  return numbers;
}

std::vector<uint64_t> status_of(pid_t pid, std::string_view name) {
  return numbers_in(status_of(pid), name);
}

std::string link_of(pid_t pid, const std::string& name) {
  char path[PATH_MAX];
  const ssize_t length = readlink(path_of(pid, name).c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

FileId id_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
          static_cast<uint64_t>(status.st_ctim.tv_sec),
          static_cast<uint64_t>(status.st_ctim.tv_nsec)};
}

FileId id_of(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? id_of(status) : FileId{};
}

FileId executable_id(pid_t pid) { return id_of(path_of(pid, "exe")); }

Stat read_stat(pid_t pid) {
  Stat result;
  const std::string text = text_of(pid, "stat");
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');  // the name in parentheses may contain any character
  if (open == std::string::npos || close == std::string::npos || close + 4 >= text.size()) {
    return result;
  }
  result.name = text.substr(open + 1, close - open - 1);
  result.state = text[close + 2];
  std::string_view rest = std::string_view(text).substr(close + 3);
  uint64_t fields[52] = {};  // numbered as in proc_pid_stat(5)
  for (size_t i = 4; i < std::size(fields); ++i) fields[i] = take_number(rest);
  result.parent = static_cast<pid_t>(fields[4]);
  constexpr uint64_t kExiting = 0x4;      // PF_EXITING of linux/sched.h
  constexpr uint64_t kForkNoExec = 0x40;  // `ps` shows this bit as 1 in column F
  result.ends = (fields[9] & kExiting) != 0;
  result.forked = (fields[9] & kForkNoExec) != 0;
  result.threads = fields[20];
  result.started = fields[22];
  result.image = {fields[26], fields[28], fields[50], fields[51]};
  return result;
}

bool has_own_numbers() {
  static const bool own = [] {
    char number[16];
    const ssize_t size = readlink("/proc/self", number, sizeof number);
    return size > 0 &&
           std::string_view(number, static_cast<size_t>(size)) == std::to_string(getpid());
  }();
  return own;
}

Identity identify(pid_t thread) {
  Identity who = {.pid = thread, .thread = thread};
  if (!has_own_numbers()) return who;
  who.stat = read_stat(thread);
  // Usually the thread is the first one of its process.
  if (who.stat.threads == 1 || syscall(SYS_tgkill, thread, thread, 0) == 0 || errno != ESRCH) {
    return who;
  }
  const std::vector<uint64_t> group = status_of(thread, "Tgid");
  if (!group.empty()) who.pid = static_cast<pid_t>(group[0]);
  who.stat = read_stat(who.pid);
  return who;
}

std::optional<bool> is_in_loader(pid_t pid, const Stat& stat) {
#if defined(__x86_64__)
  // ld.so calls its own functions, and these the constructors, with the stack that the kernel has
  // made, so its first return address is just below the arguments. glibc's _start overwrites that
  // word by a number, and the one below it by an address. Before the first call, both are zero.
  uint64_t words[2] = {};
  const uint64_t arguments = stat.image[1];
  WaitingProcess memory(pid);
  if (arguments == 0 || !memory.read(arguments - sizeof words, words, sizeof words)) return {};
  const uint64_t address = words[1];
  if (address == 0 && words[0] == 0) return {};
  std::optional<bool> inside;  // a process that is being killed has no mappings
  const ProcessImage image(memory.maps());
  for (const ProcessImage::Mapping& mapping : image.mappings()) {
    if (!mapping.executable || !base_name(mapping.file).starts_with("ld-")) continue;
    inside = inside.value_or(false) || (mapping.from <= address && address < mapping.to);
  }
  return inside;
#else
  static_cast<void>(pid);
  static_cast<void>(stat);
  return {};
#endif
}

std::optional<Registers> waiting_at(pid_t thread) {
  // "16 0x3 0xc020462a 0x0 0x0 0x0 0x0 0x7ffd6c1e9a08 0x7f31b2f0c2ad": the system call's number,
  // its arguments, the stack pointer and the program counter.
  std::string text = text_of(thread, "syscall");
  for (int i = 1; i < kMostLooks && text.starts_with("running"); ++i) {
    usleep(1000);
    text = text_of(thread, "syscall");
  }
  std::istringstream words(text);
  std::string word;
  uint64_t values[9] = {};
  for (uint64_t& value : values) {
    if (!(words >> word)) return {};
    value = strtoull(word.c_str(), nullptr, 0);
  }
  Registers registers;
  registers.set(kThisProcessor.stack_pointer, values[7]);
  registers.set(kThisProcessor.program_counter, values[8]);
  return registers;
}

std::string kernel_record(const Identity& who, Attempt attempt, const char* why, bool look) {
  look &= has_own_numbers();
  const bool at_start = attempt.event == EventKind::kStart;
  struct stat owner = {};  // the owner of /proc/PID is the effective user
  const bool has_owner = look && stat(path_of(who.pid, "").c_str(), &owner) == 0;
  uid_t user = has_owner ? owner.st_uid : geteuid();
  if (!has_owner && at_start) {  // the process waits, so this id is still its own
    const std::optional<Credentials> ids = credentials_of(open_process(who.pid));
    if (ids) user = static_cast<uid_t>(ids->effective_user);
  }
  const std::string executable = look ? link_of(who.pid, "exe") : "";
  std::string arguments(attempt.program);
  std::string cgroup;
  if (look && arguments.empty()) {
    read_file(path_of(who.pid, "cmdline"), arguments, kMostArguments);
  }
  if (look && !at_start) read_file(path_of(who.pid, "cgroup"), cgroup, kMostCgroup);
  Stack stack = {};
  stack.python_missing = why;
  if (why != nullptr) attempt.stack = &stack;
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  char host[256] = {};
  ProcessFacts facts;
  facts.v = {kRecordVersion};
  facts.pid = {static_cast<uint32_t>(who.pid)};
  facts.ppid = {static_cast<uint32_t>(who.stat.parent)};
  facts.tid = {static_cast<uint32_t>(who.thread)};
  if (!at_start && who.stat.started != 0) {
    facts.since = {static_cast<int64_t>(who.stat.started)};
  }
  facts.ts = {static_cast<uint64_t>(now.tv_sec), static_cast<uint32_t>(now.tv_nsec / 1000)};
  facts.uid = {user};
  facts.exe.value = executable;
  facts.argv.value = arguments;
  if (!at_start && gethostname(host, sizeof host - 1) == 0) facts.host.value = host;
  facts.cgroup.value = cgroup_of(cgroup);
  const char* job = getenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe): one thread
  if (job != nullptr) facts.slurm.value = job;
  const auto room = std::make_unique_for_overwrite<char[]>(kMaxRecord);
  Text out(room.get(), kMaxRecord);
  write_record(out, facts, attempt, kMaxRecord);
  return std::string(head(out.view(), out.view().size() - 1));  // without the newline
}

Descriptor open_process(pid_t pid) {
  constexpr long kPidfdOpen = 434;
  return Descriptor(static_cast<int>(syscall(kPidfdOpen, pid, 0)));
}

namespace {

/// As in <linux/pidfd.h>, which is too old here.
struct PidfdInfo {
  uint64_t mask, cgroup;
  uint32_t pid, thread_group, parent;
  uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  int32_t exit_code;
};
constexpr uint64_t kInfoCredentials = 2;
constexpr uint64_t kInfoExit = 8;

/// Nothing if the kernel does not know all of `mask` of the process.
std::optional<PidfdInfo> info_of(const Descriptor& process, uint64_t mask) {
  PidfdInfo info = {};
  info.mask = mask;
  constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);
  if (ioctl(process.number(), kGetInfo, &info) != 0 || (info.mask & mask) != mask) return {};
  return info;
}

}  // namespace

std::optional<Credentials> credentials_of(const Descriptor& process) {
  const std::optional<PidfdInfo> info = info_of(process, kInfoCredentials);
  if (!info) return {};
  return Credentials{info->ruid, info->euid, info->fsuid, info->rgid, info->egid, info->fsgid};
}

std::optional<int> end_of(const Descriptor& process) {
  const std::optional<PidfdInfo> info = info_of(process, kInfoExit);
  return info ? std::optional(info->exit_code) : std::nullopt;
}

std::optional<long> system_call_of(pid_t thread) {
  const std::string text = text_of(thread, "syscall");
  char* end = nullptr;
  const long number = strtol(text.c_str(), &end, 10);
  return end == text.c_str() ? std::nullopt : std::optional(number);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  const std::string directory = path_of(pid, "task");
  each_entry(directory, [&](const char* thread) {
    std::string text;
    read_file(directory + "/" + thread + "/children", text, SIZE_MAX);
    for (std::string_view rest = text; rest.find_first_not_of(' ') != std::string_view::npos;) {
      if (const uint64_t child = take_number(rest); child != 0) {
        found.push_back(static_cast<pid_t>(child));
      }
    }
  });
  return found;
}

pid_t running_thread(pid_t pid) {
  pid_t found = 0;
  each_entry(path_of(pid, "task"), [&](const char* name) {
    const auto thread = static_cast<pid_t>(strtol(name, nullptr, 10));
    if (found == 0 && read_stat(thread).runs()) found = thread;
  });
  return found;
}

std::set<pid_t> all_processes() {
  std::set<pid_t> found;
  each_entry("/proc", [&](const char* name) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name, name + strlen(name), pid);
    if (error == std::errc() && *end == '\0') found.insert(pid);
  });
  return found;
}

std::set<pid_t> children_of_this_process() {
  const std::vector<pid_t> listed = children_of(getpid());
  if (!listed.empty()) return {listed.begin(), listed.end()};
  std::set<pid_t> found = all_processes();
  std::erase_if(found, [](pid_t pid) { return read_stat(pid).parent != getpid(); });
  return found;
}

bool descends_from_this_process(pid_t pid) {
  while (pid > 1 && pid != getpid()) pid = read_stat(pid).parent;
  return pid == getpid();
}

std::string names_of(const std::set<pid_t>& processes) {
  std::string text;
  size_t count = 0;
  for (const pid_t pid : processes) {
    if (++count > kMostNames) {
      return text + " and " + std::to_string(processes.size() - kMostNames) + " more";
    }
    text.append(text.empty() ? "" : ", ").append(printable(read_stat(pid).name));
    text.append(" (").append(std::to_string(pid)).append(")");
  }
  return text;
}

std::string arguments_of(pid_t pid) {
  std::string words;
  read_file(path_of(pid, "cmdline"), words, kMostCommand);
  words.resize(std::min(words.size(), kMostCommand));
  return words;
}

Driver driver_of(pid_t pid) {
  Driver found = Driver::kNone;
  const ProcessImage image(WaitingProcess(pid).maps());
  for (const ProcessImage::Mapping& mapping : image.mappings()) {
    // A search tool, ldconfig or strip maps the file to read it.
    if (!mapping.executable) continue;
    const std::string_view name = base_name(mapping.file);
    const bool cuda = name.starts_with("libcuda.so");
    if ((cuda || name.starts_with("libnvidia-ml.so")) && !is_own_library(mapping.file)) {
      found = std::max(found, cuda ? Driver::kAny : Driver::kNvml);
    }
  }
  if (found != Driver::kNone) return found;
  const std::string directory = path_of(pid, "fd");
  each_entry(directory, [&](const char* number) {
    char target[PATH_MAX];
    const ssize_t length = readlink((directory + "/" + number).c_str(), target, sizeof target);
    if (length > 0 &&
        std::string_view(target, static_cast<size_t>(length)).starts_with("/dev/nvidia")) {
      found = Driver::kAny;
    }
  });
  return found;
}

}  // namespace cudaguard::launcher
