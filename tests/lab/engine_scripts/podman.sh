# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Podman with the two images plain and guarded. `docker` is Podman, as in Debian's podman-docker.
if [ "$(id -u)" = 0 ]; then
  mount -t tmpfs none /run
  mount -t tmpfs none /sys/fs/cgroup # crun does not run where there are those of two versions
else
  export XDG_RUNTIME_DIR=$HOME/run
  mkdir -m 700 "$XDG_RUNTIME_DIR"
fi
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
printf '[storage]\ndriver = "vfs"\n' >storage.conf
export CONTAINERS_CONF=$PWD/containers.conf
[ "$(id -u)" != 0 ] || printf 'graphroot = "%s"\nrunroot = "/run/containers"\n' "$PWD/graph" >>storage.conf
export CONTAINERS_STORAGE_CONF=$PWD/storage.conf
export BUILDAH_ISOLATION=chroot
docker() { podman "$@"; }
podman import /srv/image.tar plain >/dev/null
if grep -q '^ENTRYPOINT' dockerfile; then
  make_context plain
  docker build -t guarded context
fi
