# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# install_packages NAME...: installs the missing Debian packages, silently unless that fails. It
# never changes the machine's package sources. `apt-get update` runs only if a package is missing.
# Without root or sudo, one line names the packages to install.
# need_cmake: fails with one line if CMake, installed or to be installed, is too old for the build.
# use_ninja: new build directories are for Ninja, if it is there, which does nothing ten times faster.
# install_known_packages NAME...: does the same for those that this release has; names the others.

# Debian leaves these out for users. ldconfig is there.
PATH=$PATH:/usr/sbin:/sbin

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need_root NAME...: fails if the missing packages cannot be installed, and names them.
need_root() {
  if [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; then return; fi
  echo "cudaguard: please install: $* (that needs root or sudo)" >&2
  return 1
}

cmake_candidate() { apt-cache policy cmake | sed -n 's/^  Candidate: \([0-9.]*\).*/\1/p'; }

need_cmake() {
  local needed=3.22 version=
  if command -v cmake >/dev/null; then
    version=$(cmake --version | sed -n 's/^cmake version //p')
  elif command -v apt-cache >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }; then
    version=$(cmake_candidate)
    if [ -z "$version" ]; then # This machine has no package lists yet.
      update_lists || return 1
      version=$(cmake_candidate)
    fi
  fi
  [ -n "$version" ] || return 0
  [ "$(printf '%s\n' "$needed" "$version" | sort -V | head -n 1)" = "$needed" ] || {
    echo "cudaguard: CMake $version is too old; the build needs $needed (Debian 12 or newer)" >&2
    return 1
  }
}

use_ninja() { ! command -v ninja >/dev/null || export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"; }

# quietly COMMAND...: shows the command's output only if it fails.
quietly() {
  local output
  output=$("$@" 2>&1) || {
    printf '%s\ncudaguard: failed: %s\n' "$output" "$*" >&2
    return 1
  }
}

missing_packages() {
  local name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || echo "$name"
  done
}

# The package lists are fetched once a script.
update_lists() {
  [ -z "${updated_lists:-}" ] || return 0
  quietly as_root apt-get update -q || return 1
  updated_lists=1
}

install_known_packages() {
  local known=() name missing there
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  need_root "${missing[@]}" || return 1
  update_lists || return 1
  # Compare whole names, because apt takes an unknown name with "+" for a pattern, so that g++-13
  # also means clang-13.
  there=$(apt-cache show "${missing[@]}" 2>/dev/null | sed -n 's/^Package: //p' || true)
  for name in "${missing[@]}"; do
    if grep -Fqx -- "$name" <<<"$there"; then
      known+=("$name")
    else
      echo "cudaguard: no package $name in this release; the tests that need it skip" >&2
    fi
  done
  [ ${#known[@]} = 0 ] || install_packages "${known[@]}"
}

install_packages() {
  command -v apt-get >/dev/null || {
    echo "cudaguard: no apt-get here; please install: $*" >&2
    return 1
  }
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  need_root "${missing[@]}" || return 1
  echo "installing: ${missing[*]}"
  update_lists &&
    quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
      --no-install-recommends "${missing[@]}"
}
