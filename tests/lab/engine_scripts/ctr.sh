# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# containerd alone. Docker has built the images and then stops.
mount -t tmpfs none /run
export DOCKER_BUILDKIT=0 CONTAINERD_ADDRESS=/run/containerd/containerd.sock
export CONTAINERD_SNAPSHOTTER=native
mkdir -p /etc/containerd
echo 'disabled_plugins = ["io.containerd.grpc.v1.cri"]' >/etc/containerd/config.toml
containerd >containerd.log 2>&1 &
patience containerd.log ctr version
dockerd --containerd "$CONTAINERD_ADDRESS" --storage-driver vfs --bridge=none --iptables=false \
  --ip6tables=false --ip-forward=false >dockerd.log 2>&1 &
docker=$!
patience dockerd.log docker version
docker import /srv/image.tar plain >/dev/null
make_context plain
docker build -t guarded context
docker save plain guarded | ctr images import -
kill "$docker"
wait "$docker" || true
# shellcheck disable=SC2034 # the steps read them
plain=docker.io/library/plain:latest
# shellcheck disable=SC2034
guarded=docker.io/library/guarded:latest
# ctr takes the words of an image's ENTRYPOINT only if no words follow the container's name.
# shellcheck disable=SC2034
words=$(entrypoint)
sed -i "s,\bplain\b,$plain," fence
