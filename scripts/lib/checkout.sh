# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# need_plain_path DIRECTORY: fails if the path has a space or colon; ld.so splits LD_PRELOAD there.
# trust_checkout: makes git accept a checkout of another user. The user of the script already trusts
# its files. The entry in the environment applies to this script only.
# commit_of_files: prints a commit of what git knows in the checkout. This is HEAD if nothing has
# changed, also for users who may not write to .git.
# need_writable_build: fails if build/, which receives all output, is not writable.
# need_runnable_build: also fails if no program can run there.

need_plain_path() {
  case $1 in
  *[[:space:]:]*)
    echo "cudaguard: cannot be tried below a path with a space or a colon, at which ld.so splits" \
      "LD_PRELOAD: $1; please move the checkout" >&2
    return 1
    ;;
  esac
}

trust_checkout() {
  local count=${GIT_CONFIG_COUNT:-0}
  export GIT_CONFIG_COUNT=$((count + 1)) "GIT_CONFIG_KEY_$count=safe.directory" \
    "GIT_CONFIG_VALUE_$count=$(pwd -P)"
}

need_writable_build() {
  mkdir -p build 2>/dev/null || true
  if ! [ -w build ]; then
    echo "cudaguard: $PWD/build: Permission denied; please make it a directory that you can write" \
      "to" >&2
    return 1
  fi
}

need_runnable_build() {
  local probe=build/.runs
  need_writable_build || return 1
  rm -f "$probe"
  printf '#!/bin/sh\n' >"$probe"
  chmod +x "$probe"
  if ! "$probe" 2>/dev/null; then
    rm -f "$probe"
    echo "cudaguard: $PWD/build: Permission denied: no program can run there, because its file" \
      "system is mounted noexec; please move the checkout, or mount it with exec" >&2
    return 1
  fi
  rm -f "$probe"
}

commit_of_files() {
  local commit=
  # In a copied checkout, git's index has the old inodes, and git 2.47 then fails to stash.
  git update-index -q --refresh >/dev/null 2>&1 || true
  git diff --quiet HEAD || commit=$(git -c user.name=x -c user.email=x stash create) || return
  echo "${commit:-$(git rev-parse HEAD)}"
}
