# SPDX-License-Identifier: Apache-2.0
"""A whole shape from a third of its voxels: coordinates are generated, and those that the network doubts are pruned.

    python completion.py
"""
import argparse

import torch
import torch.nn as nn
from shapes import Shapes

import MinkowskiEngine as ME


class Completion(nn.Module):
    """Down to every fourth voxel, and up again by generative convolutions, each followed by a decision on every voxel
    that it made."""

    def __init__(self, D=3):
        super().__init__()
        widths = (16, 32, 48)
        self.enter = self._stage(ME.MinkowskiConvolution(1, widths[0], kernel_size=3, dimension=D), widths[0])
        self.down = nn.ModuleList(
            self._stage(ME.MinkowskiConvolution(a, b, kernel_size=2, stride=2, dimension=D), b)
            for a, b in zip(widths, widths[1:])
        )
        self.spread = self._stage(
            ME.MinkowskiConvolution(widths[-1], widths[-1], kernel_size=3, expand_coordinates=True, dimension=D),
            widths[-1],
        )
        self.up = nn.ModuleList(
            self._stage(ME.MinkowskiGenerativeConvolutionTranspose(b, a, kernel_size=2, stride=2, dimension=D), a)
            for a, b in reversed(list(zip(widths, widths[1:])))
        )
        finer = (*reversed(widths[:-1]),)
        self.mix = nn.ModuleList(
            self._stage(ME.MinkowskiConvolution(width, width, kernel_size=3, dimension=D), width) for width in finer
        )
        self.decide = nn.ModuleList(
            ME.MinkowskiConvolution(width, 1, kernel_size=1, bias=True, dimension=D) for width in finer
        )
        self.prune = ME.MinkowskiPruning()

    @staticmethod
    def _stage(conv, width):
        return nn.Sequential(conv, ME.MinkowskiBatchNorm(width), ME.MinkowskiELU())

    def forward(self, x, whole=None):
        """[(logits, whether each voxel belongs to `whole`)] of each level, and the voxels that are kept."""
        out, skips = self.enter(x), []
        for stage in self.down:
            skips.append(out)
            out = stage(out)
        out, levels = self.spread(out), []
        for stage, mix, decide in zip(self.up, self.mix, self.decide):
            out = mix(stage(out) + skips.pop())  # the sum lies at the union of both's voxels
            logits = decide(out).F.squeeze(1)
            keep = logits.detach() > 0
            if whole is not None:
                belongs = self._belongs(out, whole)
                levels.append((logits, belongs))
                if self.training:
                    keep = keep | belongs
            out = self.prune(out, keep)
        return levels, out

    @staticmethod
    def _belongs(out, whole):
        stride = torch.tensor([1, *out.tensor_stride])
        coarse = torch.unique(whole // stride * stride, dim=0)
        key, _ = out.coordinate_manager.insert_and_map(coarse.int(), out.tensor_stride, "whole")
        united = out.coordinate_manager.union_map([key, out.coordinate_map_key], ME.CoordinateMapKey(4))
        mine = torch.zeros(int(torch.cat([united[0][1], united[1][1]]).max()) + 1, dtype=torch.bool)
        mine[united[0][1]] = True
        belongs = torch.zeros(len(out), dtype=torch.bool)
        belongs[united[1][0]] = mine[united[1][1]]
        return belongs


def batch_of(numbers, seed):
    data = Shapes(10_000, seed=seed, voxel=0.25)
    clouds = [data[number][0] for number in numbers]
    whole = ME.utils.batched_coordinates(clouds)
    generator = torch.Generator().manual_seed(numbers[0])
    keep = torch.rand(len(whole), generator=generator) < 1 / 3
    return ME.SparseTensor(torch.ones(int(keep.sum()), 1), whole[keep]), whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    net = Completion()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(options.steps):
        x, whole = batch_of(range(4 * step, 4 * step + 4), seed=0)
        levels, _ = net(x, whole)
        loss = sum(nn.functional.binary_cross_entropy_with_logits(a, b.float()) for a, b in levels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    net.eval()
    x, whole = batch_of(range(8), seed=1)
    with torch.no_grad():
        levels, out = net(x, whole)
    got, wanted = ({tuple(row) for row in rows.tolist()} for rows in (out.C, whole))
    given = {tuple(row) for row in x.C.tolist()}
    got |= given
    print(f"IoU of the input {len(given & wanted) / len(wanted):.3f}, of the result "
          f"{len(got & wanted) / max(len(got | wanted), 1):.3f}")


if __name__ == "__main__":
    main()
