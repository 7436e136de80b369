# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Every row of the engines begins with this. The files of the current directory are the blocks of
# the pages.

patience() { # LOG COMMAND...: repeats the command until it succeeds
  local log=$1
  shift
  for _ in $(seq 600); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.2
  done
  tail -n 5 "$log"
  return 1
}

# The words of the page's ENTRYPOINT, without JSON's brackets, quotes and commas.
entrypoint() { sed -n 's/^ENTRYPOINT //p' dockerfile | tr -d '[]",'; }

# The line of the block `train` that contains this text, without its comment.
line() { grep -F "$1" train | sed 's/ *#.*//'; }

# Two trees for engines that need no image: /srv/plain, and /srv/guarded with the files that the
# page's COPY would put there.
unpack_trees() {
  local name
  for name in plain guarded; do
    mkdir -p "/srv/$name"/{proc,sys,dev,tmp,run,root,var,usr/local,mnt,home,srv,media,opt}
    tar -C "/srv/$name" -xf /srv/image.tar
  done
  cp -a /opt/cudaguard/. /srv/guarded/usr/local
}

# The context of the page's Dockerfile. What precedes it, FROM, is the user's own part.
make_context() { # [FROM]
  mkdir -p context
  cp -a /opt/cudaguard context/cudaguard
  { [ $# -eq 0 ] || echo "FROM $1"; cat dockerfile; } >context/Dockerfile
}

# A tarball with the name of a release's, for the page's make-image.
make_tarball() { # MACHINE TREE
  local name
  name=$(grep -o 'cudaguard-[0-9.]*-linux' make)-$1
  tar -czf "$name.tar.gz" -C "$(dirname "$2")" "$(basename "$2")"
}

# docs/fence.md calls the script in a checkout.
mkdir -p scripts/integrations
ln -sfn /opt/cudaguard/share/cudaguard/container scripts/integrations/container

# Podman without cgroups, and with a copy instead of an overlay for each layer. A pod needs cgroups,
# and therefore the runtime runc: crun does not run where there are those of two versions.
use_podman() { # [RUNTIME]
  local runtime=${1:-crun} cgroups=disabled
  [ "$runtime" = crun ] || cgroups=enabled
  if [ "$(id -u)" = 0 ]; then
    mount -t tmpfs none /run
    [ "$runtime" != crun ] || mount -t tmpfs none /sys/fs/cgroup
    printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "/run/containers"\n' \
      "$PWD/graph" >storage.conf
  else
    export XDG_RUNTIME_DIR=$HOME/run
    mkdir -m 700 "$XDG_RUNTIME_DIR"
    printf '[storage]\ndriver = "vfs"\n' >storage.conf
  fi
  cat >containers.conf <<EOF
[containers]
cgroups = "$cgroups"
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "$runtime"
cgroup_manager = "cgroupfs"
events_logger = "none"
EOF
  export CONTAINERS_CONF=$PWD/containers.conf CONTAINERS_STORAGE_CONF=$PWD/storage.conf
  export BUILDAH_ISOLATION=chroot
}

# containerd, and dockerd with the images plain and guarded. Sets `docker` to dockerd's process id.
start_docker() {
  mount -t tmpfs none /run
  export DOCKER_BUILDKIT=0 CONTAINERD_ADDRESS=/run/containerd/containerd.sock
  export CONTAINERD_SNAPSHOTTER=native # no overlay over an overlay
  mkdir -p /etc/containerd
  echo 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' >/etc/containerd/config.toml
  containerd >containerd.log 2>&1 &
  patience containerd.log ctr version
  dockerd --containerd "$CONTAINERD_ADDRESS" --storage-driver vfs --bridge=none --iptables=false \
    --ip6tables=false --ip-forward=false >dockerd.log 2>&1 &
  # shellcheck disable=SC2034 # ctr.sh reads it
  docker=$!
  patience dockerd.log docker version
  docker import /srv/image.tar plain >/dev/null
  make_context plain
  docker build -t guarded context
}
