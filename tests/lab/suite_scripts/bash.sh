# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package bash; }
build() {
  ./configure -q --without-bash-malloc
  # The helpers of the tests; the shell under test is the installed one.
  make recho zecho printenv xcase
}
tests() {
  cd tests || exit
  export THIS_SH=/bin/bash PATH=$PWD/..:$PATH BUILD_DIR=$PWD/.. BASH_TSTOUT=$TMPDIR/out
  # run-all and run-minimal start the others. run-jobs waits for minutes.
  mapfile -t files < <(find . -name 'run-*' ! -name run-all ! -name run-minimal ! -name '*~' | sort)
  each_file sh -- "${files[@]}"
}
