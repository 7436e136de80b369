# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# containerd and dockerd with the two images plain and guarded.
start_docker

# dockerd makes cgroups on this machine, which remain if a container is not removed.
trap 'docker ps --all --quiet | xargs -r docker rm --force >/dev/null' EXIT
