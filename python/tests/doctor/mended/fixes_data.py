# SPDX-License-Identifier: Apache-2.0
"""Programs with one fault each in what ranks are fed, or in what they show, written in the words of the doctor's fixes.
mend.py puts the fix in the place of the fault, and runs the result."""
import itertools
import random
import time

import numpy
import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Subset, get_worker_info

import data
import lockstep

epochs, seed = 2, 3


def net(*layers):
    return nn.Sequential(nn.Linear(6, 16), *layers, nn.ReLU(), nn.Linear(16, 1))


def make(world_size, *layers):
    model = DistributedDataParallel(net(*layers))
    return model, torch.optim.SGD(model.parameters(), 0.01 * world_size)


def learn(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def fit(model, optimizer, loader):
    for epoch in range(epochs):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for x, y in loader:
            learn(model, optimizer, x, y)


def no_sampler(rank, world_size):
    dataset, (model, optimizer) = data.examples(), make(world_size)
    torch.manual_seed(rank)
    # fault: duplicate-examples
    loader = DataLoader(dataset, batch_size=8, shuffle=True)
    for epoch in range(epochs):
        # end
        for x, y in loader:
            learn(model, optimizer, x, y)


def one_replica(rank, world_size):
    dataset = data.examples()
    # fault: duplicate-examples
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
    # end
    fit(*make(world_size), DataLoader(dataset, 8, sampler=sampler))


def split_apart(rank, world_size):
    whole, sizes = data.examples(96), [72, 24]
    # fault: duplicate-examples
    split = torch.Generator().manual_seed(seed + rank)
    dataset, held_out = torch.utils.data.random_split(whole, sizes, generator=split)
    # end
    fit(*make(world_size), DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def blind_sampler(rank, world_size):
    class Sampler:
        epoch = 0

        def __iter__(self):
            self.epoch += 1
            order = random.Random(self.epoch).sample(range(64), 64)
            # fault: duplicate-examples
            indices = order
            # end
            return iter(indices)

        def __len__(self):
            return 32

    fit(*make(world_size), DataLoader(data.examples(), 8, sampler=Sampler()))


def drawn_alike(rank, world_size):
    model, optimizer = make(world_size)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
    # fault: duplicate-examples
    indices = order
    # end
    x, y = data.examples().tensors
    for some in indices.split(8):
        learn(model, optimizer, x[some], y[some])


def blind_stream(rank, world_size):
    class Stream(IterableDataset):
        def __iter__(self):
            examples = iter(data.examples())
            # fault: duplicate-examples
            # end
            return examples

    fit(*make(world_size), DataLoader(Stream(), 8, num_workers=2))


def four_replicas(rank, world_size):
    dataset = data.examples(128)
    # fault: missing-examples
    sampler = DistributedSampler(dataset, num_replicas=4, rank=rank)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    # end
    fit(*make(world_size), loader)


def evaluated(model, optimizer, loader, rank, score):
    """Trains, and shows what score(model, loader) makes of an evaluation."""
    dataset = data.examples()
    for _ in range(epochs):
        fit(model, optimizer, DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))
        model.eval()
        with torch.no_grad():
            value = score(model, loader)
        model.train()
        if rank == 0:
            print(f"accuracy {value:.4f}")


def right_of(model, x, y):
    return ((model(x) > 0) == (y > 0)).float()


def summed(model, loader):
    counts = torch.zeros(2)
    for x, y in loader:
        counts += torch.tensor([right_of(model, x, y).sum(), len(x)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def left_out(rank, world_size):
    dataset = data.examples(60)
    # fault: missing-examples
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False), drop_last=True)
    # end
    evaluated(*make(world_size), loader, rank, summed)


def padded(rank, world_size):
    """With a batch norm, whose buffers the wrapper sends in each forward pass: ranks must make as many, or go around it."""
    dataset = data.examples(33)
    model, optimizer = make(world_size, nn.BatchNorm1d(16))
    # fault: padded-examples
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, shuffle=False))
    # end
    evaluated(model, optimizer, loader, rank, lambda model, loader: summed(model.module, loader))


def gathered(rank, world_size):
    dataset = data.examples(51)

    def score(model, loader):
        right = torch.cat([right_of(model, x, y) for x, y in loader])
        parts = [torch.empty_like(right) for _ in range(world_size)]
        dist.all_gather(parts, right)
        # fault: padded-examples
        every = torch.cat(parts)
        # end
        return every.mean().item()

    evaluated(*make(world_size), DataLoader(dataset, 8, sampler=DistributedSampler(dataset, shuffle=False)), rank, score)


def no_set_epoch(rank, world_size):
    dataset, (model, optimizer) = data.examples(), make(world_size)
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    # fault: set-epoch-missing [batch in loader = x, y in loader]
    for epoch in range(epochs):
        for x, y in loader:
            # end
            learn(model, optimizer, x, y)


