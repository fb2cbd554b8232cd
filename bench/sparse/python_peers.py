# SPDX-License-Identifier: Apache-2.0
"""Sparse 3x3x3 convolutions from Python, in turns: ours, spconv's on the CPU, and gather, matrix product and scatter in torch.

    PYTHONPATH=build/release/python python bench/sparse/python_peers.py

spconv takes part where it is installed ('pip install spconv'). Its package for the CPU has the forward pass alone: the backward
pass asks for a CUDA stream. Maps are made before the clock runs. The third contender is the way that MinkowskiEngine goes.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch

import MinkowskiEngine as ME

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from python_overhead import room  # noqa: E402


def ours(coordinates, features, channels, backward):
    layer = ME.MinkowskiConvolution(channels, channels, kernel_size=3, dimension=3)
    x = ME.SparseTensor(features.requires_grad_(backward), coordinates)
    return lambda: layer(x).F


def spconv(coordinates, features, channels):
    import spconv.pytorch

    layer = spconv.pytorch.SubMConv3d(channels, channels, 3, bias=False, indice_key="room")
    shape = (coordinates[:, 1:].max(0).values + 1).tolist()
    x = spconv.pytorch.SparseConvTensor(features, coordinates, shape, 1)
    x = x.replace_feature(layer(x).features)  # carries the map that was made

    def run():
        return layer(x).features

    return run


def gather_scatter(coordinates, features, channels, backward):
    sparse = ME.SparseTensor(features, coordinates)
    key = sparse.coordinate_map_key
    pairs = sparse.coordinate_manager.kernel_map(key, key, kernel_size=3)
    weight = torch.randn(27, channels, channels, requires_grad=backward)
    features.requires_grad_(backward)

    def run():
        out = torch.zeros(len(coordinates), channels)
        for offset, (source, target) in pairs.items():
            out = out.index_add(0, target.long(), features[source.long()] @ weight[offset])
        return out

    return run


def contenders(voxels, channels, backward):
    coordinates = room(voxels)
    features = torch.randn(len(coordinates), channels)
    found = {"lockstep": ours(coordinates, features.clone(), channels, backward),
             "gather, product, scatter": gather_scatter(coordinates, features.clone(), channels, backward)}
    if not backward:
        try:
            found["spconv"] = spconv(coordinates, features.clone(), channels)
        except ImportError:
            print("spconv is not installed and takes no part", file=sys.stderr)
    return found


def seconds(run, backward):
    begin = time.perf_counter()
    with torch.set_grad_enabled(backward):
        out = run()
        if backward:
            out.backward(torch.ones_like(out))
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--voxels", type=int, default=50000, help="rooms of about so many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for channels in (32, 64, 128):
            for backward in (False, True):
                found = contenders(arguments.voxels, channels, backward)
                times = {name: [] for name in found}
                for turn in range(arguments.rounds + 1):
                    for name, run in found.items():
                        times[name].append(seconds(run, backward))
                for name, all_times in times.items():
                    ratio = statistics.median(a / b for a, b in zip(all_times[1:], times["lockstep"][1:]))
                    median = statistics.median(all_times[1:])
                    print(f"{threads} threads, {channels} channels, {'both passes' if backward else 'forward'}: "
                          f"{name} {1e3 * median:.1f} ms, {ratio:.2f} times ours", flush=True)
                    results.append({"threads": threads, "channels": channels, "backward": backward, "contender": name,
                                    "ms": 1e3 * median, "times_ours": ratio})
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1) + "\n")


main()
