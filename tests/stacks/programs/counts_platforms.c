// SPDX-License-Identifier: Apache-2.0
// Asks OpenCL for the number of platforms.
int clGetPlatformIDs(unsigned room, void** platforms, unsigned* count);
__attribute__((noinline)) int ask(void) {
  unsigned count = 0;
  return clGetPlatformIDs(0, 0, &count) + (int)count;
}
int main(void) { return ask() == 12345; }
