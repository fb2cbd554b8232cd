# SPDX-License-Identifier: Apache-2.0
"""Programs that are slow for one reason each. What takes long sleeps, so that a busy machine changes nothing."""
import time

import start
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import data

LONG, STEPS = 0.06, 14


class Decoded(Dataset):
    def __init__(self, seconds):
        self.seconds, self.data = seconds, data.examples(STEPS * 64)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.data[index]


class Net(nn.Module):
    def __init__(self, variant, rank):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1))
        self.slow = variant in ("computes", "hidden-network", "workers-collate") or (variant == "slower-rank" and rank == 1)
        self.many = variant == "small-operations"

    def forward(self, x):
        if self.slow:
            time.sleep(LONG)
        x = self.layers(x)
        for _ in range(2500 if self.many else 0):  # longer than rules.speed.LONG on a fast machine too
            x = x * 0.999 + 1e-5
        return x


def over_a_slow_network(state, bucket):
    """What DistributedDataParallel sends, over a network that is slow for all ranks."""
    time.sleep(LONG if state is None else state)
    sent = dist.all_reduce(bucket.buffer() / dist.get_world_size(), async_op=True).get_future()
    return sent.then(lambda done: done.value()[0])


def slow_collate(rows):
    time.sleep(LONG)
    return torch.utils.data.default_collate(rows)


def train(variant, rank, world):
    torch.manual_seed(0)
    batch = 8 if variant.startswith("small-batch") else 32
    net = Net(variant, rank)
    by_hand = variant.endswith("by-hand")
    model = net if by_hand else DistributedDataParallel(net)
    if variant in ("network", "small-batch", "hidden-network"):
        model.register_comm_hook(LONG / 6 if variant == "hidden-network" else None, over_a_slow_network)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4 * world)
    dataset = Decoded(0.003 if variant == "decodes" or (variant == "decodes-on-one" and rank == 1) else 0)
    collate = slow_collate if variant in ("collates", "workers-collate") else None
    loader = DataLoader(dataset, batch, sampler=DistributedSampler(dataset), collate_fn=collate,
                        num_workers=2 if variant == "workers-collate" else 0)  # fmt: skip
    for number, (x, y) in enumerate(loader):
        if number == STEPS:
            break
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        if by_hand:
            for each in model.parameters():
                dist.all_reduce(each.grad)
                each.grad /= world
            sent = [dist.all_reduce(torch.zeros(4_000_000), async_op=True) for _ in range(2)]  # as of a large model
            for each in sent:
                each.wait()
        optimizer.step()
        if variant == "own-lines":
            time.sleep(LONG)
        if variant == "works-alone" and rank == 0:
            time.sleep(LONG)


if __name__ == "__main__":
    start.main(train)
