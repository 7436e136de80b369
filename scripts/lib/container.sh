# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# These functions need root.
# start_engine DIRECTORY: starts a Docker engine of this script's own, with its images and its socket
# below the directory, unless that was done before. It makes no bridge and no rule of the firewall.
# It ends with the script.
# engine WORD...: calls the engine.
# import_root ROOT IMAGE: makes an image of the directory.
# profile_without_ptrace DIRECTORY: prints the path of a seccomp profile that refuses ptrace.

start_engine() {
  [ -z "${engine_socket:-}" ] || return 0
  local directory=$1 process log=$1/log
  command -v dockerd >/dev/null || install_packages docker.io
  mkdir -p "$directory"
  engine_socket=$directory/socket
  dockerd --host "unix://$engine_socket" --data-root "$directory/data" \
    --exec-root "$directory/exec" --pidfile "$directory/pid" --storage-driver=vfs \
    --iptables=false --bridge=none >"$log" 2>&1 9>&- &
  process=$!
  # shellcheck disable=SC2064  # this process
  trap "kill $process; wait $process; umount '$directory/exec/netns/default' 2>/dev/null || true" EXIT
  until engine info >/dev/null 2>&1; do
    kill -0 $process 2>/dev/null || { tail -n 20 "$log" >&2; return 1; }
    sleep 0.2
  done
}

engine() { docker --host "unix://$engine_socket" "$@"; }

import_root() { tar -C "$1" -c . | engine import - "$2" >/dev/null; }

profile_without_ptrace() {
  python3 - "$1/profile.json" <<'END'
import json
import sys

names = ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"]
with open(sys.argv[1], "w", encoding="utf-8") as stream:
    json.dump({"defaultAction": "SCMP_ACT_ALLOW", "architectures": [
        "SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_AARCH64"],
               "syscalls": [{"names": names, "action": "SCMP_ACT_ERRNO"}]}, stream)
END
  echo "$1/profile.json"
}
