/* SPDX-License-Identifier: Apache-2.0 */
/* cudaguard.h: functions by which a program queries the guard that was preloaded into it.
 *
 * The program needs no link to the guard. Declare a function weak, or look it up:
 *
 *     int (*attempts)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "cudaguard_attempts");
 *     if (attempts && attempts() != 0) { ... something in this process asked for a GPU ... }
 */
#ifndef CUDAGUARD_H
#define CUDAGUARD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns how many times this process has asked for a GPU under FORCE_CPU, or for a context under
 * NO_CONTEXT, and 0 under other policies. Under FORCE_CPU, the number counts calls of cuInit(0),
 * nvmlInit* and the guarded functions of CUDA's runtime, such as cudaSetDevice, and loads of a
 * refused library such as NVIDIA's OpenCL. It is one number for CUDA, NVML and OpenCL; a report's
 * records distinguish them. Loading the driver library alone does not count. A forked child starts
 * at 0. Cannot fail. Thread-safe and async-signal-safe; does not change errno.
 */
int cudaguard_attempts(void) __attribute__((weak));

/* A test runner calls this before each test. From now on the guard records the first call of each
 * kind in this process again, in the file `report` instead of CUDAGUARD_REPORT's. `report` is a
 * full path; null keeps the present file. A forked child writes to the same file. Returns what
 * cudaguard_attempts() returns. Returns -1 without any change under policies other than FORCE_CPU
 * and NO_CONTEXT, and for a file if a rule of /etc/cudaguard.conf has report=. Thread-safe and
 * async-signal-safe, unless `report` changes while a thread asks for a GPU; does not change errno.
 */
int cudaguard_watch(const char* report) __attribute__((weak));

/* Returns 1 under NO_CONTEXT, so that what cudaguard_attempts() counts are contexts, otherwise 0.
 * Thread-safe and async-signal-safe; does not change errno.
 */
int cudaguard_refuses_contexts(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

#endif /* CUDAGUARD_H */
