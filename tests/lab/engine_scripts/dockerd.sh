# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# containerd and dockerd with the two images plain and guarded.
mount -t tmpfs none /run
export DOCKER_BUILDKIT=0 CONTAINERD_ADDRESS=/run/containerd/containerd.sock
export CONTAINERD_SNAPSHOTTER=native # no overlay over an overlay
mkdir -p /etc/containerd
echo 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' >/etc/containerd/config.toml
containerd >containerd.log 2>&1 &
patience containerd.log ctr version
dockerd --containerd "$CONTAINERD_ADDRESS" --storage-driver vfs --bridge=none --iptables=false \
  --ip6tables=false --ip-forward=false >dockerd.log 2>&1 &
patience dockerd.log docker version
docker import /srv/image.tar plain >/dev/null
make_context plain
docker build -t guarded context

# dockerd makes cgroups on this machine, which remain if a container is not removed.
trap 'docker ps --all --quiet | xargs -r docker rm --force >/dev/null' EXIT
