// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/health/health.h"

#include <fcntl.h>
#include <rapidjson/document.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <utility>

#include "policy/device_list.h"
#include "policy/driver_api.h"
#include "policy/policies.h"
#include "policy/text.h"
#include "shim/guard/text/message.h"
#include "shim/launcher/fence/fence.h"
#include "shim/launcher/health/ask_cuda.h"
#include "shim/launcher/message.h"
#include "shim/launcher/preload/check_report.h"
#include "shim/launcher/preload/preload.h"
#include "shim/launcher/preload/settings.h"
#include "shim/launcher/print/json.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kRootsDirectory = "/run/cudaguard";

/// Time since boot, including suspends. No clock setting changes it.
milliseconds since_boot() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + milliseconds(time.tv_nsec / 1'000'000);
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

/// Opens a file of this type that belongs to `owner` and that no one else can write; otherwise -1.
int open_safe(int directory, const std::string& path, mode_t type, uid_t owner) {
  const int fd = openat(directory, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status = {};
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == type && status.st_uid == owner &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

std::string parent_directory(const Variables& variables) {
  const char* runtime = variables.get("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return runtime;
  return "/run/user/" + std::to_string(geteuid());
}

/// The file's text, if it can be trusted; otherwise empty.
std::string read_file(int directory, const std::string& name, uid_t owner) {
  const int fd = open_safe(directory, name, S_IFREG, owner);
  if (fd < 0) return {};
  std::array<char, 16384> bytes;
  const ssize_t size = ::read(fd, bytes.data(), bytes.size());
  close(fd);
  return size <= 0 ? std::string() : std::string(bytes.data(), static_cast<size_t>(size));
}

std::optional<Health> parse(const std::string& text, const std::string& question,
                            milliseconds most) {
  rapidjson::Document json;
  json.Parse(text.c_str());
  if (json.HasParseError() || !json.IsObject()) return {};
  const auto text_at = [&](const char* name) {
    return json.HasMember(name) && json[name].IsString() ? json[name].GetString() : "";
  };
  const auto number_at = [&](const char* name) {
    return json.HasMember(name) && json[name].IsInt64() ? json[name].GetInt64() : -1;
  };
  const int64_t healthy = number_at("healthy");
  const Health health = {healthy == 1,
                         text_at("reason"),
                         milliseconds(number_at("took")),
                         milliseconds(number_at("limit")),
                         static_cast<int>(number_at("gpus")),
                         milliseconds(number_at("at")),
                         number_at("by_list") == 1};
  const milliseconds age = since_boot() - health.at;
  const bool whole = number_at("v") == 1 && health.at.count() >= 0 && health.took.count() >= 0 &&
                     health.limit.count() >= 0 &&
                     (healthy == 1 || (healthy == 0 && !health.reason.empty()));
  if (!whole || text_at("question") != question || text_at("boot") != boot_id()) return {};
  if (age.count() < 0 || age > most) return {};
  return health;
}

/// How long an answer is valid.
constexpr std::chrono::seconds kValid{60};

/// The driver's last answer, shared by all launches of one user. A file holds it: below
/// /run/cudaguard for root, below XDG_RUNTIME_DIR or /run/user for others, who also read root's.
class AnswerCache {
 public:
  /// `question` is what the answer depends on. If there is no directory, the cache stays empty.
  AnswerCache(const std::string& question, const Variables& variables)
      : name_("driver-" + std::to_string(std::hash<std::string>{}(question))),
        question_(printable(question, 4096)) {
    const uid_t user = geteuid();
    const std::string path =
        user == 0 ? kRootsDirectory : parent_directory(variables) + "/cudaguard";
    const int error = mkdir(path.c_str(), 0700);
    if (error == 0 && user == 0) chmod(path.c_str(), 0755);  // whatever the umask is
    directory_ = open_safe(AT_FDCWD, path, S_IFDIR, user);
    // In a user namespace that lacks our id, every other unknown user has our id, too.
    if (directory_ >= 0 && faccessat(directory_, ".", W_OK, 0) != 0) {
      close(std::exchange(directory_, -1));
    }
    if (user != 0) roots_directory_ = open_safe(AT_FDCWD, kRootsDirectory, S_IFDIR, 0);
  }
  ~AnswerCache() {
    for (const int fd : {directory_, roots_directory_, lock_}) {
      if (fd >= 0) close(fd);
    }
  }
  AnswerCache(const AnswerCache&) = delete;
  AnswerCache& operator=(const AnswerCache&) = delete;

  /// The answer to this question, if there is one from this boot that is not older than `age`.
  /// Trusts only a file of this user or root that no one else can write.
  std::optional<Health> read(milliseconds age = kValid) const {
    std::optional<Health> own;
    if (directory_ >= 0) own = parse(read_file(directory_, name_, geteuid()), question_, age);
    if (roots_directory_ < 0) return own;
    // Root may use devices that this user may not.
    constexpr const char* kDevice = "/dev/nvidiactl";
    if (access(kDevice, F_OK) == 0 && access(kDevice, R_OK | W_OK) != 0) return own;
    const auto roots = parse(read_file(roots_directory_, name_, 0), question_, age);
    return own && (!roots || own->at >= roots->at) ? own : roots;
  }

  /// Makes this process the one that asks. Returns false if another process asks now. True if there
  /// is no directory. The end of this process undoes it.
  bool lock() {
    if (directory_ < 0) return true;
    if (lock_ < 0) {
      lock_ = openat(directory_, (name_ + ".lock").c_str(),
                     O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    }
    // Other errors (seccomp, a file system without locks) do not mean that a process asks now.
    return lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  }

  /// Call this with the lock. The file has the whole answer or the old one at any time.
  void write(const Health& health) const {
    if (directory_ < 0 || lock_ < 0) return;
    Json json;
    json.begin_object()
        .field("v", 1)
        .field("question", question_)
        .field("boot", boot_id())
        .field("at", static_cast<int64_t>(since_boot().count()))
        .field("healthy", health.healthy ? 1 : 0)
        .field("reason", health.reason)
        .field("took", static_cast<int64_t>(health.took.count()))
        .field("limit", static_cast<int64_t>(health.limit.count()))
        .field("gpus", health.gpus)
        .field("by_list", health.by_list ? 1 : 0)
        .end_object();
    const std::string unfinished = name_ + ".new";
    unlinkat(directory_, unfinished.c_str(), 0);  // of a process that was killed
    const int fd = openat(directory_, unfinished.c_str(),
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const std::string text = json.text() + "\n";
    const bool all = write_once(fd, text) == static_cast<ssize_t>(text.size()) &&
                     (geteuid() != 0 || fchmod(fd, 0644) == 0);
    close(fd);
    if (!all || renameat(directory_, unfinished.c_str(), directory_, name_.c_str()) != 0) {
      unlinkat(directory_, unfinished.c_str(), 0);
    }
  }

 private:
  std::string name_;
  std::string question_;
  int directory_ = -1;        ///< ours
  int roots_directory_ = -1;  ///< root's, if that is another one
  int lock_ = -1;
};

/// "10 s", "1.3 s", "12 ms".
std::string shown(milliseconds time) {
  if (time.count() < 1000) return std::to_string(time.count()) + " ms";
  char text[32];
  snprintf(text, sizeof text, time.count() % 1000 == 0 ? "%.0f s" : "%.1f s",
           static_cast<double>(time.count()) / 1000);
  return text;
}

/// The reason, and the age of an answer that was kept.
std::string reason_of(const Health& health) {
  if (health.age.count() == 0) return health.reason;
  const milliseconds seconds = std::chrono::ceil<std::chrono::seconds>(health.age);
  return health.reason + " (asked " + shown(seconds) + " ago; to ask again: --if-healthy=fresh)";
}

/// The list as the driver reads it: "2,5", in PCI order. Empty: the list has no GPU. `name` is that
/// of the list, and of the wish, for messages.
std::vector<std::string> entries_of(const char* list, const std::string& name,
                                    const HealthWish& wish) {
  const AllowList parsed = parse_allow_list(list);
  const auto machine = std::make_unique<Machine>();
  ListError error = parsed.error;
  if (error.why == ListError::Why::kNone) error = machine_from_list(parsed, *machine);
  if (error.why != ListError::Why::kNone) {
    throw Refusal(kRefused, wish.name + " cannot check " + name + in_quotes(list) + ": " +
                                text_of([&](Text& out) { put_list_error(out, error, 0); }));
  }
  std::vector<std::string> entries;
  for (size_t i = 0; i < parsed.count; ++i) {
    const AllowEntry& entry = parsed.entries[i];
    entries.push_back(entry.kind == AllowEntry::Kind::kIndex ? std::to_string(entry.index)
                                                             : std::string(entry.text));
  }
  return entries;
}

/// True if a directory of LD_LIBRARY_PATH is relative. An empty one is the working directory.
bool depends_on_working_directory(std::string_view directories) {
  bool begins = !directories.empty();
  for (const char c : directories) {
    if (begins && c != '/') return true;
    begins = c == ':' || c == ';';
  }
  return begins;
}

/// A change of any of these means that the driver must be asked again.
std::string question_of(const std::string& list, const Variables& variables) {
  // The kernel answers this itself. /proc/driver/nvidia/version waits for the module, which may
  // hang.
  std::string version;
  std::getline(std::ifstream("/sys/module/nvidia/version"), version);
  // A container, or a service with PrivateDevices=, may have a /dev of its own.
  struct stat device = {};
  stat("/dev/nvidiactl", &device);
  // Changes when a driver's library is installed.
  struct stat libraries = {};
  stat("/etc/ld.so.cache", &libraries);
  std::string question = version + "; device " + std::to_string(device.st_dev) + " " +
                         std::to_string(device.st_ino) + "; ld.so.cache " +
                         std::to_string(libraries.st_ino) + " " +
                         std::to_string(libraries.st_mtim.tv_sec) + "; gpus " + list;
  for (const char* name : {"LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
                           "CUDA_MPS_PIPE_DIRECTORY"}) {
    const char* value = variables.get(name);
    if (value != nullptr) question.append("; ").append(name).append("=").append(value);
  }
  const char* path = variables.get("LD_LIBRARY_PATH");
  struct stat directory = {};
  if (path != nullptr && depends_on_working_directory(path) && stat(".", &directory) == 0) {
    question += "; in " + std::to_string(directory.st_dev) + " " + std::to_string(directory.st_ino);
  }
  return question;
}

std::string gpu_named(const std::string& entry) {
  const bool index = entry.find_first_not_of("0123456789") == std::string::npos;
  return (index ? "GPU " : "") + printable(entry);
}

/// "cuInit", "the calls about GPU 2"; empty if the driver was still being loaded.
std::string stage_of(const DriverAnswer& answer, const std::vector<std::string>& entries) {
  if (answer.device < 0) return answer.call;
  const auto device = static_cast<size_t>(answer.device);
  return "the calls about " +
         gpu_named(device < entries.size() ? entries[device] : std::to_string(device));
}

/// True if the driver answers, but does not show each GPU of the list. CUDA ends its list at the
/// first entry that is not there; without any it has no device.
bool misses_entry(const DriverAnswer& answer, const std::vector<std::string>& entries) {
  const bool none = answer.call == "cuInit" && answer.code == kNoDevice;
  return answer.kind == DriverAnswer::Kind::kAnswered && (answer.code == 0 || none) &&
         static_cast<size_t>(std::max(answer.gpus, 0)) < entries.size();
}

std::string problem_of(const DriverAnswer& answer, milliseconds limit,
                       const std::vector<std::string>& entries) {
  const std::string stage = stage_of(answer, entries);
  switch (answer.kind) {
    case DriverAnswer::Kind::kNotAsked:
      return "the driver was not asked: " + answer.why;
    case DriverAnswer::Kind::kHangs:
      return "the driver did not answer in " + shown(limit) + " (" +
             (stage.empty() ? "while it was loaded" : stage) + ")";
    case DriverAnswer::Kind::kCrashed:
      return "the driver crashed (" + answer.why + (stage.empty() ? ")" : " in " + stage + ")");
    case DriverAnswer::Kind::kBroken:
      return "libcuda.so.1 does not work: " + answer.why;
    case DriverAnswer::Kind::kAnswered:
      break;
  }
  if (misses_entry(answer, entries)) {
    return gpu_named(entries[static_cast<size_t>(std::max(answer.gpus, 0))]) + " is not there";
  }
  if (answer.code != 0) {
    const DriverError* error = driver_error(answer.code);
    return stage + " failed with " + std::to_string(answer.code) +
           (error == nullptr ? "" : std::string(" (") + error->name + ")") + " after " +
           shown(std::chrono::round<milliseconds>(answer.took));
  }
  return answer.gpus <= 0 ? "the driver shows no GPU" : "";
}

/// `left` is the rest of the user's time limit.
Health ask(const std::vector<std::string>& entries, const std::string& list, milliseconds left,
           Variables variables) {
  const milliseconds limit = std::chrono::ceil<std::chrono::seconds>(left);
  if (!entries.empty()) {
    variables.set("CUDA_VISIBLE_DEVICES", list);
    variables.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  }
  const auto start = Clock::now();
  DriverAnswer answer;
  try {
    answer = ask_cuda(find_installation().probe, std::move(variables), left, Ask::kGpus);
  } catch (const Shortage& shortage) {
    answer.why = shortage.what();
  }
  Health health;
  health.reason = problem_of(answer, limit, entries);
  health.healthy = health.reason.empty();
  health.took = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  if (answer.kind == DriverAnswer::Kind::kHangs) health.limit = limit;
  health.gpus = answer.gpus;
  health.by_list = misses_entry(answer, entries);
  health.stuck = answer.stuck;
  health.asked = answer.kind != DriverAnswer::Kind::kNotAsked;
  return health;
}

}  // namespace

std::optional<HealthWish> health_wish(const GuardSettings& settings, const Variables& variables) {
  std::optional<HealthWish> wish = settings.if_healthy;
  const char* word = variables.get(row_of(Variable::kPolicy).name);
  std::string spelled = word == nullptr ? "" : word;
  std::replace(spelled.begin(), spelled.end(), '-', '_');
  if (!wish && !settings.cpu && !settings.policy && strcasecmp(spelled.c_str(), kIfHealthy) == 0) {
    wish.emplace().name = std::string(row_of(Variable::kPolicy).name) + "=" + kIfHealthy;
  }
  if (!wish) return {};
  const std::pair<bool, const char*> others[] = {{settings.cpu, "--cpu"},
                                                 {settings.policy.has_value(), "--policy"},
                                                 {settings.wants_fence(), "--fence"},
                                                 {settings.print, "--print"}};
  for (const auto& [given, name] : others) {
    if (!given) continue;
    throw Refusal(kRefused, wish->name + " and " + name + " contradict each other; leave one out");
  }
  return wish;
}

Health check_health(const HealthWish& wish, const std::optional<std::string>& gpus,
                    Variables variables) {
  const auto start = Clock::now();
  take_back_presets(variables);
  const auto so_far = [&] {
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  };
  std::vector<std::string> entries;
  constexpr const char* kVisible = row_of(Variable::kVisibleDevices).name;
  const char* list = gpus ? gpus->c_str() : variables.get(kVisible);
  if (list != nullptr) {
    const std::string source = gpus ? "--gpus " : std::string(kVisible) + "=";
    entries = entries_of(list, source, wish);
    if (entries.empty()) {
      return {.reason = source + in_quotes(list) + " has no GPU", .by_list = true, .asked = false};
    }
  }
  if (is_fenced()) {
    return {.reason = "this process is under a fence (cudaguard run --fence)", .asked = false};
  }
  const std::string text = joined(entries, ",");
  AnswerCache cache(question_of(text, variables), variables);
  const auto known = [&] {
    // "fresh" accepts the answer of a process that asked meanwhile.
    std::optional<Health> health = cache.read(wish.fresh ? so_far() : kValid);
    if (health && (health->limit.count() == 0 || health->limit >= wish.limit)) {
      const milliseconds age = since_boot() - health->at;
      if (!wish.fresh && age > so_far()) health->age = age;
      return health;
    }
    return std::optional<Health>();
  };
  if (const auto health = known()) return *health;
  while (!cache.lock()) {
    if (so_far() >= wish.limit) {
      return {.reason = "the driver did not answer in " + shown(wish.limit)};
    }
    usleep(2000);
  }
  if (const auto health = known()) return *health;
  const milliseconds left = std::max(wish.limit - so_far(), milliseconds(1));
  Health health = ask(entries, text, left, variables);
  if (health.asked) cache.write(health);
  return health;
}

GuardSettings settings_for(const Health& health, const HealthWish& wish, GuardSettings settings) {
  if (health.healthy) {
    settings.policy = cudaguard::name_of(Policy::kValidate);
    return settings;
  }
  if (wish.require)
    throw Refusal(kRefused, wish.name + ": " + reason_of(health) + "; nothing was started");
  settings.cpu = true;
  settings.unhealthy = health.asked && !health.by_list;
  settings.gpus.reset();
  settings.children.reset();
  settings.rules.clear();
  return settings;
}

std::string health_warning(const Health& health, const HealthWish& wish) {
  std::string text = wish.name + ": " + reason_of(health) + "; the program runs without CUDA";
  if (health.stuck == 0) return text;
  return text + "; process " + std::to_string(health.stuck) +
         ", which asked the driver, survives SIGKILL";
}

void record_health(const Health& health, const std::string& report, char* const* words) {
  struct stat status = {};
  const std::string path = report_path(report, getpid());
  // Closing a pipe would end its reader's input.
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return;
  int error = 0;
  const int fd = open_report(report, getpid(), error);
  if (fd < 0) return;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  Json json;
  json.begin_object()
      .field("v", 1)
      .field("ts", now.count())
      .field("pid", getpid())
      .field("ppid", getppid())
      .field("tid", getpid())
      .field("uid", geteuid())
      .field("host", host)
      .field("cgroup", "")
      .field("exe", head(words[0], 4096));
  json.key("argv").begin_array();
  // Readers ignore records of more than 64 KiB; a byte may become six.
  bool cut = false;
  for (size_t i = 0; words[i] != nullptr && !cut; ++i) {
    json.value(head(words[i], 4096));
    cut = strlen(words[i]) > 4096 || (i >= 63 && words[i + 1] != nullptr) ||
          json.text().size() > 32768;
  }
  json.end_array();
  if (cut) json.key("cut").begin_array().value("argv").end_array();
  const char* job = getenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe): one thread
  if (job != nullptr && *job != '\0') json.field("slurm", head(job, 4096));
  json.field("event", "health")
      .field("decision", health.healthy ? "allow" : "deny")
      .field_or_null("reason", health.reason)
      .field("seconds", static_cast<double>(health.took.count()) / 1000)
      .end_object();
  write_once(fd, json.text() + "\n");
  close(fd);
}

}  // namespace cudaguard::launcher
