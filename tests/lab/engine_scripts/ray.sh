# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A Ray cluster of one node. Sockets have short names, so its directory is in the sandbox's /tmp.
export RAY_USAGE_STATS_ENABLED=0 RAY_ADDRESS=auto RAY_COLOR_PREFIX=0
mkdir -p /tmp/cgr
export RAY_TMPDIR=/tmp/cgr

cluster() { # COMMAND: ray start, by the page's line
  local words=$*
  eval "$words --num-cpus=2 --include-dashboard=false" >ray.log 2>&1 || { cat ray.log; exit 1; }
}

# ray_job.py SETTING [options]: runs the block of this name, then a task.
cat >ray_job.py <<'EOF'
import re
import sys

import ray


@ray.remote
def ask():
    import ctypes
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if sys.argv[1] == "plain":
    ray.init()
else:
    exec(open(sys.argv[1]).read())
task = ask
if "options" in sys.argv:
    task = eval("ask" + open("options").read().strip())
print(ray.get(task.remote()), flush=True)
import time
time.sleep(2)  # Ray prints the workers' messages a moment later
EOF
