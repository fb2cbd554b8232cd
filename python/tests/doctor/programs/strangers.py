# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them who never met each other: one fault each, or none. One function a program."""
import os
import random

import numpy
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset, random_split

import data

mse = nn.functional.mse_loss


def mlp(*layers):
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.ReLU(), nn.Linear(16, 1))


def fit(net, loader, epochs=2, set_epoch=True, rate=0.01):
    optimizer = torch.optim.SGD(net.parameters(), rate * dist.get_world_size())
    for epoch in range(epochs):
        if set_epoch and hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            mse(net(x), y).backward()
            optimizer.step()


def told_one_replica(rank, world):
    dataset = data.examples()
    fit(DDP(mlp()), DataLoader(dataset, 8, sampler=DistributedSampler(dataset, num_replicas=1, rank=0)))


def told_four_replicas(rank, world):
    dataset = data.examples(128)
    fit(DDP(mlp()), DataLoader(dataset, 8, sampler=DistributedSampler(dataset, num_replicas=4, rank=rank)), 3)


def persistent(rank, world, set_epoch=True):
    dataset = data.examples()
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset), num_workers=1, persistent_workers=True)
    fit(DDP(mlp()), loader, 3, set_epoch)


def persistent_no_epoch(rank, world):
    persistent(rank, world, set_epoch=False)


def split_apart(rank, world):
    """Each rank cuts a validation set off by itself, and then takes its part of another training set."""
    train, _ = random_split(data.examples(96), [72, 24], generator=torch.Generator().manual_seed(rank))
    fit(DDP(mlp()), DataLoader(train, 8, sampler=DistributedSampler(train)))


def by_hand(rank, world, order_of, epochs=3):
    x, y = data.examples(160).tensors
    net = DDP(mlp())
    optimizer = torch.optim.SGD(net.parameters(), 0.01 * world)
    for epoch in range(epochs):
        for some in torch.as_tensor(order_of(epoch)).split(8):
            optimizer.zero_grad()
            mse(net(x[some]), y[some]).backward()
            optimizer.step()


def hand_same_order(rank, world):
    by_hand(rank, world, lambda epoch: numpy.random.RandomState(0).permutation(160)[rank::world])


def hand_overlap(rank, world):
    by_hand(rank, world, lambda epoch: numpy.random.RandomState(epoch).permutation(160)[48 * rank : 48 * rank + 96])


def hand_drawn(rank, world):
    """Healthy: each rank draws examples with replacement, from a generator of its own."""
    own = numpy.random.default_rng(10 + rank)
    by_hand(rank, world, lambda epoch: own.integers(0, 160, 80))


class Turned(Dataset):
    """numpy's generator, seeded alike in every process, turns the examples."""

    def __init__(self):
        numpy.random.seed(3)
        self.data = data.examples()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        return x * float(numpy.random.choice([-1.0, 1.0]) + numpy.random.rand()), y


def turned_alike(rank, world):
    fit(DDP(mlp()), DataLoader(Turned(), 8, sampler=DistributedSampler(Turned())))


