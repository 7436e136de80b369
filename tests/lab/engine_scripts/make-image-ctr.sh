# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# containerd alone, with the image plain, which Docker has built, and a tarball.
start_docker
docker save plain | ctr images import -
# shellcheck disable=SC2154 # from start_docker
kill "$docker"
wait "$docker" || true
# shellcheck disable=SC2034 # the steps read it
plain=docker.io/library/plain:latest
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "/run/containers"\n' "$PWD/graph" \
  >storage.conf
export CONTAINERS_STORAGE_CONF=$PWD/storage.conf
make_tarball x86_64 /opt/cudaguard
