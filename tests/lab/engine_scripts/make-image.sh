# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Podman with the image plain, and two tarballs. The second one has no guard, so an engine that takes
# the wrong architecture fails.
use_podman
podman import /srv/image.tar plain >/dev/null
mkdir empty
make_tarball x86_64 /opt/cudaguard
make_tarball aarch64 empty
