# SPDX-License-Identifier: Apache-2.0
"""Residual blocks."""
from __future__ import annotations

import torch.nn as nn

import MinkowskiEngine as ME

from ..MinkowskiCommon import StrideType


class BasicBlock(nn.Module):
    """Two convolutions of size 3 with batch norms, and a shortcut: relu(norm(conv(relu(norm(conv(x))))) + shortcut(x)).
    `downsample` is the shortcut where shapes change."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        assert dimension > 0, f"dimension is {dimension}, expected a positive number of axes"
        self.conv1 = ME.MinkowskiConvolution(
            inplanes, planes, kernel_size=3, stride=stride, dilation=dilation, dimension=dimension
        )
        self.norm1 = ME.MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = ME.MinkowskiConvolution(
            planes, planes, kernel_size=3, stride=1, dilation=dilation, dimension=dimension
        )
        self.norm2 = ME.MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.relu = ME.MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def residual(self, x: ME.SparseTensor) -> ME.SparseTensor:
        """What is added to the shortcut."""
        out = self.relu(self.norm1(self.conv1(x)))
        return self.norm2(self.conv2(out))

    def forward(self, x: ME.SparseTensor) -> ME.SparseTensor:
        out = self.residual(x)
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """Convolutions of size 1, 3 and 1 with batch norms, and a shortcut; the last has 4 * planes channels."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        assert dimension > 0, f"dimension is {dimension}, expected a positive number of axes"
        self.conv1 = ME.MinkowskiConvolution(inplanes, planes, kernel_size=1, dimension=dimension)
        self.norm1 = ME.MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = ME.MinkowskiConvolution(
            planes, planes, kernel_size=3, stride=stride, dilation=dilation, dimension=dimension
        )
        self.norm2 = ME.MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv3 = ME.MinkowskiConvolution(planes, planes * self.expansion, kernel_size=1, dimension=dimension)
        self.norm3 = ME.MinkowskiBatchNorm(planes * self.expansion, momentum=bn_momentum)
        self.relu = ME.MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def residual(self, x: ME.SparseTensor) -> ME.SparseTensor:
        """What is added to the shortcut."""
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        return self.norm3(self.conv3(out))

    def forward(self, x: ME.SparseTensor) -> ME.SparseTensor:
        out = self.residual(x)
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)
