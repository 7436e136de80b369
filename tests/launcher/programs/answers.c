// SPDX-License-Identifier: Apache-2.0
// A driver that does nothing and reports success.
int cuInit(unsigned flags) { return (int)flags; }
