# SPDX-License-Identifier: Apache-2.0
"""Which part of a room does each point belong to? A U-net on voxels, and its answers brought back to the points.

    python segmentation.py
"""
import argparse

import torch
import torch.nn as nn

import lockstep
import MinkowskiEngine as ME
from MinkowskiEngine.modules.resnet_block import BasicBlock

PARTS = ("floor", "wall", "table")


def indoor(number: int, points: int = 1500):
    """Points [n, 3] of a room in metres, their colours [n, 3], and the part that each belongs to [n]."""
    generator = torch.Generator().manual_seed(number)

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    floor, wall, table = (rand(points // 3, 3) for _ in PARTS)
    floor *= torch.tensor([4.0, 3.0, 0.0])
    wall *= torch.tensor([4.0, 0.0, 2.5])
    table = table * torch.tensor([1.2, 0.8, 0.05]) + torch.tensor([0.5, 0.8, 0.7]) + rand(3) * torch.tensor([2, 1, 0.1])
    labels = torch.arange(3).repeat_interleave(points // 3)
    xyz = torch.cat([floor, wall, table]) + 0.01 * torch.randn(len(labels), 3, generator=generator)
    return xyz, rand(len(labels), 3), labels


class UNet(ME.MinkowskiNetwork):
    def __init__(self, in_channels, classes, D=3):
        super().__init__(D)
        self.enter = nn.Sequential(
            ME.MinkowskiConvolution(in_channels, 16, kernel_size=3, dimension=D),
            ME.MinkowskiBatchNorm(16),
            ME.MinkowskiReLU(inplace=True),
        )
        self.down = ME.MinkowskiConvolution(16, 32, kernel_size=2, stride=2, dimension=D)
        self.block = BasicBlock(32, 32, dimension=D)
        self.up = ME.MinkowskiConvolutionTranspose(32, 16, kernel_size=2, stride=2, dimension=D)
        self.final = ME.MinkowskiConvolution(32, classes, kernel_size=1, bias=True, dimension=D)

    def forward(self, field: ME.TensorField) -> ME.TensorField:
        fine = self.enter(field.sparse())
        coarse = self.block(self.down(fine))
        return self.final(ME.cat(self.up(coarse), fine)).slice(field)


def batch_of(numbers, voxel):
    clouds, colours, labels = zip(*(indoor(number) for number in numbers))
    points = ME.utils.batched_coordinates([cloud / voxel for cloud in clouds], dtype=torch.float32)
    return ME.TensorField(torch.cat(colours), points), torch.cat(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--voxel", type=float, default=0.1, help="metres")
    options = parser.parse_args()
    torch.manual_seed(0)
    net = UNet(3, len(PARTS))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(options.steps):
        field, labels = batch_of(range(2 * step, 2 * step + 2), options.voxel)
        loss = nn.functional.cross_entropy(net(field).F, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    iou = lockstep.metrics.MeanIoU(len(PARTS))
    net.eval()
    with torch.no_grad():
        field, labels = batch_of([1000, 1001], options.voxel)
        iou.add(net(field).F, labels)
    print(f"loss {loss.item():.4f}, mean IoU {iou.value():.3f} on {len(labels)} points")


if __name__ == "__main__":
    main()
