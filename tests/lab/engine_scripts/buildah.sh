# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# buildah builds the image guarded, and Podman runs it.
mount -t tmpfs none /run
mount -t tmpfs none /sys/fs/cgroup
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "/run/containers"\n' "$PWD/graph" \
  >storage.conf
cat >containers.conf <<EOF
[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = ["nofile=1024:1024"]
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "none"
EOF
export CONTAINERS_CONF=$PWD/containers.conf CONTAINERS_STORAGE_CONF=$PWD/storage.conf
export BUILDAH_ISOLATION=chroot
docker() { podman "$@"; }
podman import /srv/image.tar plain >/dev/null
make_context plain
buildah build -t guarded context
