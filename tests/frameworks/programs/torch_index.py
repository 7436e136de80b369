# SPDX-License-Identifier: Apache-2.0
"""Puts tensors on GPUs by number and says on which GPU each is.

torch_index.py DEVICE...     for example cuda:3; tensors and a module are put there
"""

import sys

import torch


def try_to(make):
    try:
        return str(make().device)
    except RuntimeError as error:
        return str(error).splitlines()[0].replace(" ", "-")


def choose(device):
    torch.cuda.set_device(device)
    return torch.empty(1, device="cuda")


print("count=%d" % torch.cuda.device_count())
for number, device in enumerate(sys.argv[1:]):
    print("made%d=%s" % (number, try_to(lambda: torch.empty(1, device=device))))
    print("moved%d=%s" % (number, try_to(lambda: torch.tensor([1.0]).to(device))))
    print("chosen%d=%s" % (number, try_to(lambda: choose(device))))
    print("module%d=%s" % (number, try_to(lambda: torch.nn.Linear(1, 1).to(device).weight)))
