# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# containerd alone. Docker has built the images and then stops.
start_docker
docker save plain guarded | ctr images import -
# shellcheck disable=SC2154 # from start_docker
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
