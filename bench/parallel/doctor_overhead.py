# SPDX-License-Identifier: Apache-2.0
"""What the doctor's observers add to a step of DistributedDataParallel, two ranks of one thread each: trainings with and
without them in turns, all forked from one process that has imported torch.

    python bench/parallel/doctor_overhead.py [--rounds 5] [--only lenet] [--against FOLDER]   # other observers: a copy of python/lockstep/doctor/watch
"""
import argparse
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel does
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WATCH = pathlib.Path(__file__).resolve().parents[2] / "python" / "lockstep" / "doctor" / "watch"


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10))  # fmt: skip


class Block(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.way = nn.Identity() if inside == out and stride == 1 else nn.Conv2d(inside, out, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.norms[1](self.two(torch.relu(self.norms[0](self.one(x))))) + self.way(x))


def resnet18():
    """For images of 32 x 32."""
    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *(Block(*each) for each in sizes),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))  # fmt: skip


# name -> network, shape of an image, a rank's batch, steps
WORK = {"lenet": (lenet, (1, 28, 28), 32, 60), "lenet 256": (lenet, (1, 28, 28), 128, 40), "resnet18": (resnet18, (3, 32, 32), 8, 16)}


def watch(folder, observers):
    spec = importlib.util.spec_from_file_location("_watch", observers / "__init__.py", submodule_search_locations=[str(observers)])
    module = importlib.util.module_from_spec(spec)
    sys.modules["_watch"] = module
    spec.loader.exec_module(module)
    importlib.import_module("_watch.state").begin(folder)
    importlib.import_module("_watch.install").install()


def rank_main(rank, name, observers, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    if observers is not None:
        watch(folder, observers)
    dist.init_process_group("gloo")
    make, shape, batch, steps = WORK[name]
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(make())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    images = TensorDataset(torch.randn(2 * batch * steps, *shape), torch.randint(0, 10, (2 * batch * steps,)))
    times, last, used = [], time.perf_counter(), 0.0
    for x, y in DataLoader(images, batch, sampler=DistributedSampler(images)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        used = used or (time.process_time() if len(times) == 4 else 0.0)
    if rank == 0:
        # The first steps are all watched closely, later ones ever fewer: the mean of what remains holds both kinds.
        used = (time.process_time() - used) / (len(times) - 4)
        pathlib.Path(folder, "times").write_text(json.dumps([used, *times[4:]]))
    dist.destroy_process_group()


def train(name, observers):
    """Milliseconds of a step: of processor time, and the median of what the clock says."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        mp.start_processes(rank_main, (name, observers, port, folder), nprocs=2, start_method="fork")
        used, *times = json.loads(pathlib.Path(folder, "times").read_text())
    return 1e3 * used, 1e3 * statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--against", type=pathlib.Path, default=None)
    given = parser.parse_args()
    observers = [None, WATCH, *([given.against.resolve()] if given.against else [])]
    for name in WORK:
        if given.only not in name:
            continue
        rows = [[train(name, each) for each in observers] for _ in range(given.rounds)]
        for kind, what in enumerate(("processor time, mean step", "clock, median step")):
            alone = [row[0][kind] for row in rows]
            for number, beside in enumerate(observers[1:], 1):
                watched = [row[number][kind] for row in rows]
                ratios = [a / b for a, b in zip(watched, alone)]
                print(f"{name}, {what}: {statistics.median(alone):.2f} ms alone, {statistics.median(watched):.2f} ms with {beside}, "
                      f"x{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}), of the least x{min(watched) / min(alone):.3f}",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
