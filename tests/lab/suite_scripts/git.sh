# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package git; }
build() {
  make -j2 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1 NO_CURL=1 CFLAGS=-O1 all
}
tests() {
  cd t || exit
  export TEST_OUTPUT_DIRECTORY=$TMPDIR
  each_file bash -- t[01]*.sh
}
