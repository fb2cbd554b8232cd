# SPDX-License-Identifier: Apache-2.0
"""What Python costs: MinkUNet34C steps, and two replicas in two threads against one after the other.

    PYTHONPATH=build/release/python python bench/models/python_overhead.py

The cost of Python and the bindings is the time of a step of the same layers, with few channels, on two voxels, where the
engine has next to nothing to do: it holds every call, key, map, autograd node and small kernel of the step, so it is an upper
bound of what a C++ program would save. It is compared with a step on a room. Steps alternate; the quickest are printed.
"""
import argparse
import pathlib
import sys
import threading
import time

import torch

import MinkowskiEngine as ME
from lockstep import parallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "tests"))
from support.golden_net import MinkUNet34C  # noqa: E402


class Thin(MinkUNet34C):
    """The same layers with few channels: weights that cost nothing to clear and to add up."""

    PLANES = (8,) * 8


def room(points, seed=0):
    """Voxels of a floor, two walls and some boxes, as many as wanted."""
    generator = torch.Generator().manual_seed(seed)
    side = int((points / 3) ** 0.5)
    plane = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1).view(-1, 2)
    flat = torch.zeros(len(plane), 1, dtype=torch.long)
    rough = torch.randint(0, 2, (len(plane), 1), generator=generator)
    walls = [torch.cat([plane, flat + rough], 1), torch.cat([flat, plane], 1), torch.cat([plane[:, :1], flat, plane[:, 1:]], 1)]
    voxels = torch.unique(torch.cat(walls), dim=0)
    return torch.nn.functional.pad(voxels, (1, 0)).int()


def step(net, coordinates, features):
    """Forward and backward pass, maps of coordinates made anew as in training."""
    out = net(ME.SparseTensor(features, coordinates))
    out.F.square().mean().backward()
    for param in net.parameters():
        param.grad = None


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def steps(points):
    """A step of MinkUNet34C on a room, and one of its layers with next to nothing to do."""
    small = torch.IntTensor([[0, 0, 0, 0], [1, 0, 0, 0]])  # without variance to train on, hence eval()
    large = room(points)
    print(f"{len(large)} voxels, {torch.get_num_threads()} threads")
    thin, net = Thin(3, 20).eval(), MinkUNet34C(3, 20).eval()
    return {
        "on 2 voxels": lambda: step(thin, small, torch.rand(len(small), 3)),
        "on a room": lambda: step(net, large, torch.rand(len(large), 3)),
    }


def replicas(points):
    """The forward passes of two replicas on a thread each, one after the other and at once."""
    nets = parallel.replicate(MinkUNet34C(3, 20).eval(), ["cpu", "cpu"], detach=True)
    clouds = [room(points, seed) for seed in range(2)]
    inputs = [ME.SparseTensor(torch.rand(len(each), 3), each) for each in clouds]

    @torch.no_grad()
    def in_turn():
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for net, x in zip(nets, inputs):
            net(x)
        torch.set_num_threads(threads)

    @torch.no_grad()
    def at_once():
        parallel.parallel_apply(nets, inputs)

    return {"in turn": in_turn, "at once": at_once}


def interleaved(works, repeats):
    """The quickest of `repeats` runs of each, all after each other in each round; a first round makes maps and memory."""
    times = [{name: timed(work) for name, work in works.items()} for _ in range(repeats + 1)]
    return {name: min(each[name] for each in times[1:]) for name in works}


def other_threads_run(points):
    """How far another Python thread counts while the engine works, against while nobody does."""
    net, cloud = MinkUNet34C(3, 20).eval(), room(points)
    x = ME.SparseTensor(torch.rand(len(cloud), 3), cloud)
    torch.set_num_threads(1)

    def count(stop):
        number = 0
        while not stop.is_set():
            number += 1
        rates.append(number)

    rates, seconds = [], []
    for busy in (False, True):
        stop = threading.Event()
        thread = threading.Thread(target=count, args=(stop,))
        begin = time.perf_counter()
        thread.start()
        if busy:
            with torch.no_grad():
                net(x)
        else:
            time.sleep(seconds[0] if seconds else 1.0)
        stop.set()
        thread.join()
        seconds.append(time.perf_counter() - begin)
    free, shared = (rate / second for rate, second in zip(rates, seconds))
    print(f"another Python thread runs at {shared / free:.0%} of its speed while a forward pass computes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    best = interleaved({**steps(options.points), **replicas(options.points // 2)}, options.repeats)
    for name, seconds in best.items():
        print(f"{name:12} {seconds * 1e3:8.1f} ms")
    print(f"Python's share of a MinkUNet34C step: at most {best['on 2 voxels'] / best['on a room']:.2%}")
    print(f"two replicas in two threads: {best['in turn'] / best['at once']:.2f} times as fast as in turn")
    other_threads_run(options.points // 2)


if __name__ == "__main__":
    main()
