# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# crun alone, with a bundle in the current directory.
mount -t tmpfs none /run
mount -t tmpfs none /sys/fs/cgroup
unpack_trees

bundle() { # ROOT COMMAND...: a configuration that runs the command in this root
  rm -f config.json
  crun spec
  python3 - "$@" <<'EOF'
import json
import sys

with open("config.json", encoding="utf-8") as stream:
    config = json.load(stream)
config["root"] = {"path": sys.argv[1]}
config["process"].update(args=sys.argv[2:], terminal=False)
# There are no cgroups here that crun could use.
config["mounts"] = [row for row in config["mounts"] if row["type"] != "cgroup"]
config["linux"].pop("resources", None)
config["linux"]["namespaces"] = [row for row in config["linux"]["namespaces"]
                                 if row["type"] != "cgroup"]
with open("config.json", "w", encoding="utf-8") as stream:
    json.dump(config, stream)
EOF
}

crun() { command crun --cgroup-manager=disabled "$@"; }
