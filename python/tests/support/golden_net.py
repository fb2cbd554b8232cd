# SPDX-License-Identifier: Apache-2.0
"""MinkUNet as users of MinkowskiEngine write it, and the weights of the golden data."""
import math

import torch
import torch.nn as nn

import MinkowskiEngine as ME
from MinkowskiEngine.modules.resnet_block import BasicBlock


class MinkUNet(nn.Module):
    """A U-net of four levels; LAYERS blocks and PLANES channels on each, down and up."""

    LAYERS = (1, 1, 1, 1, 1, 1, 1, 1)
    PLANES = (32, 64, 128, 256, 128, 128, 96, 96)

    def __init__(self, in_channels, out_channels, D=3):
        super().__init__()
        self.D, self.inplanes = D, 32
        self.conv0p1s1 = ME.MinkowskiConvolution(in_channels, 32, kernel_size=5, dimension=D)
        self.bn0 = ME.MinkowskiBatchNorm(32)
        skips = [32]
        for level in range(4):
            conv = ME.MinkowskiConvolution(self.inplanes, self.inplanes, kernel_size=2, stride=2, dimension=D)
            setattr(self, f"conv{level + 1}p{2**level}s2", conv)
            setattr(self, f"bn{level + 1}", ME.MinkowskiBatchNorm(self.inplanes))
            setattr(self, f"block{level + 1}", self._blocks(level))
            skips.append(self.inplanes)
        for level in range(4, 8):
            planes = self.PLANES[level]
            conv = ME.MinkowskiConvolutionTranspose(self.inplanes, planes, kernel_size=2, stride=2, dimension=D)
            setattr(self, f"convtr{level}p{2 ** (8 - level)}s2", conv)
            setattr(self, f"bntr{level}", ME.MinkowskiBatchNorm(planes))
            self.inplanes = planes + skips[7 - level]
            setattr(self, f"block{level + 1}", self._blocks(level))
        self.final = ME.MinkowskiConvolution(self.inplanes, out_channels, kernel_size=1, bias=True, dimension=D)
        self.relu = ME.MinkowskiReLU(inplace=True)

    def _blocks(self, level):
        planes, blocks = self.PLANES[level], []
        for _ in range(self.LAYERS[level]):
            downsample = None
            if self.inplanes != planes:
                downsample = nn.Sequential(
                    ME.MinkowskiConvolution(self.inplanes, planes, kernel_size=1, stride=1, dimension=self.D),
                    ME.MinkowskiBatchNorm(planes),
                )
            blocks.append(BasicBlock(self.inplanes, planes, downsample=downsample, dimension=self.D))
            self.inplanes = planes
        return nn.Sequential(*blocks)

    def forward(self, x):
        out = self.relu(self.bn0(self.conv0p1s1(x)))
        skips = [out]
        for level in range(1, 5):
            out = getattr(self, f"conv{level}p{2 ** (level - 1)}s2")(out)
            out = getattr(self, f"block{level}")(self.relu(getattr(self, f"bn{level}")(out)))
            skips.append(out)
        for level in range(4, 8):
            out = getattr(self, f"convtr{level}p{2 ** (8 - level)}s2")(out)
            out = self.relu(getattr(self, f"bntr{level}")(out))
            out = getattr(self, f"block{level + 1}")(ME.cat(out, skips[7 - level]))
        return self.final(out)


class MinkUNet34C(MinkUNet):
    LAYERS = (2, 3, 4, 6, 2, 2, 2, 2)
    PLANES = (32, 64, 128, 256, 256, 128, 96, 96)


def fill_by_formula(net):
    """The weights of the golden data: formulas of a parameter's number and an element's."""
    with torch.no_grad():
        for j, (name, param) in enumerate(net.named_parameters()):
            i = torch.arange(param.numel(), dtype=torch.float64)
            if name.endswith("bias"):
                values = 0.1 * torch.cos(0.3 * i + j)
            elif name.endswith(".bn.weight"):
                values = 1 + 0.1 * torch.sin(0.7 * i + j)
            else:
                fan = param.shape[:-1].numel()
                values = 2 / math.sqrt(fan) * torch.sin(0.37 * (i + 1) * (1 + j % 7) + j)
            param.copy_(values.view_as(param))
