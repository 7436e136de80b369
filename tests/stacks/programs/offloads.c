// SPDX-License-Identifier: Apache-2.0
// Offloads code by OpenMP.
int main(void) {
  int sum = 0;
#pragma omp target map(tofrom : sum)
  ++sum;
  return sum != 1;
}
