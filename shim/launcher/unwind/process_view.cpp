// SPDX-License-Identifier: Apache-2.0
#include "shim/launcher/unwind/process_view.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace cudaguard::launcher {

namespace {

/// About 80,000 mappings. The kernel allows 65,530 unless the administrator raises the limit.
constexpr size_t kMostMaps = size_t{8} << 20;

}  // namespace

WaitingProcess::~WaitingProcess() {
  if (memory_ >= 0) close(memory_);
}

const WaitingProcess::Page* WaitingProcess::page_at(uint64_t address) {
  const auto known = pages_.find(address);
  if (known != pages_.end()) return &known->second;
  if (pages_.size() == kMostPages) pages_.clear();
  Page& page = pages_[address];
  if (read_page(address, page)) return &page;
  pages_.erase(address);
  return nullptr;
}

bool WaitingProcess::read_page(uint64_t address, Page& page) {
  if (memory_ < 0) {
    const iovec local = {page.data(), kPageSize};
    const iovec remote = {reinterpret_cast<void*>(address), kPageSize};
    if (process_vm_readv(thread_, &local, 1, &remote, 1, 0) == kPageSize) return true;
    if (!in_proc_ || (errno != EPERM && errno != ENOSYS)) return false;
    // Docker 20.10 refuses the call by default. The kernel gives this file to the same processes.
    memory_ = open(("/proc/" + std::to_string(thread_) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  }
  return pread(memory_, page.data(), kPageSize, static_cast<off_t>(address)) == kPageSize;
}

bool WaitingProcess::read(uint64_t address, void* to, size_t size) {
  auto* out = static_cast<char*>(to);
  while (size > 0) {
    const uint64_t offset = address % kPageSize;
    const Page* page = page_at(address - offset);
    if (page == nullptr) return false;
    const size_t part = std::min<size_t>(size, kPageSize - offset);
    memcpy(out, page->data() + offset, part);
    out += part;
    address += part;
    size -= part;
  }
  return true;
}

std::string WaitingProcess::maps() {
  std::string text;
  const int fd = open(("/proc/" + std::to_string(thread_) + "/maps").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char part[16384];
  for (ssize_t got = 0; text.size() < kMostMaps && (got = ::read(fd, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

}  // namespace cudaguard::launcher
