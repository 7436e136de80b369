// SPDX-License-Identifier: Apache-2.0
// Replaces the guard and blocks nothing.
int cudaguard_idle;
