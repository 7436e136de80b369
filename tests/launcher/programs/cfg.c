// SPDX-License-Identifier: Apache-2.0
// A libnvidia-cfg that does nothing.
int nvCfgOpenDevice(void) { return 0; }
