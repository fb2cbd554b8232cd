# SPDX-License-Identifier: Apache-2.0
"""Residual blocks that weigh their channels."""
from __future__ import annotations

import torch.nn as nn

import MinkowskiEngine as ME

from ..MinkowskiCommon import StrideType
from .resnet_block import BasicBlock, Bottleneck


class SELayer(nn.Module):
    """Each channel times a weight between 0 and 1 that follows from the batch entry's mean of all channels."""

    def __init__(self, channel: int, reduction: int = 16, D: int = -1) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            ME.MinkowskiLinear(channel, channel // reduction),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiLinear(channel // reduction, channel),
            ME.MinkowskiSigmoid(),
        )
        self.pooling = ME.MinkowskiGlobalPooling()
        self.broadcast_mul = ME.MinkowskiBroadcastMultiplication()

    def forward(self, x: ME.SparseTensor) -> ME.SparseTensor:
        return self.broadcast_mul(x, self.fc(self.pooling(x)))


class SEBasicBlock(BasicBlock):
    """A BasicBlock with an SELayer, `se`, before the shortcut is added."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        downsample: nn.Module | None = None,
        reduction: int = 16,
        D: int = -1,
    ) -> None:
        super().__init__(inplanes, planes, stride=stride, dilation=dilation, downsample=downsample, dimension=D)
        self.se = SELayer(planes, reduction=reduction, D=D)

    def residual(self, x: ME.SparseTensor) -> ME.SparseTensor:
        return self.se(super().residual(x))

    def forward(self, x: ME.SparseTensor) -> ME.SparseTensor:
        return super().forward(x)


class SEBottleneck(Bottleneck):
    """A Bottleneck with an SELayer, `se`, before the shortcut is added."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        downsample: nn.Module | None = None,
        D: int = 3,
        reduction: int = 16,
    ) -> None:
        super().__init__(inplanes, planes, stride=stride, dilation=dilation, downsample=downsample, dimension=D)
        self.se = SELayer(planes * self.expansion, reduction=reduction, D=D)

    def residual(self, x: ME.SparseTensor) -> ME.SparseTensor:
        return self.se(super().residual(x))

    def forward(self, x: ME.SparseTensor) -> ME.SparseTensor:
        return super().forward(x)
