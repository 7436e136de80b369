# SPDX-License-Identifier: Apache-2.0
"""The suite of README's picture: one of its tests asks for CUDA, as most do, and works on the CPU."""

import os

import torch


def device():
    return os.environ.get("DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


def test_weights_are_ones():
    assert torch.ones(3, device=device()).sum() == 3


def test_weights_are_saved(tmp_path):
    torch.save(torch.ones(3), tmp_path / "weights.pt")
    assert torch.load(tmp_path / "weights.pt").sum() == 3
