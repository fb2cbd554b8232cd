# SPDX-License-Identifier: Apache-2.0
"""Programs that train differently on one and on two ranks with the same global batch, written in the words of the doctor's
fixes. mend.py puts the fix in the place of the fault, and runs the result."""
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import data
import lockstep

seed = 3


def net(*layers):
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.ReLU(), nn.Linear(16, 1))


def fit(model, batches, world_size, after=lambda model: None):
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        after(model)
        optimizer.step()


def shares(rank, world_size, seed=0):
    x, y = data.examples(160).tensors
    for some in torch.randperm(160, generator=torch.Generator().manual_seed(seed)).split(16):
        yield x[some[rank::world_size]], y[some[rank::world_size]]


def other_weights(rank, world_size):
    # fault: depends-on-ranks
    torch.manual_seed(world_size)
    # end
    fit(DistributedDataParallel(net()), shares(rank, world_size), world_size)


def own_statistics(rank, world_size):
    torch.manual_seed(0)
    model = net(nn.BatchNorm1d(16))
    # fault: depends-on-ranks
    # end
    fit(DistributedDataParallel(model), shares(rank, world_size), world_size)


def summed(rank, world_size):
    torch.manual_seed(0)

    def reduce(model):
        for p in model.parameters():
            dist.all_reduce(p.grad)
            # fault: depends-on-ranks
            # end

    fit(net(), shares(rank, world_size), world_size, reduce)


def other_examples(rank, world_size):
    torch.manual_seed(0)
    model, dataset = DistributedDataParallel(net()), data.examples(160)
    # fault: depends-on-ranks [GLOBAL_BATCH = 16]
    sampler = lockstep.ExactSampler(dataset, batch_size=16, seed=world_size)
    loader = DataLoader(dataset, batch_sampler=sampler)
    # end
    fit(model, loader, world_size)


def train(variant, rank, world_size):
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
