// SPDX-License-Identifier: Apache-2.0
// Calls another library.
int use(void);
int middle(void) { return use(); }
