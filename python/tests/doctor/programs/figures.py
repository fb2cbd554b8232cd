# SPDX-License-Identifier: Apache-2.0
"""Programs whose fault, where they have one, is in the figures that they show or choose by."""
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import data
import lockstep

SIZE, EPOCHS = 60, 3


def labelled():
    x = torch.randn(SIZE, 6, generator=torch.Generator().manual_seed(4))
    return TensorDataset(x, (x.sum(1) > 0).long())


def counts(model, loader):
    """(sum of losses, right ones, examples) of what a loader gives."""
    loss = right = seen = 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss += nn.functional.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
    model.train()
    return loss, right, seen


def distance(real, fake):
    """Frechet, of features whose covariance is diagonal."""
    mean = (real.mean(0) - fake.mean(0)).square().sum()
    return float(mean + (real.std(0) - fake.std(0)).square().sum())


def local_accuracy(model, loader, rank, world, epoch):
    loss, right, seen = counts(model, loader)
    if rank == 0:
        print(f"epoch {epoch}: loss {loss / seen:.4f}, accuracy {right / seen:.3f}")


def beside(model, loader, rank, world, epoch):
    """The loss is merged, the accuracy beside it is not."""
    loss, right, seen = counts(model, loader)
    whole = torch.tensor([loss, float(seen)], dtype=torch.float64)
    dist.all_reduce(whole)
    if rank == 0:
        print(f"epoch {epoch}: loss {(whole[0] / whole[1]).item():.4f}, accuracy {right / seen:.3f}")


def merged(model, loader, rank, world, epoch):
    whole = torch.tensor(counts(model, loader), dtype=torch.float64)
    dist.all_reduce(whole)
    loss, right, seen = whole.tolist()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss / seen:.4f}, accuracy {right / seen:.3f} of {seen:.1f}")


def gathered(model, loader, rank, world, epoch):
    every = [None] * world
    mine = counts(model, loader)
    print(f"rank {rank}: accuracy {mine[1] / mine[2]:.3f}")
    dist.all_gather_object(every, mine)
    if rank == 0:
        loss, right, seen = map(sum, zip(*every))
        print(f"epoch {epoch}: loss {loss / seen:.4f}, accuracy {right / seen:.3f}")


def to_one(model, loader, rank, world, epoch):
    accuracy = lockstep.metrics.Accuracy()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            accuracy.add(model(x), y)
    model.train()
    error = torch.tensor(1 - accuracy.value())
    dist.reduce(error, 0)
    if rank == 0:
        print(f"epoch {epoch}: accuracy {1 - error.item() / world:.4f}")


def rank_0_part(model, loader, rank, world, epoch):
    if rank == 0:
        loss, right, seen = counts(model.module, loader)
        print(f"epoch {epoch}: accuracy {right / seen:.3f}")
    dist.barrier()


def averaged_means(model, loader, rank, world, epoch):
    """Mean of means over shares of 20 and 40."""
    _, right, seen = counts(model, DataLoader(Subset(loader.dataset, range(20) if rank else range(20, SIZE)), 10))
    accuracy = torch.tensor(right / seen)
    dist.all_reduce(accuracy)
    if rank == 0:
        print(f"epoch {epoch}: accuracy {accuracy.item() / world:.4f}")


def features(model, loader):
    with torch.no_grad():
        return torch.cat([model(x) for x, _ in loader])


def frechet_alone(model, loader, rank, world, epoch):
    real = features(model, loader)
    found = distance(real, torch.randn(len(real), real.size(1)))
    if rank == 0:
        print(f"Frechet distance {found:.4f}")


def frechet_averaged(model, loader, rank, world, epoch):
    real = features(model, loader)
    fid = torch.tensor(distance(real, torch.randn(len(real), real.size(1))))
    dist.all_reduce(fid)
    if rank == 0:
        print(f"score {fid.item() / world:.4f}")


def frechet_merged(model, loader, rank, world, epoch):
    score = lockstep.metrics.FrechetDistance(2)
    real = features(model, loader)
    score.add_real(real)
    score.add_fake(torch.randn(len(real), 2))
    score.all_merge()
    if rank == 0:
        print(f"Frechet distance {score.value():.4f}")


def train(variant, rank, world):
    torch.manual_seed(0)
    dataset = labelled()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.05 * world)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=9)
    loader = DataLoader(dataset, 6, sampler=DistributedSampler(dataset))
    parts = DataLoader(dataset, 10, sampler=DistributedSampler(dataset, shuffle=False))
    best, patience = 1e9, 2
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"training loss {total / len(loader):.4f}")
        if variant in ("plateau", "stops"):
            error = counts(model, parts)[0] / SIZE
            if variant == "plateau":
                plateau.step(error)
            elif error < best:
                best = error
            elif patience == 0:
                break
        else:
            globals()[variant.replace("-", "_")](model, parts, rank, world, epoch)


if __name__ == "__main__":
    start.main(train)
