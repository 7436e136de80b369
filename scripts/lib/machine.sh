# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# These functions need root and a mount namespace of the caller's own.
# private_dev DIRECTORY: mounts a /dev without the machine's devices on the directory, because
# NVIDIA's driver makes device nodes when root runs it.
# enter_root LOWER SCRATCH [CLONE [CACHES]]: the root of the namespace becomes an overlay over LOWER.
# The new files are in SCRATCH. CLONE becomes /clone. With CACHES, LOWER is another system, which gets
# a private /dev, this machine's name server and certificate authorities (/etc/authorities.crt), and
# the caches of apt and pip.

private_dev() {
  local dev=$1 name number=0
  mount -t tmpfs -o mode=755 private "$dev"
  for name in null zero full random urandom tty fuse; do
    [ -e "/dev/$name" ] || continue
    touch "$dev/$name"
    mount --bind "/dev/$name" "$dev/$name"
  done
  mkdir -m 1777 "$dev/shm"
  mount -t tmpfs -o mode=1777 shm "$dev/shm"
  mkdir "$dev/pts"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
  ln -s pts/ptmx "$dev/ptmx"
  ln -s /proc/self/fd "$dev/fd"
  for name in stdin stdout stderr; do
    ln -s "/proc/self/fd/$number" "$dev/$name"
    number=$((number + 1))
  done
}

# own_cache CACHE DIRECTORY [USER]: what the directory holds is kept in CACHE, as the user's.
own_cache() {
  mkdir -p "$1" "$2"
  mount --bind "$1" "$2"
  [ -z "${3:-}" ] || chown -R "$3:" "$2"
}

enter_root() {
  local lower=$1 scratch=$2 clone=${3:-} caches=${4:-}
  local root=$scratch/root name
  mkdir -p "$scratch"/{up,work,root}
  if [ "$lower" = / ]; then # An overlay's own files may not be in its lower layer.
    mount -t tmpfs -o mode=755 tmpfs "$scratch/up"
    mkdir "$scratch"/up/{up,work}
    mount -t overlay -o "lowerdir=/,upperdir=$scratch/up/up,workdir=$scratch/up/work" overlay "$root"
  else
    mount -t overlay -o "volatile,lowerdir=$lower,upperdir=$scratch/up,workdir=$scratch/work" \
      overlay "$root"
  fi
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  if [ -n "$caches" ]; then
    private_dev "$root/dev"
    for name in resolv.conf hosts; do cat "/etc/$name" >"$root/etc/$name"; done
    apt-config dump | grep '^Acquire::Check-' >"$root/etc/apt/apt.conf.d/90machine" || true
    cat "${SSL_CERT_FILE:-/dev/null}" >"$root/etc/authorities.crt"
    own_cache "$caches/apt" "$root/var/cache/apt/archives"
    own_cache "$caches/pip" "$root/root/.cache/pip"
    own_cache "$caches/pip-user" "$root/var/cache/pip"
  else
    mount --rbind /dev "$root/dev"
  fi
  [ -z "$clone" ] || mv "$clone" "$root/clone"
  mkdir "$root/old"
  cd "$root" || return
  pivot_root . old
  cd /
  umount -l /old
  rmdir /old
}
