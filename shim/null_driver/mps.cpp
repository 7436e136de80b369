// SPDX-License-Identifier: Apache-2.0
//
// CUDA's Multi-Process Service. nvidia-cuda-mps-server consists of a call: the server itself is in
// the driver. Ours writes to the log what NVIDIA's writes there on a machine without a GPU, and
// ends. The control daemon, which has started it, reads the log from a pipe. Drivers 535 to 555
// have the same table and the same log.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

#include "shim/api/cuda.h"
#include "shim/guard/sys/system.h"
#include "shim/null_driver/export_tables.h"

extern "C" [[gnu::visibility("hidden")]] CUresult cg_own_cuGetErrorString(CUresult error,
                                                                          const char** text);

namespace cudaguard {

namespace {

/// One message to the control daemon. The text follows.
struct LogHeader {
  uint32_t kind = 0xabcde003;
  uint32_t process = 0;
  int year = 0, month = 0, day = 0, weekday = 0, hour = 0, minute = 0, second = 0, millisecond = 0;
  uint64_t length = 0;
};
static_assert(sizeof(LogHeader) == 48);

struct LogMessage {
  LogHeader header;
  char text[128];  ///< enough for the texts below
};

/// Returns the end.
char* copy(char* to, const char* text) {
  while (*text != '\0') *to++ = *text++;
  return to;
}

/// One write, so that it is not mixed with another process's.
void write_log(const sys::File& log, const char* first, const char* second) {
  LogMessage message;
  const auto length = static_cast<size_t>(copy(copy(message.text, first), second) - message.text);
  const timespec now = sys::now();
  struct tm local = {};
  localtime_r(&now.tv_sec, &local);
  message.header.process = sys::getpid();
  message.header.year = local.tm_year + 1900;
  message.header.month = local.tm_mon + 1;
  message.header.day = local.tm_mday;
  message.header.weekday = local.tm_wday;
  message.header.hour = local.tm_hour;
  message.header.minute = local.tm_min;
  message.header.second = local.tm_sec;
  message.header.millisecond = static_cast<int>(now.tv_nsec / 1000000);
  message.header.length = length;
  sys::quiet_write(log.fd(), &message, sizeof message.header + length);
}

/// NVIDIA's server succeeds if there is no control daemon.
CUresult run_server() {
  const char* variable = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
  const char* directory = variable != nullptr ? variable : "/tmp/nvidia-mps";
  char path[4096];
  constexpr char kLog[] = "/log";
  if (strlen(directory) + sizeof kLog > sizeof path) return CUDA_SUCCESS;
  *copy(copy(path, directory), kLog) = '\0';
  const sys::File log(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (!log.ok()) return CUDA_SUCCESS;
  const char* why = "";
  cg_own_cuGetErrorString(CUDA_ERROR_NO_DEVICE, &why);
  write_log(log, "Startup", "");
  write_log(log, "Initializing server process", "");
  write_log(log, "Driver initialization failed with: ", why);
  write_log(log, "Failed to start : ", why);
  return CUDA_ERROR_NO_DEVICE;
}

/// The parameters are not known. NVIDIA's function answers so without a GPU.
CUresult describe_device() { return CUDA_ERROR_INVALID_DEVICE; }

struct Table {
  size_t size;
  CUresult (*run)();
  CUresult (*describe)();
};

/// Filled at the request, because pointers in it would have to be relocated at each start. Not in
/// .bss, which would cost a mapping.
[[gnu::section(".data")]] constinit Table table = {sizeof(Table), nullptr, nullptr};

}  // namespace

const void* mps_table() {
  table.run = &run_server;
  table.describe = &describe_device;
  return &table;
}

}  // namespace cudaguard
