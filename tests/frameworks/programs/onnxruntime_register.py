# SPDX-License-Identifier: Apache-2.0
"""Registers ONNX Runtime's CUDA provider as a library, as a program with plug-in providers does."""

import os

import onnxruntime

library = os.path.join(os.path.dirname(onnxruntime.__file__), "capi",
                       "libonnxruntime_providers_cuda.so")
try:
    onnxruntime.register_execution_provider_library("cuda", library)
except Exception as error:
    print("raised: " + str(error).replace(library, "LIBRARY").partition(" with error")[0])
else:
    print("devices: %s" % [device.ep_name for device in onnxruntime.get_ep_devices()])
