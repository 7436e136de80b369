// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/health/answer_cache.h"

#include <fcntl.h>
#include <rapidjson/document.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <functional>
#include <utility>

#include "shim/launcher/message.h"
#include "shim/launcher/print/json.h"

namespace cudaguard::launcher {

namespace {

using std::chrono::milliseconds;

constexpr const char* kRootsDirectory = "/run/cudaguard";
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

/// Time since boot, including suspends. No clock setting changes it.
milliseconds now() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + milliseconds(time.tv_nsec / 1'000'000);
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

/// Opens a directory that belongs to `owner` and that no one else can write; otherwise -1.
int open_directory(const std::string& path, uid_t owner) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status = {};
  if (fd < 0) return -1;
  if (fstat(fd, &status) == 0 && status.st_uid == owner &&
      (status.st_mode & kWritableByOthers) == 0) {
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

/// The file's text, if it belongs to `owner` and no one else can write it; otherwise empty.
std::string read_file(int directory, const std::string& name, uid_t owner) {
  const int fd = openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  struct stat status = {};
  std::array<char, 16384> bytes;
  ssize_t size = -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == owner &&
      (status.st_mode & kWritableByOthers) == 0) {
    size = ::read(fd, bytes.data(), bytes.size());
  }
  close(fd);
  return size <= 0 ? std::string() : std::string(bytes.data(), static_cast<size_t>(size));
}

std::optional<Health> parse(const std::string& text, const std::string& question,
                            milliseconds most) {
  rapidjson::Document json;
  json.Parse(text.c_str());
  if (json.HasParseError() || !json.IsObject()) return {};
  const auto text_at = [&](const char* name) {
    const auto member = json.FindMember(name);
    return member != json.MemberEnd() && member->value.IsString() ? member->value.GetString() : "";
  };
  const auto number_at = [&](const char* name) {
    const auto member = json.FindMember(name);
    return member != json.MemberEnd() && member->value.IsInt64() ? member->value.GetInt64() : -1;
  };
  const int64_t healthy = number_at("healthy");
  const Health health = {healthy == 1,
                         text_at("reason"),
                         milliseconds(number_at("took")),
                         milliseconds(number_at("limit")),
                         static_cast<int>(number_at("gpus")),
                         milliseconds(number_at("at"))};
  const milliseconds age = now() - health.at;
  const bool whole = number_at("v") == 1 && health.at.count() >= 0 && health.took.count() >= 0 &&
                     health.limit.count() >= 0 &&
                     (healthy == 1 || (healthy == 0 && !health.reason.empty()));
  if (!whole || text_at("question") != question || text_at("boot") != boot_id()) return {};
  if (age.count() < 0 || age > most) return {};
  return health;
}

}  // namespace

AnswerCache::AnswerCache(const std::string& question, const Variables& variables)
    : name_("driver-" + std::to_string(std::hash<std::string>{}(question))),
      question_(printable(question, 4096)) {
  const uid_t user = geteuid();
  const std::string path = user == 0 ? kRootsDirectory : parent_directory(variables) + "/cudaguard";
  const int error = mkdir(path.c_str(), 0700);
  if (error == 0 && user == 0) chmod(path.c_str(), 0755);  // whatever the umask is
  directory_ = open_directory(path, user);
  // In a user namespace that lacks our id, every other unknown user has our id, too.
  if (directory_ >= 0 && faccessat(directory_, ".", W_OK, 0) != 0) {
    close(std::exchange(directory_, -1));
  }
  if (user != 0) roots_directory_ = open_directory(kRootsDirectory, 0);
}

AnswerCache::~AnswerCache() {
  for (const int fd : {directory_, roots_directory_, lock_}) {
    if (fd >= 0) close(fd);
  }
}

std::optional<Health> AnswerCache::read(milliseconds age) const {
  std::optional<Health> own;
  if (directory_ >= 0) own = parse(read_file(directory_, name_, geteuid()), question_, age);
  if (roots_directory_ < 0) return own;
  // Root may use devices that this user may not.
  constexpr const char* kDevice = "/dev/nvidiactl";
  if (access(kDevice, F_OK) == 0 && access(kDevice, R_OK | W_OK) != 0) return own;
  const auto roots = parse(read_file(roots_directory_, name_, 0), question_, age);
  return own && (!roots || own->at >= roots->at) ? own : roots;
}

bool AnswerCache::lock() {
  if (directory_ < 0) return true;
  if (lock_ < 0) {
    lock_ = openat(directory_, (name_ + ".lock").c_str(),
                   O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  }
  // Other errors (seccomp, a file system without locks) do not mean that a process asks now.
  return lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void AnswerCache::write(const Health& health) const {
  if (directory_ < 0 || lock_ < 0) return;
  Json json;
  json.begin_object()
      .field("v", 1)
      .field("question", question_)
      .field("boot", boot_id())
      .field("at", static_cast<int64_t>(now().count()))
      .field("healthy", health.healthy ? 1 : 0)
      .field("reason", health.reason)
      .field("took", static_cast<int64_t>(health.took.count()))
      .field("limit", static_cast<int64_t>(health.limit.count()))
      .field("gpus", health.gpus)
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

}  // namespace cudaguard::launcher
