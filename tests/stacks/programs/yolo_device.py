# SPDX-License-Identifier: Apache-2.0
"""Chooses a device as YOLOv5 does."""

from yolov5.utils.torch_utils import select_device

print(select_device("").type)
