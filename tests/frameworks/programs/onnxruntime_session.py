# SPDX-License-Identifier: Apache-2.0
"""onnxruntime_session.py PROVIDER... runs a session once with these providers in this order."""

import sys

import numpy
import onnxruntime
from onnx import TensorProto, helper

FLOATS = TensorProto.FLOAT
graph = helper.make_graph(
    [helper.make_node("Add", ["x", "x"], ["y"])], "double",
    [helper.make_tensor_value_info("x", FLOATS, [2])],
    [helper.make_tensor_value_info("y", FLOATS, [2])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
try:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=sys.argv[1:])
except RuntimeError as error:
    print("raised: %s" % str(error).split(";")[0])
    sys.exit(1)
(result,) = session.run(None, {"x": numpy.array([1, 2], numpy.float32)})
print("%s with %s" % (result.tolist(), session.get_providers()))
