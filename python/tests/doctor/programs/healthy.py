# SPDX-License-Identifier: Apache-2.0
"""Healthy programs: nothing above a note may be said of them. Each is a way to train that people use."""
import copy
import itertools
import random

import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset, get_worker_info

import data
import lockstep

mse = nn.functional.mse_loss


def net(width=16, *layers):
    return nn.Sequential(nn.Linear(6, width), *layers, nn.ReLU(), nn.Linear(width, 1))


def loop(model, loader, optimizer, epochs=(0, 1), loss_of=mse):
    for epoch in epochs:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")


def sampled(dataset, batch=8, **options):
    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset, **options))


def images(rank, world):
    """Batch norms over shares that are large enough."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(256, 1, 6, 6, generator=generator)
    dataset = TensorDataset(pictures, pictures.mean((1, 2, 3)).unsqueeze(1))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    ddp = DistributedDataParallel(model)
    loop(ddp, sampled(dataset, 32), torch.optim.SGD(ddp.parameters(), 0.01 * world, momentum=0.9))
    ddp.eval()
    sums = torch.zeros(2)
    with torch.no_grad():
        for x, y in DataLoader(Subset(dataset, range(rank, 256, world)), 32):
            sums += torch.stack([mse(ddp.module(x), y, reduction="sum"), torch.tensor(float(len(x)))])
    dist.all_reduce(sums)
    if rank == 0:
        print(f"error {sums[0] / sums[1]:.4f}")


def gan(rank, world):
    make = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6)))
    judge = DistributedDataParallel(net())
    by_make = torch.optim.Adam(make.parameters(), 1e-3)
    by_judge = torch.optim.Adam(judge.parameters(), 1e-3)
    torch.manual_seed(100 + rank)
    loss_of = nn.functional.binary_cross_entropy_with_logits
    loader = sampled(data.examples(64), drop_last=True)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for real, _ in loader:
            fake = make(torch.randn(len(real), 4))
            by_judge.zero_grad()
            yes, no = judge(torch.cat([real, fake.detach()])).chunk(2)
            (loss_of(yes, torch.ones_like(yes)) + loss_of(no, torch.zeros_like(no))).backward()
            by_judge.step()
            by_make.zero_grad()
            judge.requires_grad_(False)
            wanted = judge(fake)
            loss_of(wanted, torch.ones_like(wanted)).backward()
            judge.requires_grad_(True)
            by_make.step()


def joined_norm(rank, world):
    model = lockstep.SyncBatchNorm.convert_sync_batchnorm(net(16, nn.BatchNorm1d(16)))
    ddp = DistributedDataParallel(model)
    loop(ddp, sampled(data.examples(64), 4), torch.optim.SGD(ddp.parameters(), 0.01 * world))


def rank_0_evaluates(rank, world):
    dataset = data.examples(64)
    ddp = DistributedDataParallel(net())
    optimizer, best = torch.optim.SGD(ddp.parameters(), 0.01 * world), 1e9
    for epoch in range(2):
        loop(ddp, sampled(dataset), optimizer, [epoch])
        if rank == 0:
            ddp.module.eval()
            with torch.no_grad():
                errors = [mse(ddp.module(x), y, reduction="sum").item() for x, y in DataLoader(dataset, 16)]
            ddp.module.train()
            error = sum(errors) / len(dataset)
            print(f"error {error:.4f}")
            best = min(best, error)
        dist.barrier()


def all_evaluate_everything(rank, world):
    dataset = data.examples(48)
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for epoch in range(3):
        loop(ddp, sampled(dataset), optimizer, [epoch])
        with torch.no_grad():
            error = sum(mse(ddp(x), y).item() for x, y in DataLoader(dataset, 16)) / 3
        plateau.step(error)
        print(f"error {error:.4f}")


def accumulated(rank, world):
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    loader = sampled(data.examples(176))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):  # eleven batches: the last step has three
            whole = number % 4 == 3 or number + 1 == len(loader)
            if whole:
                (mse(ddp(x), y) / 4).backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with ddp.no_sync():
                    (mse(ddp(x), y) / 4).backward()


def several_models(rank, world):
    body, head = DistributedDataParallel(nn.Linear(6, 8)), DistributedDataParallel(nn.Linear(8, 1))
    teacher = copy.deepcopy(body.module).requires_grad_(False)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.01 * world)
    loader = sampled(data.examples(64))
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            with torch.no_grad():
                wanted = teacher(x)
            features = body(x)
            loss = mse(head(torch.relu(features)), y) + 0.1 * mse(features, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for old, new in zip(teacher.parameters(), body.parameters()):
                    old.lerp_(new, 0.1)


class Shuffled(IterableDataset):
    """A shuffled stream: all ranks and workers know one order an epoch, and each takes its part."""

    def __init__(self, rank, world):
        self.rank, self.world, self.epoch = rank, world, 0

    def __iter__(self):
        info = get_worker_info()
        number, of = (info.id, info.num_workers) if info else (0, 1)
        order = list(range(64))
        random.Random(self.epoch).shuffle(order)
        whole = data.examples(64)
        for index in order[self.rank * of + number :: self.world * of]:
            yield whole[index]


def stream(rank, world):
    ddp, dataset = DistributedDataParallel(net()), Shuffled(rank, world)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    for epoch in range(2):
        dataset.epoch = epoch
        loop(ddp, DataLoader(dataset, 8, num_workers=2), optimizer, [epoch])


class Buckets:
    """Batches of examples of like length, whole ones dealt to the ranks in turn."""

    def __init__(self, lengths, batch, rank, world):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch] for i in range(0, len(order), batch)]
        self.rank, self.world, self.epoch = rank, world, 0

    def __iter__(self):
        order = list(range(len(self.batches)))
        random.Random(self.epoch).shuffle(order)
        self.epoch += 1
        return iter([self.batches[i] for i in order[: len(order) // self.world * self.world]][self.rank :: self.world])

    def __len__(self):
        return len(self.batches) // self.world


def buckets(rank, world):
    dataset = data.examples(72)
    lengths = [int(10 * x.abs().sum()) for x, _ in dataset]
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    loop(ddp, DataLoader(dataset, batch_sampler=Buckets(lengths, 8, rank, world)), optimizer)


class Weighted:
    """Draws with replacement, by weights, a part of one sequence for each rank."""

    def __init__(self, weights, rank, world):
        self.weights, self.rank, self.world, self.epoch = weights, rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.epoch)
        drawn = torch.multinomial(self.weights, len(self.weights), True, generator=generator).tolist()
        return iter(drawn[self.rank :: self.world])

    def __len__(self):
        return len(self.weights) // self.world


def weighted(rank, world):
    dataset = data.examples(64)
    ddp = DistributedDataParallel(net())
    sampler = Weighted(torch.rand(64, generator=torch.Generator().manual_seed(3)) + 0.1, rank, world)
    loop(ddp, DataLoader(dataset, 8, sampler=sampler), torch.optim.AdamW(ddp.parameters(), 1e-3))


def in_order(rank, world):
    ddp = DistributedDataParallel(net(), static_graph=True, gradient_as_bucket_view=True)
    loop(ddp, sampled(data.examples(64), shuffle=False), torch.optim.SGD(ddp.parameters(), 0.01 * world))


def exact(rank, world):
    dataset = data.examples(70)
    ddp = DistributedDataParallel(net())
    ddp.register_comm_hook(None, lockstep.canonical_hook)
    sampler = lockstep.ExactSampler(dataset, batch_size=16)
    loop(ddp, DataLoader(dataset, batch_sampler=sampler), torch.optim.SGD(ddp.parameters(), 0.01 * world))
    lockstep.divergence_watch(ddp).check()


def compressed(rank, world):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    ddp = DistributedDataParallel(net(64))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=3)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    loop(ddp, sampled(data.examples(96)), torch.optim.SGD(ddp.parameters(), 0.01 * world))


def divided_optimizer(rank, world):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=1e-3)
    loop(ddp, sampled(data.examples(64)), optimizer)


def uneven_joined(rank, world):
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    part = Subset(data.examples(72), range(40) if rank == 0 else range(40, 72))
    with ddp.join():
        loop(ddp, DataLoader(part, 8, shuffle=True), optimizer)


def by_hand(rank, world):
    """No loader, no wrapper: one permutation an epoch, gradients in one flat message."""
    x, y = data.examples(64).tensors
    torch.manual_seed(rank)
    model = net()
    for each in model.parameters():
        dist.broadcast(each.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    for epoch in range(2):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(16):
            mine = batch[rank::world]
            optimizer.zero_grad()
            mse(model(x[mine]), y[mine]).backward()
            flat = torch.cat([each.grad.reshape(-1) for each in model.parameters()])
            dist.all_reduce(flat)
            flat /= world
            for each, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
                each.grad.copy_(part.view_as(each))
            optimizer.step()


def own_worlds(rank, world):
    """Each rank draws its own experience, as in reinforcement learning."""
    ddp = DistributedDataParallel(net(16, nn.Dropout(0.2)))
    optimizer = torch.optim.Adam(ddp.parameters(), 1e-3)
    torch.manual_seed(50 + rank)
    for _ in range(10):
        seen = torch.randn(16, 6)
        loss = (ddp(seen).squeeze(1) * seen.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()


def contrastive(rank, world):
    """Features of all ranks are negatives; the gradient goes through one's own."""
    ddp = DistributedDataParallel(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    loader = sampled(data.examples(64), drop_last=True)
    torch.manual_seed(9 + rank)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for x, _ in loader:
            one, two = ddp(torch.cat([x, x + 0.1 * torch.randn_like(x)])).chunk(2)
            every = [torch.empty_like(two) for _ in range(world)]
            dist.all_gather(every, two.detach())
            every[rank] = two
            loss = nn.functional.cross_entropy(one @ torch.cat(every).T, torch.arange(len(x)) + rank * len(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def two_loaders(rank, world):
    """Labelled and unlabelled examples, the shorter loader begun anew when it ends; warm-up; autocast."""
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(ddp.parameters(), 1e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    few, many = sampled(data.examples(32), 4), sampled(data.examples(128), 8)
    for epoch in range(2):
        few.sampler.set_epoch(epoch)
        many.sampler.set_epoch(epoch)
        for (x, y), (free, _) in zip(itertools.cycle(few), many):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = ddp(torch.cat([x, free]))
                loss = mse(out[: len(x)].float(), y) + 0.01 * out[len(x) :].float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warm.step()


def pipeline(rank, world):
    """Another half of one model on each rank."""
    half = nn.Linear(6, 6) if rank == 0 else nn.Linear(6, 6).requires_grad_(True)
    optimizer = torch.optim.SGD(half.parameters(), 0.01)
    x, y = data.examples(64).tensors
    for batch, wanted in zip(x.split(8), y.split(8)):
        optimizer.zero_grad()
        if rank == 0:
            out = half(batch)
            dist.send(out.detach(), 1)
            grad = torch.empty_like(out)
            dist.recv(grad, 1)
            out.backward(grad)
        else:
            given = torch.empty(8, 6)
            dist.recv(given, 0)
            given.requires_grad_(True)
            mse(half(given).sum(1, keepdim=True), wanted).backward()
            dist.send(given.grad, 0)
        optimizer.step()


def weighed_shares(rank, world):
    """Shares of different sizes, each example with the same weight."""
    ddp = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(ddp.parameters(), 0.01 * world)
    loader = DataLoader(Subset(data.examples(72), range(rank * 24, 24 + rank * 48)), 4 + 4 * rank, shuffle=True)
    for _ in range(2):
        for x, y in loader:
            total = torch.tensor(float(len(x)))
            dist.all_reduce(total)
            optimizer.zero_grad()
            (mse(ddp(x), y, reduction="sum") * world / total).backward()
            optimizer.step()


def train(variant, rank, world):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world)


VARIANTS = ("images", "gan", "joined-norm", "rank-0-evaluates", "all-evaluate-everything", "accumulated", "several-models",
            "stream", "buckets", "weighted", "in-order", "exact", "compressed", "divided-optimizer", "uneven-joined",
            "by-hand", "own-worlds", "contrastive", "two-loaders", "pipeline", "weighed-shares")  # fmt: skip

if __name__ == "__main__":
    start.main(train)
