# SPDX-License-Identifier: Apache-2.0
"""Runs CleanRL's line with --no-cuda, which enters the driver because is_available() comes first.
"""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", dest="cuda", action="store_false")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
print("device=%s sum=%.1f" % (device, torch.ones(4, device=device).sum().item()))
