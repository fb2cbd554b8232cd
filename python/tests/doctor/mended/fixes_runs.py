# SPDX-License-Identifier: Apache-2.0
"""Programs of which two runs differ, written in the words of the doctor's fixes. mend.py puts the fix in the place of the
fault, and runs the result twice."""
import os
import random

import numpy
import start
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import data

seed = 3


class Jitter(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return x + torch.from_numpy(self.draw(x.shape)).float()


def fit(*layers):
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), *layers, nn.ReLU(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    x, y = data.examples(64).tensors
    for some in torch.arange(64).split(8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[some]), y[some]).backward()
        optimizer.step()


def unseeded(rank, world_size):
    # fault: nondeterministic-operation
    torch.seed()
    # end
    fit()


def numbers_from_outside(rank, world_size):
    torch.manual_seed(0)
    # fault: nondeterministic-operation
    random.seed(os.urandom(4))
    generator = numpy.random.default_rng()
    # end
    fit(Jitter(lambda shape: generator.normal(0, 0.1, shape)))


def train(variant, rank, world_size):
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
