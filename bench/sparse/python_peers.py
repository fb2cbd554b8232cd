# SPDX-License-Identifier: Apache-2.0
"""Sparse 3x3x3 convolutions from Python, in turns: ours, spconv's and ocnn's on the CPU, and gather, product and scatter in torch.

    PYTHONPATH=build/release/python python bench/sparse/python_peers.py

spconv and ocnn take part where they are installed ('pip install spconv ocnn'). The backward pass of spconv's package for the
CPU asks for a CUDA stream: the number 0 is given to it instead. Maps are made before the clock runs. The last contender is
the way that MinkowskiEngine goes.
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


def spconv(coordinates, features, channels, backward):
    import spconv.pytorch

    spconv.pytorch.ops.get_current_stream = lambda: 0

    layer = spconv.pytorch.SubMConv3d(channels, channels, 3, bias=False, indice_key="room")
    shape = (coordinates[:, 1:].max(0).values + 1).tolist()
    x = spconv.pytorch.SparseConvTensor(features, coordinates, shape, 1)
    x = x.replace_feature(layer(x).features.detach().requires_grad_(backward))  # carries the map that was made
    return lambda: layer(x).features


def ocnn(coordinates, features, channels, backward):
    import ocnn.nn
    import ocnn.octree

    depth = max(3, int(coordinates[:, 1:].max()).bit_length())
    octree = ocnn.octree.Octree(depth)
    octree.build_octree(ocnn.octree.Points((coordinates[:, 1:] + 0.5) / 2 ** (depth - 1) - 1))
    octree.construct_all_neigh()
    layer = ocnn.nn.OctreeConv(channels, channels, [3], nempty=True, use_bias=False)
    x = features[:octree.nnum_nempty[depth]].requires_grad_(backward)
    assert len(x) == len(coordinates)
    return lambda: layer(x, octree, depth)


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
    for make in (spconv, ocnn):
        try:
            found[make.__name__] = make(coordinates, features.clone(), channels, backward)
        except ImportError as error:
            print(f"{make.__name__} takes no part: {error}", file=sys.stderr)
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
