# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Charliecloud runs a directory as an ordinary user, without a daemon. It mounts directories of the
# host only where the image has such a directory.
images=$HOME/images
mkdir -p "$images"
for name in plain guarded; do
  mkdir -p "$images/$name"/{proc,sys,dev,tmp,run,root,var,usr/local,mnt,home,srv,media,opt}
  tar -C "$images/$name" -xf /srv/image.tar --no-same-owner
  : >"$images/$name/etc/machine-id"
  touch "$images/$name/etc/"{resolv.conf,hosts,passwd,group}
done
cp -a /opt/cudaguard/. "$images/guarded/usr/local"
