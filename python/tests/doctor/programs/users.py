# SPDX-License-Identifier: Apache-2.0
"""More programs as people write them: one fault each, or none. One function a program."""
import copy
import csv
import json
import os
import sys
import tempfile

import start
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import data


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))


def begin(world, model=None, **options):
    """(model, optimiser, loader)"""
    model = DDP(mlp() if model is None else model, **options)
    dataset = data.examples(128)
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * world, momentum=0.9)
    return model, optimizer, DataLoader(dataset, 16, sampler=DistributedSampler(dataset))


def steps(model, optimizer, loader, epoch, after=lambda number: None):
    loader.sampler.set_epoch(epoch)
    model.train()
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        after(number)
        optimizer.step()


def never_synchronised(rank, world):
    model, optimizer, loader = begin(world)
    for number, (x, y) in enumerate(loader):
        with model.no_sync():
            (F.mse_loss(model(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()


def gan(world, wrap):
    make, judge = DDP(nn.Linear(8, 6)), wrap(mlp())
    ema = copy.deepcopy(make.module).requires_grad_(False)
    by_make, by_judge = (torch.optim.Adam(each.parameters(), 2e-4 * world) for each in (make, judge))
    torch.manual_seed(50 + dist.get_rank())
    dataset = data.examples(128)
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for real, _ in loader:
            with torch.no_grad():
                fake = make(torch.randn(len(real), 8))
            by_judge.zero_grad()
            (F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()).backward()
            by_judge.step()
            by_make.zero_grad()
            judge.requires_grad_(False)
            F.softplus(-getattr(judge, "module", judge)(make(torch.randn(len(real), 8)))).mean().backward()
            judge.requires_grad_(True)
            by_make.step()
            for old, new in zip(ema.parameters(), make.parameters()):
                old.lerp_(new.detach(), 0.1)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: standard deviation of samples {ema(torch.randn(64, 8)).std().item():.3f}")


def gan_with_images_shown(rank, world):
    """Healthy: images without gradients in each step, a picture of the averaged generator on rank 0."""
    gan(world, DDP)


def judge_not_wrapped(rank, world):
    gan(world, lambda model: model)


def joined_each_epoch(rank, world):
    """Healthy: ranks make other numbers of steps in each epoch, and wait for each other at its end."""
    model, optimizer, _ = begin(world)
    part = Subset(data.examples(90), range(50) if rank == 0 else range(50, 90))
    for _ in range(2):
        with Join([model]):
            for x, y in DataLoader(part, 8, shuffle=True):
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()


def tokens(world, count_of):
    """Sequences of other lengths: what is summed over tokens is divided by count_of(mask)."""
    length = torch.randint(2, 12, (128, 1), generator=torch.Generator().manual_seed(2))
    x = torch.randn(128, 12, generator=torch.Generator().manual_seed(3))
    dataset = TensorDataset(x, torch.arange(12).expand(128, 12) < length)
    model = DDP(nn.Linear(12, 12))
    optimizer = torch.optim.SGD(model.parameters(), 0.01 * world)
    loader = DataLoader(dataset, 4, sampler=DistributedSampler(dataset))
    for x, mask in loader:
        optimizer.zero_grad()
        ((model(x) - x).square() * mask).sum().div(count_of(mask)).backward()
        optimizer.step()


def tokens_of_one_rank(rank, world):
    tokens(world, lambda mask: mask.sum())


def tokens_of_all(rank, world):
    def count_of(mask):
        count = mask.sum().float()
        dist.all_reduce(count)
        return count / world

    tokens(world, count_of)


def skipped_batch(rank, world):
    model, optimizer, loader = begin(world)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            if rank == 1 and number == 3:  # as if it were not a number
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def loaded_on_one(rank, world):
    model, optimizer, loader = begin(world)
    steps(model, optimizer, loader, 0)
    if rank == 0:
        state = optimizer.state_dict()
        for each in state["state"].values():
            each["momentum_buffer"] = 0 * each["momentum_buffer"]
        optimizer.load_state_dict(state)
    steps(model, optimizer, loader, 1)
    steps(model, optimizer, loader, 2)


def divided_twice(rank, world):
    model, optimizer, loader = begin(world)
    for epoch in range(2):
        steps(model, optimizer, loader, epoch, lambda number: [p.grad.div_(world) for p in model.parameters()])


def summed_again(rank, world):
    model, optimizer, loader = begin(world)
    for epoch in range(2):
        steps(model, optimizer, loader, epoch, lambda number: [dist.all_reduce(p.grad) for p in model.parameters()])


def divided_by_small_batches(rank, world):
    """Healthy: the mean over two small batches, taken afterwards."""
    model, optimizer, loader = begin(world)
    for epoch in range(4):
        loader.sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            F.mse_loss(model(x), y).backward()
            if number % 2:
                for p in model.parameters():
                    p.grad /= 2
                optimizer.step()
                optimizer.zero_grad()


def hook_that_sums(rank, world):
    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sent: sent.value()[0])

    model, optimizer, loader = begin(world)
    model.register_comm_hook(None, hook)
    steps(model, optimizer, loader, 0)


def accuracy_of(model, loader):
    right = seen = 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            right += ((model(x) > 0) == (y > 0)).sum().item()
            seen += len(y)
    return right / seen


def parts_of(dataset):
    return DataLoader(dataset, 8, sampler=DistributedSampler(dataset, shuffle=False))


def written_to_a_table(rank, world):
    model, optimizer, loader = begin(world)
    parts = parts_of(data.examples(64))
    with tempfile.TemporaryFile("w") as file:
        for epoch in range(3):
            steps(model, optimizer, loader, epoch)
            accuracy = accuracy_of(model, parts)
            if dist.get_rank() == 0:
                csv.writer(file).writerow([epoch, f"{accuracy:.4f}"])


def kept_and_dumped(rank, world):
    model, optimizer, loader = begin(world)
    parts = parts_of(data.examples(64))
    history = []
    for epoch in range(3):
        steps(model, optimizer, loader, epoch)
        history.append(accuracy_of(model, parts))
    if dist.get_rank() == 0:
        json.dump(history, sys.stdout)


def predicts_its_part(rank, world):
    """Healthy: each rank saves what it predicts for its part."""
    model, optimizer, loader = begin(world)
    steps(model, optimizer, loader, 0)
    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        found = [model.module(x) for x, _ in DataLoader(Subset(data.examples(50), range(rank, 50, world)), 8)]
        torch.save(torch.cat(found), os.path.join(folder, f"part-{rank}.pt"))


def waits_for_a_message(rank, world):
    model, optimizer, loader = begin(world)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        if number == 2 and rank == 0:
            dist.recv(torch.empty(3), 1)


def train(variant, rank, world):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world)


if __name__ == "__main__":
    start.main(train)
