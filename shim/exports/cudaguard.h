/* SPDX-License-Identifier: Apache-2.0 */
/* cudaguard.h: what a program may ask the guard that was preloaded into it.
 *
 * Nothing needs to be linked. Declare a function weak, or look it up:
 *
 *     int (*touches)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cudaguard_touches");
 *     if (touches && touches() != 0) { ... something in this process asked for a GPU ... }
 */
#ifndef CUDAGUARD_H
#define CUDAGUARD_H

#ifdef __cplusplus
extern "C" {
#endif

/* How many times this process has asked for a GPU under FORCE_CPU: calls of cuInit(0), nvmlInit*,
 * of the runtime's cudaGetDeviceCount, cudaSetDevice, cudaDeviceSynchronize, and loads of a refused
 * library such as NVIDIA's OpenCL. CUDA, NVML and OpenCL are one number here; a report's records
 * tell them apart. Loading the driver library alone is no touch. 0 under the other policies. A
 * forked child starts at 0. Cannot fail. Thread-safe and async-signal-safe; does not change errno.
 */
int cudaguard_touches(void) __attribute__((weak));

/* For what tests programs, before each test: from now on the first call of each kind in this
 * process is written down again, to the file `report` (a full path; null: where it was until now)
 * instead of to CUDAGUARD_REPORT's. Returns what cudaguard_touches() does; -1, and nothing is
 * changed, under the other policies. A forked child writes to the same file. Thread-safe and
 * async-signal-safe, but for another `report` while a thread asks for a GPU; does not change errno.
 */
int cudaguard_watch(const char* report) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif /* CUDAGUARD_H */
