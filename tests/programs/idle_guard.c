// SPDX-License-Identifier: Apache-2.0
// In the guard's place: a library that stops nothing.
int cudaguard_idle;
