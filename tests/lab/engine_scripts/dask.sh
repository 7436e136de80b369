# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Dask with a LocalCluster, and with a scheduler and a worker of the command line.
cat >dask_job.py <<'EOF'
import ctypes
import sys

from distributed import Client, LocalCluster


def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    if sys.argv[1] != "plain":
        exec(open(sys.argv[1]).read())
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            print(client.submit(ask).result())
EOF
cat >dask_client.py <<'EOF'
import ctypes

from distributed import Client


def ask():
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


with Client("tcp://127.0.0.1:8786") as client:
    client.wait_for_workers(1, timeout=120)
    print(client.submit(ask).result())
    client.retire_workers()
EOF
dask scheduler --host 127.0.0.1 --no-dashboard >scheduler.log 2>&1 &

worker() { # COMMAND: starts a worker that ends with the step, and prints what it printed
  local words=$*
  eval "exec $words --no-dashboard" >worker.log 2>&1 &
  worker=$!
  trap 'kill $worker 2>/dev/null; wait $worker; cat worker.log' EXIT
}
