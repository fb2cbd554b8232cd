# SPDX-License-Identifier: Apache-2.0
"""Programs whose learning rate knows of the number of ranks, or does not. One function a program."""
import argparse

import start
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import data

BATCH = 16


def fit(model, optimizer, batch=8, schedule=None):
    dataset = data.examples(128)
    loader = DataLoader(dataset, batch, sampler=DistributedSampler(dataset))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()


def net():
    return DistributedDataParallel(nn.Linear(6, 1))


def plain(rank, world_size):
    model = net()
    fit(model, torch.optim.SGD(model.parameters(), lr=0.01))


def of_arguments(rank, world_size):
    """In disguise: the rate comes from the command line, and other words of the line look as if it knew of the ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args([])
    rescaled_net = net()
    fit(rescaled_net, torch.optim.SGD(rescaled_net.parameters(), lr=args.lr))  # for world_size ranks


def scaled_above(rank, world_size):
    model = net()
    rate = 0.01
    rate *= world_size
    fit(model, torch.optim.SGD(model.parameters(), rate, momentum=0.9))


def warmed_up(rank, world_size):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(model, optimizer, 8, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 + (world_size - 1) * min(1, step / 4)))


def divided_batch(rank, world_size):
    """The global batch is that of one device."""
    model, dataset = net(), data.examples(128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(dataset, batch_size=BATCH // world_size, sampler=DistributedSampler(dataset))
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def train(variant, rank, world_size):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
