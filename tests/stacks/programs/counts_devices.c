// SPDX-License-Identifier: Apache-2.0
// Asks OpenMP for the number of devices.
int omp_get_num_devices(void);
__attribute__((noinline)) int ask(void) { return omp_get_num_devices() + 1; }
int main(void) { return ask() < 0; }
