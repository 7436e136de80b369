# SPDX-License-Identifier: Apache-2.0
"""Asks CTranslate2 (a static CUDA 12 runtime) for GPUs and does some work on the CPU."""

import ctranslate2
import numpy

print("gpus=%d" % ctranslate2.get_cuda_device_count())
print("cpu=%s" % ("float32" in ctranslate2.get_supported_compute_types("cpu")))
view = ctranslate2.StorageView.from_array(numpy.arange(4, dtype=numpy.float32))
print("view=%s on %s" % (numpy.array(view).tolist(), view.device))
try:
    ctranslate2.get_supported_compute_types("cuda")
    print("cuda=yes")
except RuntimeError:
    print("cuda=no")
