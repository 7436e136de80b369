# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# need_plain_path FOLDER: ld.so splits LD_PRELOAD at spaces and colons, so no test could run there.

need_plain_path() {
  case $1 in
  *[[:space:]:]*)
    echo "cudaguard: cannot be tried below a path with a space or a colon, at which ld.so splits" \
      "LD_PRELOAD: $1; please move the checkout" >&2
    return 1
    ;;
  esac
}
