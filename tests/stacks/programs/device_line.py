# SPDX-License-Identifier: Apache-2.0
"""CleanRL's way to choose a device, in a program of the user's own."""

import torch


def choose(cuda):
    return torch.device("cuda" if torch.cuda.is_available() and cuda else "cpu")


def main():
    device = choose(False)
    print(device)


main()