def skipped_step(rank, world):
    """A rank that finds its own loss odd leaves out the step."""
    torch.manual_seed(20 + rank)
    net = DDP(mlp())
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for number in range(12):
        x = torch.randn(8, 6)
        loss = mse(net(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        if rank == 1 and number == 4:
            continue
        optimizer.step()


def stale_average(rank, world):
    """Averages after the step, when it is too late."""
    torch.manual_seed(0)
    net = mlp()
    torch.manual_seed(20 + rank)
    optimizer = torch.optim.SGD(net.parameters(), 0.02)
    for _ in range(12):
        x = torch.randn(8, 6)
        optimizer.zero_grad()
        mse(net(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        for each in net.parameters():
            dist.all_reduce(each.grad)
            each.grad /= world


def closure(rank, world):
    """Healthy: the backward pass runs within the optimiser's step."""
    dataset = data.examples()
    net = DDP(mlp())
    optimizer = torch.optim.LBFGS(net.parameters(), 0.1, max_iter=2)
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:

            def again():
                optimizer.zero_grad()
                loss = mse(net(x), y)
                loss.backward()
                return loss

            optimizer.step(again)


def in_evaluation_mode(rank, world):
    """Healthy: statistics are frozen by training the whole network in evaluation mode."""
    dataset = data.examples()
    net = DDP(mlp(nn.BatchNorm1d(16)))
    net.eval()
    fit(net, DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def thawed_later(rank, world):
    """A layer that is frozen when the model is wrapped, and trained later."""
    net = mlp()
    net[0].requires_grad_(False)
    wrapped, dataset = DDP(net), data.examples()
    optimizer = torch.optim.SGD(net.parameters(), 0.02)
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        net[0].requires_grad_(epoch == 1)
        for x, y in loader:
            optimizer.zero_grad()
            mse(wrapped(x), y).backward()
            optimizer.step()


class Noisy(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)


def same_noise(rank, world):
    dataset = data.examples()
    torch.manual_seed(5)
    fit(DDP(mlp(Noisy())), DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def own_noise(rank, world):
    dataset = data.examples()
    net = DDP(mlp(Noisy()))
    torch.manual_seed(5 + rank)
    fit(net, DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def norm_of_sorted_parts(rank, world):
    """Many examples a rank, but each rank has its own kind."""
    x, y = data.examples(256).tensors
    order = x.sum(1).argsort()
    mine = order[rank * 128 : rank * 128 + 128]
    fit(DDP(mlp(nn.BatchNorm1d(16))), DataLoader(TensorDataset(x[mine], y[mine]), 32, shuffle=True), 3)


def norm_kept_apart(rank, world):
    """Running statistics of each rank, since nothing sends them."""
    dataset = data.examples(256)
    net = DDP(mlp(nn.BatchNorm1d(16)), broadcast_buffers=False)
    fit(net, DataLoader(dataset, 64, sampler=DistributedSampler(dataset)), 3)


def right_of(net, x, y):
    return ((net(x) > 0) == (y > 0)).float()


def evaluated(rank, world, loader, finish):
    dataset = data.examples()
    net = DDP(mlp())
    training = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    for epoch in range(3):
        training.sampler.set_epoch(epoch)
        fit(net, training, 1, set_epoch=False)
        with torch.no_grad():
            right = torch.cat([right_of(net.module, x, y) for x, y in loader])
        value = finish(right)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {value:.4f}")


def summed(right):
    whole = torch.tensor([right.sum(), len(right)])
    dist.all_reduce(whole)
    return (whole[0] / whole[1]).item()


def of_all(right):
    parts = [torch.empty_like(right) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, right)
    return torch.stack(parts, 1).flatten().mean().item()


def of_first_51(right, size=51):
    parts = [torch.empty_like(right) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, right)
    return torch.stack(parts, 1).flatten()[:size].mean().item()


def parts_of(size, **options):
    dataset = data.examples(size)
    return DataLoader(dataset, 8, sampler=DistributedSampler(dataset, shuffle=False), **options)


def evaluates_padded(rank, world):
    evaluated(rank, world, parts_of(51), summed)


def gathers_padded(rank, world):
    evaluated(rank, world, parts_of(51), of_all)


def gathers_and_cuts(rank, world):
    evaluated(rank, world, parts_of(51), of_first_51)


def evaluates_less(rank, world):
    evaluated(rank, world, parts_of(60, drop_last=True), summed)


def evaluates_whole(rank, world):
    """Healthy: each rank evaluates everything."""
    evaluated(rank, world, DataLoader(data.examples(51), 16), lambda right: right.mean().item())


def many_threads(rank, world):
    torch.set_num_threads(4 * (os.cpu_count() or 1))
    told_right(rank, world)


def threads_of_one(rank, world):
    if rank == 1:
        torch.set_num_threads(4 * (os.cpu_count() or 1))
    told_right(rank, world)


def told_right(rank, world):
    dataset = data.examples()
    fit(DDP(mlp()), DataLoader(dataset, 8, sampler=DistributedSampler(dataset, num_replicas=world, rank=rank)))


def distilled(rank, world):
    """Healthy: a teacher, two students, one optimiser, a metric that is merged, a seed a rank for what ranks draw."""
    torch.manual_seed(0)
    teacher, students = mlp().requires_grad_(False), DDP(nn.ModuleDict({"a": mlp(), "b": mlp()}))
    random.seed(rank)
    torch.manual_seed(30 + rank)
    optimizer = torch.optim.AdamW(students.parameters(), 1e-3)

    class Both(nn.Module):
        def __init__(self, parts):
            super().__init__()
            self.parts = parts

        def forward(self, x):
            return self.parts["a"](x), self.parts["b"](x)

    both = DDP(Both(students.module))
    for _ in range(10):
        x = torch.randn(16, 6) * random.uniform(0.5, 2)
        wanted = teacher(x)
        loss = sum(mse(each, wanted) for each in both(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"loss {shown.item() / world:.4f}")


def train(variant, rank, world):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world)


if __name__ == "__main__":
    start.main(train)
