# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { :; }
build() { :; }
tests() {
  cp -r /usr/lib/openssh/regress regress
  cd regress || exit
  ls
  [ -x ./run-tests ] && ./run-tests 2>&1
}
