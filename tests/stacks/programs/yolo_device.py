# SPDX-License-Identifier: Apache-2.0
"""YOLOv5's way to choose a device."""

from yolov5.utils.torch_utils import select_device

print(select_device("").type)
