# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# joblib_job.py is the program of the page, whose first lines the row adds.
cat >joblib_job.py <<'EOF'
import ctypes

import joblib


def ask(_):
    return ctypes.CDLL("libcuda.so.1").cuInit(0)


if __name__ == "__main__":
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(ask)(i) for i in range(4))[0])
EOF
