// SPDX-License-Identifier: Apache-2.0
// Is linked to libnvidia-cfg.
int nvCfgOpenDevice(void);
int main(void) { return nvCfgOpenDevice(); }
