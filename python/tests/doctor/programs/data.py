# SPDX-License-Identifier: Apache-2.0
"""Programs whose fault, where they have one, is in what the ranks are fed."""
import itertools
import random
import sys

import numpy
import start
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset, get_worker_info

SIZE, BATCH, EPOCHS = 64, 8, 2


def examples(size=SIZE):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, 6, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


class Blind:
    """A sampler of one's own that knows no rank."""

    def __init__(self, size, rank=0, world=1, fixed=False):
        self.size, self.rank, self.world, self.fixed, self.epoch = size, rank, world, fixed, 0

    def __iter__(self):
        order = list(range(self.size))
        random.Random(7 if self.fixed else 7 + self.epoch).shuffle(order)
        self.epoch += 1
        return iter(order[self.rank :: self.world])

    def __len__(self):
        return len(range(self.rank, self.size, self.world))


class Overlapping(Blind):
    """Each rank's part is a quarter too long."""

    def __iter__(self):
        order = list(super().__iter__())
        half = self.size // 2
        return iter(order[half * self.rank : half * self.rank + half + self.size // 4])


class Noisy(Dataset):
    def __init__(self, how):
        self.how, self.data = how, examples()
        self.rng = random.Random(3) if how == "held" else None

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        x, y = self.data[index]
        if self.how == "held":
            return x + self.rng.random(), y
        if self.how == "by-index":
            return x + random.Random(index).random(), y
        if self.how == "torch":
            return x + torch.rand(1), y
        return x + numpy.random.rand(), y


class Stream(IterableDataset):
    def __init__(self, rank, world, by_rank, by_worker):
        self.rank, self.world, self.by_rank, self.by_worker = rank, world, by_rank, by_worker

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info and self.by_worker else (0, 1)
        number, of = (self.rank * workers + worker, self.world * workers) if self.by_rank else (worker, workers)
        return itertools.islice(iter(examples()), number, None, of)


def seed_all_alike(worker):
    numpy.random.seed(5)


def seed_apart(worker):
    numpy.random.seed((torch.initial_seed() + 1000 * torch.distributed.get_rank()) % 2**32)


def loader_of(variant, rank, world):
    data = examples()
    if variant == "no-sampler":
        return DataLoader(data, BATCH, shuffle=True)
    if variant == "blind":
        return DataLoader(data, BATCH, sampler=Blind(SIZE))
    if variant == "overlapping":
        return DataLoader(data, BATCH, sampler=Overlapping(SIZE))
    if variant == "own-sampler":
        return DataLoader(data, BATCH, sampler=Blind(SIZE, rank, world))
    if variant == "fixed-order":
        return DataLoader(data, BATCH, sampler=Blind(SIZE, rank, world, fixed=True))
    if variant == "divided":  # the same indices, other examples
        x, y = data.tensors
        return DataLoader(TensorDataset(x[rank::world], y[rank::world]), BATCH, shuffle=True)
    if variant == "padded":
        return DataLoader(examples(63), BATCH, sampler=DistributedSampler(examples(63)))
    if variant in ("stream", "stream-blind-rank", "stream-blind-worker"):
        stream = Stream(rank, world, variant != "stream-blind-rank", variant != "stream-blind-worker")
        return DataLoader(stream, BATCH, num_workers=2)
    if variant in ("worker-alike", "worker-apart"):
        init = seed_all_alike if variant == "worker-alike" else seed_apart
        return DataLoader(Noisy("numpy"), BATCH, sampler=DistributedSampler(Noisy("numpy")), num_workers=2, worker_init_fn=init)
    if variant in ("held", "by-index"):
        return DataLoader(Noisy(variant), BATCH, sampler=DistributedSampler(Noisy(variant)), num_workers=2)
    return DataLoader(data, BATCH, sampler=DistributedSampler(data))  # healthy, no-set-epoch


def train(variant, rank, world):
    torch.manual_seed(rank if variant == "no-sampler" else 0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * world)
    loader, losses = loader_of(variant, rank, world), []
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch") and variant != "no-set-epoch":
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    if rank == 0 and len(sys.argv) == 3:
        torch.save({"losses": torch.stack(losses), **model.module.state_dict()}, sys.argv[2])


if __name__ == "__main__":
    start.main(train)
