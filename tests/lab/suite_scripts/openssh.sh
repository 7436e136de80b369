# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The package's own run-tests stops at the first test that fails, so each test is called by itself.
get() { mkdir -p /run/sshd; }
build() { :; }
tests() {
  cp -r /usr/lib/openssh/regress regress
  cd regress || exit
  local settings=(.OBJDIR="$PWD" .CURDIR="$PWD" BUILDDIR="$PWD" OBJ="$PWD" SUDO= TEST_SHELL=sh
    TEST_SSH_SSH=ssh TEST_SSH_SFTPSERVER=/usr/lib/openssh/sftp-server TEST_SSH_IPV6=no
    TEST_SSH_ECC=yes TEST_SSH_UNSAFE_PERMISSIONS=1)
  make -s "${settings[@]}" prep
  # shellcheck disable=SC2013 # the words
  for name in $(sed -n '/^LTESTS=/,/[^\\]$/p' Makefile | sed 's,^LTESTS=,,; s,[\\],,'); do
    timeout 900 make -s "${settings[@]}" LTESTS="$name" t-exec </dev/zero
  done
}
