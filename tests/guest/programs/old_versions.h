// SPDX-License-Identifier: Apache-2.0
// The versions under which the oldest glibc of this machine defines functions of libdl.
#pragma once

#ifdef __x86_64__
#define OLD_VERSION "GLIBC_2.2.5"
#define OLD_DLMOPEN "GLIBC_2.3.4"
#else
#define OLD_VERSION "GLIBC_2.17"
#define OLD_DLMOPEN "GLIBC_2.17"
#endif
