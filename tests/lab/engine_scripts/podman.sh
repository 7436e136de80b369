# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Podman with the two images plain and guarded.
use_podman
# As in Debian's podman-docker: the page has the commands for docker.
docker() { podman "$@"; }
podman import /srv/image.tar plain >/dev/null
make_context plain
docker build -t guarded context
