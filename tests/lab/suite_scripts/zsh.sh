# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package zsh; }
build() {
  # Test/ztst.zsh wants the program and its modules in the build directory.
  mkdir -p Src
  cp /bin/zsh Src/zsh
}
tests() {
  cd Test || exit
  # One file a line.
  ZTST_testlist=$(printf '%s\n' ./*.ztst) ZTST_srcdir=. ZTST_exe=/bin/zsh /bin/zsh +Z -f ./runtests.zsh
}
