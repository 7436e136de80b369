# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Every row of the engines begins with this. The files of the current directory are the blocks of
# the pages.

patience() { # LOG COMMAND...: repeats the command until it succeeds
  local log=$1
  shift
  for _ in $(seq 600); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.2
  done
  tail -n 5 "$log"
  return 1
}

# The words of the page's ENTRYPOINT, without JSON's brackets, quotes and commas.
entrypoint() { sed -n 's/^ENTRYPOINT //p' dockerfile | tr -d '[]",'; }

# The line of the block `train` that contains this text, without its comment.
line() { grep -F "$1" train | sed 's/ *#.*//'; }

# Two trees for engines that need no image: /srv/plain, and /srv/guarded with the files that the
# page's COPY would put there.
unpack_trees() {
  local name
  for name in plain guarded; do
    mkdir -p "/srv/$name"/{proc,sys,dev,tmp,run,root,var,usr/local,mnt,home,srv,media,opt}
    tar -C "/srv/$name" -xf /srv/image.tar
  done
  cp -a /opt/cudaguard/. /srv/guarded/usr/local
}

# The context of the page's Dockerfile. What precedes it, FROM, is the user's own part.
make_context() { # [FROM]
  mkdir -p context
  cp -a /opt/cudaguard context/cudaguard
  { [ $# -eq 0 ] || echo "FROM $1"; cat dockerfile; } >context/Dockerfile
}

# docs/fence.md calls the script in a checkout.
mkdir -p scripts
ln -sfn /opt/cudaguard/share/cudaguard/container scripts/container
