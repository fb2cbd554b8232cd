# SPDX-License-Identifier: Apache-2.0
"""Programs that average their gradients in hooks, or change them there, and programs whose learning rate knows of the number of
ranks, or does not. One function a program."""
import argparse

import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import data


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def fit(model, rank, world_size, before_step=lambda: None, micro=1):
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * world_size)
    x, y = data.examples(128).tensors
    for number, some in enumerate(torch.arange(rank, 128, world_size).split(4)):
        (nn.functional.mse_loss(model(x[some]), y[some]) / micro).backward()
        if number % micro == micro - 1:
            before_step()
            optimizer.step()
            optimizer.zero_grad()


def mean_of(gradient):
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()


def sum_of(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient


def averaged(rank, world_size):
    model = net()
    for p in model.parameters():
        p.register_hook(mean_of)
    fit(model, rank, world_size)


def averaged_in_small_batches(rank, world_size):
    model = net()
    for p in model.parameters():
        p.register_hook(mean_of)
    fit(model, rank, world_size, micro=4)


def summed(rank, world_size):
    model = net()
    for p in model.parameters():
        p.register_hook(sum_of)
    fit(model, rank, world_size)


def averaged_afterwards(rank, world_size, divided=True):
    """Hooks begin the sums, which the step waits for."""
    model, sent = net(), []

    def begin(p):
        if divided:
            p.grad /= world_size
        sent.append(dist.all_reduce(p.grad, async_op=True))

    def wait():
        while sent:
            sent.pop().wait()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(begin)
    fit(model, rank, world_size, wait)


def summed_afterwards(rank, world_size):
    averaged_afterwards(rank, world_size, divided=False)


def partly_averaged(rank, world_size):
    model = net()
    for p in model[0].parameters():
        p.register_hook(mean_of)
    fit(model, rank, world_size)


def clipped(rank, world_size):
    """Healthy: hooks that call nobody, under DistributedDataParallel."""
    model = DistributedDataParallel(net())
    for p in model.parameters():
        p.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
    fit(model, rank, world_size)


def counted(rank, world_size):
    """Healthy: a hook that only looks, and tells the others what it saw."""
    model, seen = DistributedDataParallel(net()), torch.zeros(1)

    def look(p):
        seen.fill_(p.grad.norm())
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)

    model.module[0].weight.register_post_accumulate_grad_hook(look)
    fit(model, rank, world_size)


def fit_loader(model, optimizer, schedule=None):
    dataset = data.examples(128)
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()


def linear():
    return DistributedDataParallel(nn.Linear(6, 1))


def plain(rank, world_size):
    model = linear()
    fit_loader(model, torch.optim.SGD(model.parameters(), lr=0.01))


def of_arguments(rank, world_size):
    """In disguise: the rate comes from the command line, and other words of the line look as if it knew of the ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args([])
    rescaled_net = linear()
    fit_loader(rescaled_net, torch.optim.SGD(rescaled_net.parameters(), lr=args.lr))  # for world_size ranks


def scaled_above(rank, world_size):
    model = linear()
    rate = 0.01
    rate *= world_size
    fit_loader(model, torch.optim.SGD(model.parameters(), rate, momentum=0.9))


def warmed_up(rank, world_size):
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit_loader(model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 + (world_size - 1) * min(1, step / 4)))


def divided_batch(rank, world_size):
    """The global batch is that of one device."""
    model, dataset = linear(), data.examples(128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(dataset, batch_size=16 // world_size, sampler=DistributedSampler(dataset))
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def train(variant, rank, world_size):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
