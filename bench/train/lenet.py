# SPDX-License-Identifier: Apache-2.0
"""The LeNet of Dive into Deep Learning as PyTorch has it, for those that are measured beside Lockstep."""
from torch import nn


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