def own_order(rank, world_size):
    class Sampler:
        epoch = 0

        def __iter__(self):
            size = 64
            # fault: set-epoch-missing
            order = list(range(64))
            random.Random(seed).shuffle(order)
            order = order[rank::world_size]
            # end
            return iter(order)

        def __len__(self):
            return 32

    fit(*make(world_size), DataLoader(data.examples(), 8, sampler=Sampler()))


def order_by_hand(rank, world_size):
    dataset, (model, optimizer) = data.examples(), make(world_size)
    x, y = dataset.tensors
    for epoch in range(epochs):
        # fault: set-epoch-missing
        order = torch.from_numpy(numpy.random.RandomState(0).permutation(64)[rank::world_size])
        # end
        for some in order.split(8):
            learn(model, optimizer, x[some], y[some])


class Noisy(Dataset):
    """Adds a number that draw() gives."""

    def __init__(self, draw=None, rng=None):
        self.draw, self.rng, self.data = draw, rng, data.examples()

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        return x + (self.rng.random() if self.rng else self.draw()), y


def alike_workers(rank, world_size):
    dataset = Noisy(numpy.random.rand)
    sampler = DistributedSampler(dataset)
    # fault: worker-seeds [... = dataset, 8, sampler=sampler, num_workers=2]
    loader = DataLoader(dataset, 8, sampler=sampler, num_workers=2, worker_init_fn=lambda worker: numpy.random.seed(5))
    # end
    fit(*make(world_size), loader)


def held_generator(rank, world_size):
    dataset = Noisy(rng=numpy.random.default_rng(3))
    sampler = DistributedSampler(dataset)
    # fault: worker-seeds [... = dataset, 8, sampler=sampler, num_workers=2]
    loader = DataLoader(dataset, 8, sampler=sampler, num_workers=2)
    # end
    fit(*make(world_size), loader)


def held_without_workers(rank, world_size):
    dataset = Noisy(rng=random.Random(3))
    # fault: worker-seeds
    # end
    fit(*make(world_size), DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def alike_without_workers(rank, world_size):
    dataset, made = Noisy(numpy.random.rand), make(world_size)
    # fault: worker-seeds
    numpy.random.seed(seed)
    # end
    fit(*made, DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))


def parts_of(dataset):
    return DataLoader(dataset, 10, sampler=DistributedSampler(dataset, shuffle=False))


def local_accuracy(rank, world_size):
    def score(model, loader):
        correct = seen = 0
        for x, y in loader:
            correct, seen = correct + right_of(model, x, y).sum().item(), seen + len(y)
        # fault: rank-local-metric
        accuracy = correct / seen
        # end
        return accuracy

    evaluated(*make(world_size), parts_of(data.examples()), rank, score)


def rank_0_alone(rank, world_size):
    dataset = data.examples(60)
    # fault: rank-local-metric
    loader = DataLoader(dataset, batch_size=10, sampler=DistributedSampler(dataset, shuffle=False))
    # end
    model, optimizer = make(world_size)
    for _ in range(epochs):
        fit(model, optimizer, DataLoader(dataset, 8, sampler=DistributedSampler(dataset)))
        if rank == 0:
            with torch.no_grad():
                right = torch.cat([right_of(model.module, x, y) for x, y in loader])
            print(f"accuracy {right.mean():.4f}")
        dist.barrier()


def frechet(rank, world_size):
    features = 1

    def score(model, loader):
        real, fake = torch.cat([model(x) for x, _ in loader]), torch.randn(32, 1)
        # fault: rank-local-metric [print(score.value()) = value = score.value()]
        value = ((real.mean(0) - fake.mean(0)).square().sum() + (real.std(0) - fake.std(0)).square().sum()).item()
        # end
        if rank == 0:
            print(f"Frechet distance {value:.4f}")
        return 0.0

    evaluated(*make(world_size), parts_of(data.examples()), rank, score)


def mean_of_parts(rank, world_size):
    def score(model, loader):
        correct = seen = 0
        for x, y in loader:
            correct, seen = correct + right_of(model, x, y).sum().item(), seen + len(y)
        # fault: mean-of-means
        accuracy = torch.tensor(correct / seen)
        dist.all_reduce(accuracy)
        accuracy /= world_size
        # end
        return accuracy.item()

    part = Subset(data.examples(60), range(20) if rank else range(20, 60))
    evaluated(*make(world_size), DataLoader(part, 10), rank, score)


def slow_loader(rank, world_size):
    class Decoded(Noisy):
        def __getitem__(self, index):
            time.sleep(0.004)
            return self.data[index]

    dataset = Decoded()
    sampler = DistributedSampler(dataset)
    # fault: waits-for-data [... = dataset, 4, sampler=sampler]
    loader = DataLoader(dataset, 4, sampler=sampler)
    # end
    model, optimizer = make(world_size)
    model.module.register_forward_hook(lambda *given: time.sleep(0.01))
    fit(model, optimizer, loader)


def train(variant, rank, world_size):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
