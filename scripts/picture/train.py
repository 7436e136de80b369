# SPDX-License-Identifier: Apache-2.0
"""The training script of the picture: asks for CUDA, as most scripts do, and works on the CPU."""

import os
import sys
import time

import torch

os.access("/picture/begin", os.F_OK)  # marks the begin in strace's log
begin = time.perf_counter()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gpus = torch.cuda.device_count()
milliseconds = 1000 * (time.perf_counter() - begin)
os.access("/picture/end", os.F_OK)

weights = torch.ones(3, device=device)
print("training on the %s, %d GPUs" % (device, gpus), flush=True)
if "--time" in sys.argv:
    print(milliseconds)
