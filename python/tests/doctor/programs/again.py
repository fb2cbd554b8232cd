# SPDX-License-Identifier: Apache-2.0
"""Programs that are run more than once: two runs of one seed that differ, and runs on one and on two ranks that do."""
import os
import time

import numpy
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import data

BATCH, STEPS = 16, 8


class Shaken(torch.autograd.Function):
    """Its backward pass takes noise from outside."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient + torch.from_numpy(numpy.random.default_rng().normal(0, 1e-3, gradient.shape)).float()


class Layer(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.variant = variant
        self.generator = torch.Generator().manual_seed(time.time_ns() if variant == "generator" else 1)

    def forward(self, x):
        if self.variant == "backward":
            return Shaken.apply(x)
        if self.variant in ("generator", "seeded"):
            return x + 0.1 * torch.randn(x.shape, generator=self.generator)
        if self.variant == "other-operation":
            return x.tanh() if os.urandom(1)[0] % 2 else x.sigmoid()
        return x


def order_of(variant, world, step):
    generator = torch.Generator().manual_seed(step + (100 * world if variant == "examples" else 0))
    return torch.randperm(160, generator=generator)[:BATCH]


def train(variant, rank, world):
    """The global batch is the same on any number of ranks."""
    torch.manual_seed(world if variant == "weights" else 0)
    norm = nn.BatchNorm1d(16) if variant == "norm" else nn.Identity()
    model = nn.Sequential(nn.Linear(6, 16), norm, Layer(variant), nn.ReLU(), nn.Linear(16, 1))
    wrapped = model if variant == "sum" else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05 * (world if variant == "rate" else 1))
    x, y = data.examples(160).tensors
    for step in range(STEPS):
        mine = order_of(variant, world, step)[rank::world]
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(x[mine]), y[mine]).backward()
        if variant == "sum":
            for each in model.parameters():
                dist.all_reduce(each.grad)
        optimizer.step()


if __name__ == "__main__":
    start.main(train)
