# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
get() { source_package perl; }
build() {
  ./Configure -des -Dusedevel -Dnoextensions='ODBM_File GDBM_File NDBM_File DB_File' >/dev/null
  make -j2 >/dev/null
  make -j2 test_prep >/dev/null
}
tests() {
  cd t || exit
  ./perl -I../lib ./TEST {base,comp,cmd,io,re,opbasic,op,uni,mro,lib}/*.t 2>&1
}
