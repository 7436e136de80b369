# SPDX-License-Identifier: Apache-2.0
"""Runs TorchRL's collector, whose workers are spawned processes that need no GPU."""

from torchrl.collectors import MultiSyncDataCollector
from torchrl.envs.libs.gym import GymEnv
from torchrl.envs.utils import RandomPolicy


def make():
    return GymEnv("Pendulum-v1", device="cpu")


if __name__ == "__main__":
    policy = RandomPolicy(make().action_spec)
    collector = MultiSyncDataCollector([make] * 2, policy, frames_per_batch=40, total_frames=40,
                                       device="cpu", storing_device="cpu")
    print(sum(data.numel() for data in collector))
    collector.shutdown()
