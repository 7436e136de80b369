# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Every suite begins with this. A suite's own part has three functions: get runs as root with the
# network, build and tests run as alice. build begins in /srv/suite/work, which get has made.

in_suite() { # get|build
  set -e
  cd /srv/suite
  chown alice: .
  if [ "$1" = get ]; then
    get
    mkdir -p work
    chown -R alice: .
  else
    cd work
    export HOME=/home/alice
    setpriv --reuid alice --regid alice --init-groups bash -ec '. /srv/suite.sh; build'
    mv ../work ../built
  fi
}

# A run changes the directory, so each run gets a copy, at the path where the suite was built.
in_fresh_copy() {
  cd /srv/suite || exit
  rm -rf work
  cp -a built work
  cd work || exit
  export TMPDIR=/srv/suite/tmp
  rm -rf "$TMPDIR"
  mkdir "$TMPDIR"
}

source_package() { # NAME [--tar-only]: unpacks a source package to work, or its upstream archive
  sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/source.list
  apt-get -q update
  apt-get -q source --download-only "$@"
  if [ "${2:-}" = --tar-only ]; then
    mkdir work
    tar -xf "$1"_*.orig.tar.* -C work --strip-components=1
  else
    dpkg-source -x "$1"_*.dsc work
  fi
}

clone() { # OWNER/NAME [VERSION]: a repository of GitHub, or of scripts/lab --clones, to work
  local from=https://github.com
  [ ! -d /srv/clones ] || from=file:///srv/clones
  git -c advice.detachedHead=false clone -q --depth 1 ${2:+--branch "$2"} "$from/$1" work
}

# Prints the file's name before its output.
each_file() { # COMMAND... -- FILE...
  local command=()
  while [ "$1" != -- ]; do
    command+=("$1")
    shift
  done
  shift
  for file in "$@"; do
    echo "=== ${file##*/}"
    timeout 600 "${command[@]}" "$file" </dev/null 2>&1
  done
}
