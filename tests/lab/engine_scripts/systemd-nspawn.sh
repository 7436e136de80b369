# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# systemd-nspawn on a machine whose process 1 is not systemd.
mount -t tmpfs none /run
unpack_trees
for name in plain guarded; do
  touch "/srv/$name/etc/os-release"
  : >"/srv/$name/etc/machine-id"
done

nspawn() { # ROOT COMMAND...
  local root=$1
  shift
  systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --pipe --as-pid2 -- "$@"
}
