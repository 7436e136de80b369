# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# dockerd with CDI devices, which the page's setting allows.
mkdir -p /etc/docker
cp feature /etc/docker/daemon.json
start_docker

# dockerd makes cgroups on this machine, which remain if a container is not removed.
trap 'docker ps --all --quiet | xargs -r docker rm --force >/dev/null' EXIT
