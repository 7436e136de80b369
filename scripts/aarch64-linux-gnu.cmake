# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for AArch64 with Debian's g++-aarch64-linux-gnu:
#   cmake -S . -B build/aarch64 --toolchain scripts/aarch64-linux-gnu.cmake
# The programs run on an x86-64 machine by `qemu-aarch64 -L /usr/aarch64-linux-gnu` (qemu-user).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
