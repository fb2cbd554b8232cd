# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of survive_bench: the d2l LeNet under DDP and torchrun, which starts all workers again when one dies.

survive_peer.py FOLDER STEPS SAVE_EVERY BATCH: each step is a line {"step":N} in FOLDER/metrics.jsonl; a checkpoint of weights, which
is all that plain SGD has, is written every SAVE_EVERY steps and gone on from.
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from lenet import lenet
from torch import nn

folder = pathlib.Path(sys.argv[1])
steps, save_every, batch = map(int, sys.argv[2:5])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
net = lenet()
begun = 0
newest = folder / "last.pt"
if newest.exists():
    state = torch.load(newest)
    net.load_state_dict(state["weights"])
    begun = state["step"]
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images = torch.randn(batch // world, 1, 28, 28)
labels = torch.arange(batch // world) % 10
with open(folder / "metrics.jsonl", "a", encoding="utf-8") as lines:
    for step in range(begun + 1, steps + 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if rank > 0:
            continue
        if step % save_every == 0:
            torch.save({"weights": net.state_dict(), "step": step}, folder / "new.pt")
            os.replace(folder / "new.pt", newest)
        lines.write(f'{{"step":{step},"again_from":{begun}}}\n')
        lines.flush()
dist.destroy_process_group()
