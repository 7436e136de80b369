# SPDX-License-Identifier: Apache-2.0
"""Asks PyTorch in a DataLoader's workers, forked and spawned, in mp.spawn's, and in the parent.

The parent asks last, because a forked worker inherits its answer, and each has to get its own.
"""

import os

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


def ask():
    """Returns is_available() by CUDA and by NVML (read at each call), and device_count()."""
    answers = [int(torch.cuda.is_available())]
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    answers.append(int(torch.cuda.is_available()))
    del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]
    return answers + [torch.cuda.device_count()]


class Asks(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.tensor(ask() + [os.getpid()])


def worker(rank, queue):
    queue.put([rank] + ask())


def main():
    torch.set_num_threads(1)
    for method in ("fork", "spawn"):
        loader = DataLoader(Asks(), num_workers=2, multiprocessing_context=method)
        rows = [row[0].tolist() for row in loader]
        print("DataLoader %s: %s in %d processes" % (
            method, [row[:3] for row in rows], len({row[3] for row in rows})))
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(worker, args=(queue,), nprocs=2)
    print("mp.spawn: %s" % sorted(queue.get() for _ in range(2)))
    print("parent: %s" % ask())


if __name__ == "__main__":
    main()
