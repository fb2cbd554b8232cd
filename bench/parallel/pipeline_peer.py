# SPDX-License-Identifier: Apache-2.0
"""One process of PyTorch's pipeline: torch.distributed.pipelining, Schedule1F1B over Gloo, one thread a process.

pipeline_peer.py NETWORK RANK WORLD PORT CUT: reads lines "STEPS" and answers with the seconds of a step. NETWORK is mlp
or vgg, as split_bench has them; the second process begins with layer CUT. Eight micro-batches, batch norms of each.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def mlp():
    layers = []
    for _ in range(8):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return layers


def vgg():
    layers, before = [], 3
    for after in (64, 128, 256, 256):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        before = after
    return layers + [nn.Flatten(), nn.Linear(4 * before, 10)]


network = sys.argv[1]
rank, world, port, cut = map(int, sys.argv[2:6])
torch.set_num_threads(1)
torch.manual_seed(0)
layers = mlp() if network == "mlp" else vgg()
examples = torch.randn(1024, 1024) if network == "mlp" else torch.randn(128, 3, 32, 32)
labels = torch.randint(10, (examples.size(0),))
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
dist.init_process_group("gloo", rank=rank, world_size=world)
mine = nn.Sequential(*(layers[:cut] if rank == 0 else layers[cut:]))
schedule = Schedule1F1B(PipelineStage(mine, rank, world, torch.device("cpu")), 8, nn.functional.cross_entropy)
optimizer = torch.optim.SGD(mine.parameters(), lr=0.001)


def step():
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(examples)
    else:
        schedule.step(target=labels)
    optimizer.step()


for line in sys.stdin:
    steps = int(line)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    print((time.perf_counter() - start) / steps, flush=True)
