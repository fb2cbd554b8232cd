# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of train_bench: the d2l LeNet on Fashion-MNIST, batch 256, learning rate 0.2, in one of three ways.

torch_peer.py WAY FOLDER RANK WORLD PORT THREADS FORMAT: reads lines of one number, answers each with a line. FORMAT is
contiguous, channels_last or compiled_channels_last.
  loader    DataLoader with 4 workers, an image turned into a tensor when it is asked for; under DDP where WORLD > 1
  memory    the whole data set as tensors in memory, permuted and sliced: the leanest loop
            both: "1" trains an epoch, the answer is its seconds
  accuracy  like memory; "SEED" trains 10 epochs from that seed, the answer is seconds and test accuracy
"""
import gzip
import os
import sys
import time

import numpy
import torch
import torch.distributed as dist
from lenet import lenet
from torch import nn

BATCH, RATE, EPOCHS = 256, 0.2, 10


def read(folder, name, header):
    with gzip.open(os.path.join(folder, name)) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header)


def images_of(folder, split):
    pixels = read(folder, f"{split}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28).copy()
    return pixels, torch.from_numpy(read(folder, f"{split}-labels-idx1-ubyte.gz", 8).astype(numpy.int64))


class Images(torch.utils.data.Dataset):
    def __init__(self, pixels, labels):
        self.pixels, self.labels = pixels, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return torch.from_numpy(self.pixels[i]).unsqueeze(0).to(torch.float32).div(255), self.labels[i]


def new_network():
    net = lenet()
    for parameter in net.parameters():  # as the chapter has it
        nn.init.normal_(parameter, 0, 0.01) if parameter.dim() > 1 else nn.init.zeros_(parameter)
    return net


way, folder = sys.argv[1:3]
rank, world, port, threads = map(int, sys.argv[3:7])
form = torch.channels_last if sys.argv[7].endswith("channels_last") else torch.contiguous_format
torch.set_num_threads(threads)
pixels, labels = images_of(folder, "train")


def batches_in_memory():
    order = torch.randperm(len(labels))
    for begin in range(0, len(labels), BATCH):
        ids = order[begin:begin + BATCH]
        yield tensors[ids], labels[ids]


def train_epoch(net, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x.contiguous(memory_format=form)), y).backward()
        optimizer.step()


def start(seed):
    torch.manual_seed(seed)
    net = new_network().to(memory_format=form)
    if world > 1:
        net = nn.parallel.DistributedDataParallel(net)
    if sys.argv[7].startswith("compiled"):
        net = torch.compile(net)
    return net, torch.optim.SGD(net.parameters(), lr=RATE)


if world > 1:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
if way == "loader":
    data = Images(pixels, labels)
    sampler = torch.utils.data.DistributedSampler(data) if world > 1 else None
    loader = torch.utils.data.DataLoader(data, BATCH // world, shuffle=sampler is None, sampler=sampler, num_workers=4)
else:
    tensors = torch.from_numpy(pixels).unsqueeze(1).to(torch.float32).div(255).contiguous(memory_format=form)
if way == "accuracy":
    test_pixels, test_labels = images_of(folder, "t10k")
    test = torch.from_numpy(test_pixels).unsqueeze(1).to(torch.float32).div(255)
net, optimizer = start(0)
epoch = 0
for line in sys.stdin:
    began = time.perf_counter()
    if way == "accuracy":
        net, optimizer = start(int(line))
        for _ in range(EPOCHS):
            train_epoch(net, optimizer, batches_in_memory())
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in zip(test.split(1000), test_labels.split(1000)))
        print(time.perf_counter() - began, right / len(test_labels), flush=True)
        continue
    if way == "loader":
        if sampler is not None:
            sampler.set_epoch(epoch)
        train_epoch(net, optimizer, loader)
    else:
        train_epoch(net, optimizer, batches_in_memory())
    epoch += 1
    print(time.perf_counter() - began, flush=True)
