# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# buildah builds the image guarded, and Podman runs it.
use_podman
# As in Debian's podman-docker: the page has the commands for docker.
docker() { podman "$@"; }
podman import /srv/image.tar plain >/dev/null
make_context plain
buildah build -t guarded context
