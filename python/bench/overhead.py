# SPDX-License-Identifier: Apache-2.0
"""What Python costs: MinkUNet34C steps, and two replicas in two threads against one after the other.

    PYTHONPATH=build/release/python python python/bench/overhead.py

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
from golden_net import MinkUNet34C  # noqa: E402


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


def overhead(points, repeats):
    small = torch.IntTensor([[0, 0, 0, 0], [1, 0, 0, 0]])  # without variance to train on, hence eval()
    large = room(points)
    cases = [(Thin(3, 20).eval(), small), (MinkUNet34C(3, 20).eval(), large)]
    times = [[], []]
    for _ in range(repeats + 1):
        for kind, (net, cloud) in enumerate(cases):
            features = torch.rand(len(cloud), 3)
            times[kind].append(timed(lambda: step(net, cloud, features)))
    few, many = (min(each[1:]) for each in times)
    print(f"step on {len(large)} voxels {many * 1e3:.0f} ms, on 2 voxels {few * 1e3:.1f} ms: at most {few / many:.2%}")


def scaling(points, repeats):
    nets = parallel.replicate(MinkUNet34C(3, 20).eval(), ["cpu", "cpu"], detach=True)
    clouds = [room(points, seed) for seed in range(2)]
    inputs = [ME.SparseTensor(torch.rand(len(each), 3), each) for each in clouds]

    def one_after_the_other():
        torch.set_num_threads(1)
        for net, x in zip(nets, inputs):
            with torch.no_grad():
                net(x)

    def at_once():
        with torch.no_grad():
            parallel.parallel_apply(nets, inputs)

    alone, both = [], []
    threads = torch.get_num_threads()
    for _ in range(repeats + 1):
        alone.append(timed(one_after_the_other))
        both.append(timed(at_once))
    torch.set_num_threads(threads)
    one, two = min(alone[1:]), min(both[1:])
    print(f"two replicas' forward passes: in turn {one * 1e3:.0f} ms, in two threads {two * 1e3:.0f} ms, x{one / two:.2f}")


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
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    overhead(options.points, options.repeats)
    scaling(options.points // 2, options.repeats)
    other_threads_run(options.points)


if __name__ == "__main__":
    main()
