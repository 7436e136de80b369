# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# write_pool_job LINE...: makes the program train.py, whose pool these lines make.
write_pool_job() {
  cat >train.py <<EOF
import ctypes


def ask(_):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
$(printf '%s\n' "$@" | sed 's/^/    /')
    print(pool.map(ask, range(1))[0])
EOF
}
