// SPDX-License-Identifier: Apache-2.0
// What the parts of the fake driver know of each other.
#ifndef CUDAGUARD_TESTS_FAKES_DRIVER_H
#define CUDAGUARD_TESTS_FAKES_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef CG_NO_GETENV
// A driver that does not ask libc: this one reads `environ`.
#define getenv box_getenv
#endif
#if defined(CG_NO_GETENV) || defined(CG_AROUND)
char* box_getenv(const char* name);
#endif
#ifdef CG_AROUND
// One that asks libc for everything but the one variable.
#define CG_GETENV_VISIBLE box_getenv
#else
#define CG_GETENV_VISIBLE getenv
#endif

#include "box.h"
#include "fake_log.h"

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kIntegrityCheckFailed = 103,
  kInvalidContext = 201,
  kNotFound = 500,
  kUnknown = 999,
};

typedef void (*any_function)(void);

#define HIDDEN __attribute__((visibility("hidden")))

// A GPU that CUDA shows: mig is an index of kMig, or -1 for the whole GPU.
struct visible {
  int gpu;
  int mig;
};
enum { kMaxVisible = kGpus + kMigs };

/// What the environment says now. Returns the number of GPUs.
HIDDEN int read_visible(struct visible* out);

/// 0 in the process that initialised the driver, else 3, also in its forked children.
HIDDEN int driver_state(void);

/// The GPU of a handle, or NULL where there is none or the driver is not initialised.
HIDDEN const struct visible* visible_device(int device);

/// driver_state(), and 101 for a handle that is none.
HIDDEN int device_state(int device);
HIDDEN int visible_count(void);

/// NVIDIA's rules: of a name's forms the newest that the asked version has; the per-thread ones are
/// names of their own. Returns the status: 0, 1 (no such name), 2 (the version is too low).
HIDDEN int look_up(const char* name, void** entry, int version, uint64_t flags);

#endif
