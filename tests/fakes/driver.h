// SPDX-License-Identifier: Apache-2.0
// What the parts of the fake driver share.
#ifndef CUDAGUARD_TESTS_FAKES_DRIVER_H
#define CUDAGUARD_TESTS_FAKES_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef CG_NO_GETENV
// This variant of the driver reads `environ` instead of asking libc.
#define getenv box_getenv
#endif
#if defined(CG_NO_GETENV) || defined(CG_BYPASS)
char* box_getenv(const char* name);
#endif
#ifdef CG_BYPASS
// This variant asks libc for every variable except CUDA_VISIBLE_DEVICES.
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

/// Reads the environment as it is now. Returns the number of GPUs.
HIDDEN int read_visible(struct visible* out);

/// Returns 0 in the process that initialised the driver, otherwise 3. Forked children of that
/// process get 3, too.
HIDDEN int driver_state(void);

/// Returns the GPU of a handle, or NULL if there is none or the driver is not initialised.
HIDDEN const struct visible* visible_device(int device);

/// Returns driver_state(), or 101 if the handle is invalid.
HIDDEN int device_state(int device);
HIDDEN int visible_count(void);

/// Follows NVIDIA's rules: it returns the newest form of the name that the requested version has.
/// The per-thread forms have names of their own. Returns the status: 0, 1 (no such name) or 2 (the
/// version is too low).
HIDDEN int look_up(const char* name, void** entry, int version, uint64_t flags);

#endif
