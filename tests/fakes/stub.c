// SPDX-License-Identifier: Apache-2.0
// A library in the place of the driver or NVML that has none of its functions.
int fake_stub(void) { return 4242; }
