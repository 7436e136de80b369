// SPDX-License-Identifier: Apache-2.0
// A library that a program loads, and which asks for CUDA.
extern int cuInit(unsigned);

int ask(void) {
  volatile int answer = cuInit(0); /* no tail call, so the guard sees this library as the caller */
  return answer;
}
