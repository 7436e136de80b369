# SPDX-License-Identifier: Apache-2.0
"""Asks PyTorch what a program asks first, and computes on the CPU."""

import torch

print("is_available=%s device_count=%d" % (torch.cuda.is_available(), torch.cuda.device_count()))
print("sum=%d" % torch.arange(10).sum().item())
