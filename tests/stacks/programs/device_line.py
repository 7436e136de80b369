# SPDX-License-Identifier: Apache-2.0
"""Chooses a device as CleanRL does, in a user's own program."""

import torch


def choose(cuda):
    return torch.device("cuda" if torch.cuda.is_available() and cuda else "cpu")


def main():
    device = choose(False)
    print(device)


main()
