# SPDX-License-Identifier: Apache-2.0
"""Programs with one fault each in the model, its gradients, its settings or its calls, written in the words of the doctor's
fixes. mend.py puts the fix in the place of the fault, and runs the result."""
import contextlib  # noqa: F401  a fix needs it
import os
import time

import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import data
import lockstep  # noqa: F401  a fix needs it

epochs, seed, criterion = 2, 3, nn.functional.mse_loss


class Net(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), *layers, nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x)


def batches(size=64, batch=8):
    dataset = data.examples(size)
    loader = DataLoader(dataset, batch, sampler=DistributedSampler(dataset))
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        yield from loader


def sgd(model, world_size):
    return torch.optim.SGD(model.parameters(), 0.01 * world_size)


def fit(model, optimizer, after=lambda model: None, size=64, batch=8):
    for x, y in batches(size, batch):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        after(model)
        optimizer.step()


def not_wrapped(rank, world_size):
    model = Net()
    # fault: gradients-not-averaged
    # end
    fit(model, sgd(model, world_size))


def around(rank, world_size):
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    for x, y in batches():
        optimizer.zero_grad()
        # fault: weights-differ
        loss = criterion(model.module(x), y)
        # end
        loss.backward()
        optimizer.step()


def late_parameter(rank, world_size):
    model = DistributedDataParallel(Net())
    model.module.layers.append(nn.Linear(1, 1))
    # fault: gradients-not-averaged
    # end
    fit(model, sgd(model, world_size))


def partly_by_hand(rank, world_size):
    model = Net()

    def reduce(model):
        # fault: gradients-not-averaged
        for p in model.layers[0].parameters():
            dist.all_reduce(p.grad)
            p.grad /= world_size
        # end

    fit(model, sgd(model, world_size), reduce)


def summed_by_hand(rank, world_size):
    model = Net()

    def reduce(model):
        # fault: gradients-not-averaged
        for p in model.parameters():
            dist.all_reduce(p.grad)
        # end

    fit(model, sgd(model, world_size), reduce)


def summed_in_hooks(rank, world_size):
    model = Net()

    def total(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient

    # fault: gradients-not-averaged
    for p in model.parameters():
        p.register_hook(total)
    # end
    fit(model, sgd(model, world_size))


def never_synchronised(rank, world_size):
    model, micro = DistributedDataParallel(Net()), 2
    optimizer = sgd(model, world_size)
    for number, (x, y) in enumerate(batches()):
        # fault: gradients-not-averaged
        with model.no_sync():
            loss = criterion(model(x), y) / micro
            loss.backward()
        # end
        if number % micro == micro - 1:
            optimizer.step()
            optimizer.zero_grad()


def hook_that_sums(rank, world_size):
    model = DistributedDataParallel(Net())

    # fault: gradients-not-averaged
    def hook(state, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda sent: sent.value()[0])

    # end
    model.register_comm_hook(None, hook)
    fit(model, sgd(model, world_size))


def one_of_two_wrapped(rank, world_size):
    first, model = DistributedDataParallel(nn.Linear(6, 6)), Net()
    # fault: gradients-not-averaged
    # end
    optimizer = torch.optim.SGD([*first.parameters(), *model.parameters()], 0.01 * world_size)
    for x, y in batches():
        optimizer.zero_grad()
        criterion(model(first(x)), y).backward()
        optimizer.step()


def too_late(rank, world_size):
    model = Net()
    optimizer = sgd(model, world_size)
    for x, y in batches():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        # fault: weights-differ
        # end
        optimizer.step()
        # gone
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world_size
        # end


def other_weights(rank, world_size):
    torch.manual_seed(rank)
    model = Net()
    # fault: weights-differ
    # end

    def reduce(model):
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world_size

    fit(model, sgd(model, world_size), reduce)


def other_rates(rank, world_size):
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.02 * (1 + rank))
    # fault: weights-differ
    # end
    fit(model, optimizer)


def skipped(rank, world_size):
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    for number, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        skip = rank == 1 and number == 3
        # fault: weights-differ
        if not skip:
            optimizer.step()
        # end


class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(16))

    def forward(self, x):
        if self.training:
            self.center.lerp_(x.detach().mean(0), 0.1)
        return x - self.center


def own_buffers(rank, world_size):
    model = Net(Centered())
    # fault: buffers-differ
    model = DistributedDataParallel(model, broadcast_buffers=False)
    # end
    fit(model, sgd(model, world_size))


