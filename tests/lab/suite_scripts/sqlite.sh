# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package sqlite3; }
build() {
  ./configure -q --with-tcl=/usr/lib/tcl8.6
  make -j2 testfixture sqlite3 >/dev/null
}
tests() { ./testfixture test/veryquick.test --verbose=1; }
