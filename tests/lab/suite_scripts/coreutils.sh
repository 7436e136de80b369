# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package coreutils; }
build() {
  FORCE_UNSAFE_CONFIGURE=1 ./configure -q --disable-nls
  make -j2 >/dev/null
}
tests() { make -j2 -k check VERBOSE=no gl_public_submodule_commit=; }