def own_statistics(rank, world_size):
    model = Net(nn.BatchNorm1d(16))
    # fault: unsynchronised-batch-norm
    # end
    model = DistributedDataParallel(model)
    fit(model, sgd(model, world_size))


def same_masks(rank, world_size):
    def Net():
        return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 1))

    # fault: same-random-stream
    torch.manual_seed(seed)
    model = DistributedDataParallel(Net())
    # end
    fit(model, sgd(model, world_size))


def unused(rank, world_size):
    model = Net()
    model.spare = unused_layer = nn.Linear(3, 3)
    # fault: unused-parameters
    # end
    model = DistributedDataParallel(model, find_unused_parameters=unused_layer.weight.requires_grad)
    fit(model, sgd(model, world_size))


def needless_search(rank, world_size):
    model = Net()
    # fault: unused-parameters
    model = DistributedDataParallel(model, find_unused_parameters=True)
    # end
    fit(model, sgd(model, world_size))


def own_rate(rank, world_size):
    model = DistributedDataParallel(Net())
    # fault: learning-rate-not-scaled
    lr = 0.02
    # end
    fit(model, torch.optim.SGD(model.parameters(), lr))


def own_rate_of_adam(rank, world_size):
    model = DistributedDataParallel(Net())
    # fault: learning-rate-not-scaled
    lr = 1e-3
    # end
    fit(model, torch.optim.AdamW(model.parameters(), lr=lr))


def parts_that_differ(rank, world_size):
    """One rank's shares are twice as large."""
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    x, y = data.examples(96).tensors
    mine = slice(0, 32) if rank == 0 else slice(32, 96)
    for x, y in DataLoader(TensorDataset(x[mine], y[mine]), 4 + 4 * rank, shuffle=True):
        optimizer.zero_grad()
        out = model(x)
        # fault: mean-of-means
        loss = criterion(out, y)
        # end
        loss.backward()
        optimizer.step()


def counts_that_differ(rank, world_size):
    """Sequences of other lengths, and each rank divides by its own tokens."""
    model = DistributedDataParallel(nn.Linear(6, 6))
    optimizer = sgd(model, world_size)
    for x, _ in batches(128):
        mask = x.cumsum(1) > -1
        total = ((model(x) - x).square() * mask).sum()
        # fault: mean-of-means
        loss = total / mask.sum()
        # end
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def skipped_batch(rank, world_size):
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    dataset = data.examples(128)
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            loss = criterion(model(x), y)
            skip = rank == 1 and number == 3
            # fault: uneven-steps
            if skip:
                continue
            # end
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def fewer_steps(rank, world_size):
    dataset = data.examples(80)
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    # fault: uneven-steps
    loader = DataLoader(dataset, batch_size=8, sampler=range(48) if rank == 0 else range(48, 80))
    # end
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def stops_alone(rank, world_size):
    model = DistributedDataParallel(Net())
    optimizer = sgd(model, world_size)
    dataset = data.examples(160)
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        stop = rank == 1 and number == 4
        # fault: uneven-steps
        if stop:
            break
        # end


def many_threads(rank, world_size):
    # fault: oversubscribed-threads
    torch.set_num_threads(4 * (os.cpu_count() or 1))
    # end
    model = DistributedDataParallel(Net())
    fit(model, sgd(model, world_size))


def over_a_slow_network(seconds, bucket):
    time.sleep(seconds)
    return dist.all_reduce(bucket.buffer() / dist.get_world_size(), async_op=True).get_future().then(lambda sent: sent.value()[0])


def computes(model, seconds):
    """Wraps a model whose forward pass takes so long for each example."""
    model.register_forward_pre_hook(lambda model, given: time.sleep(seconds * len(given[0])))
    return DistributedDataParallel(model)


def seldom_enough(rank, world_size):
    model = computes(Net(), 0.0025)
    model.register_comm_hook(0.05, over_a_slow_network)
    optimizer = sgd(model, world_size)
    for number, (x, y) in enumerate(batches(48 * 20, 20)):
        last = True
        # fault: communication-exposed
        loss = criterion(model(x), y)
        loss.backward()
        # end
        if last:
            optimizer.step()
            optimizer.zero_grad()


def few_examples(rank, world_size):
    model = computes(Net(), 0.002)
    model.register_comm_hook(0.04, over_a_slow_network)
    # fault: batch-too-small
    batch_size = 8
    # end
    fit(model, sgd(model, world_size), batch=batch_size, size=12 * batch_size)


def train(variant, rank, world_size):
    torch.manual_seed(0)
    globals()[variant.replace("-", "_")](rank, world_size)


if __name__ == "__main__":
    start.main(train)
