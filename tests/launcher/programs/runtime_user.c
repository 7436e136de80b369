// SPDX-License-Identifier: Apache-2.0
// Two lines ask for CUDA by the same call of a runtime.
int ask(void);
int main(void) {
  ask();  // asks first
  ask();
  return 0;
}
