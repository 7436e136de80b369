# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# install_packages NAME...: installs the Debian packages that are not there yet. Never changes the
# machine's package sources. `apt-get update` runs only if something is missing.

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "cudaguard: need root (or sudo) for: $*" >&2
    return 1
  fi
}

install_packages() {
  command -v apt-get >/dev/null || {
    echo "cudaguard: no apt-get here; please install: $*" >&2
    return 1
  }
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}"
}
