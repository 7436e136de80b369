// SPDX-License-Identifier: Apache-2.0
// Ends with the exit code CODE.
int main(void) { return CODE; }
