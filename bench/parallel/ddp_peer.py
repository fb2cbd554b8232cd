# SPDX-License-Identifier: Apache-2.0
"""One process of PyTorch's way to train LeNet: DistributedDataParallel over Gloo, or one process with several threads.

ddp_peer.py RANK WORLD PORT THREADS BATCH FORMAT: reads lines "STEPS" and answers with the seconds of a step.
"""
import os
import sys
import time

import torch
from torch import nn

rank, world, port, threads, batch = map(int, sys.argv[1:6])
channels_last = sys.argv[6] == "channels_last"
torch.set_num_threads(threads)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
share = batch // world
images = torch.randn(share, 1, 28, 28)
labels = torch.randint(10, (share,))
if channels_last:
    net = net.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
if world > 1:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    net = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()


for line in sys.stdin:
    steps = int(line)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    print((time.perf_counter() - start) / steps, flush=True)
