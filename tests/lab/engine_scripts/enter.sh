#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# enter.sh ROOT COMMAND...: runs a command in the throw-away Debian below ROOT, in a mount namespace
# of this script's own. chroot is not enough: in a chroot the kernel refuses new user namespaces,
# which rootless engines need.
set -e
cd "$1"
shift
mount --make-rprivate /
mkdir -p sys
mount --rbind /sys sys
# crun does not run where there are cgroups of both versions, and an ordinary user cannot hide them.
[ "$1" = HOME=/root ] || mount -t tmpfs none sys/fs/cgroup
pivot_root . mnt
umount -l /mnt
ip link set lo up
# slurmdbd finds no address of its own if the only one is 127.0.0.1.
ip addr add 10.77.0.1/32 dev lo
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
