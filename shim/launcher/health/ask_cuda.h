// SPDX-License-Identifier: Apache-2.0
// Asks the driver in a child process. A broken driver hangs or crashes, so the child is killed at
// the time limit, or abandoned if it does not die.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "shim/launcher/child/child.h"
#include "shim/launcher/child/variables.h"

namespace cudaguard::launcher {

struct DriverAnswer {
  enum class Kind : uint8_t {
    kAnswered,  ///< `code` is the answer
    kHangs,     ///< no answer in time
    kCrashed,   ///< `why` is the signal: "SIGSEGV"
    kBroken,    ///< `why` is the reason: "it has no cuInit"
    kNotAsked,  ///< `why` is the reason; nothing is known about the driver
  };
  Kind kind = Kind::kNotAsked;
  /// The driver's first failed call, or the one in which it hangs or crashes: "cuInit". Empty: the
  /// driver was still being loaded, or `device` says more.
  std::string call;
  int device = -1;                    ///< the call was about this device, by CUDA's index
  int code = 0;                       ///< CUresult: the first that is not 0
  std::chrono::microseconds took{0};  ///< cuInit's time
  int gpus = 0;                       ///< from cuDeviceGetCount, if it was asked
  std::string why;
  pid_t stuck = 0;  ///< the process that asked, if SIGKILL does not end it
};

enum class Ask : uint8_t {
  kInit,  ///< cuInit alone
  /// Also the number of GPUs, and each one's name and UUID, and nvmlInit if there is NVML. No
  /// context is created.
  kGpus,
};

/// `probe` is cudaguard-probe, `variables` the environment of the programs that the answer is for.
/// The driver is kept from loading its kernel module and from making device nodes unless the module
/// is loaded already and `what` is kGpus. Throws Shortage if no process can be created.
DriverAnswer ask_cuda(const std::string& probe, Variables variables,
                      std::chrono::milliseconds limit, Ask what);

/// The part of ask_cuda() that runs after the child's end.
DriverAnswer read_answer(const ChildEnd& end, const std::string& probe);

struct DriverError {
  int code;
  const char* name;  ///< "CUDA_ERROR_NO_DEVICE"
  const char* text;  ///< "no CUDA-capable device is detected"
};
/// Null if the code is unknown.
const DriverError* driver_error(int code);

}  // namespace cudaguard::launcher
