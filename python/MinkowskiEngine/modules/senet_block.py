# SPDX-License-Identifier: Apache-2.0
"""Residual blocks that weigh their channels."""
from __future__ import annotations

import torch.nn as nn

import MinkowskiEngine as ME

from .resnet_block import BasicBlock, Bottleneck


class SELayer(nn.Module):
    """Each channel times a weight between 0 and 1 that follows from the batch entry's mean of all channels."""

    def __init__(self, channel, reduction=16, D=-1):
        super().__init__()
        self.fc = nn.Sequential(
            ME.MinkowskiLinear(channel, channel // reduction),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiLinear(channel // reduction, channel),
            ME.MinkowskiSigmoid(),
        )
        self.pooling = ME.MinkowskiGlobalPooling()
        self.broadcast_mul = ME.MinkowskiBroadcastMultiplication()

    def forward(self, x):
        return self.broadcast_mul(x, self.fc(self.pooling(x)))


class SEBasicBlock(BasicBlock):
    """A BasicBlock with an SELayer, `se`, before the shortcut is added."""

    def __init__(self, inplanes, planes, stride=1, dilation=1, downsample=None, reduction=16, D=-1):
        super().__init__(inplanes, planes, stride=stride, dilation=dilation, downsample=downsample, dimension=D)
        self.se = SELayer(planes, reduction=reduction, D=D)

    def residual(self, x):
        return self.se(super().residual(x))

    def forward(self, x):
        return super().forward(x)


class SEBottleneck(Bottleneck):
    """A Bottleneck with an SELayer, `se`, before the shortcut is added."""

    def __init__(self, inplanes, planes, stride=1, dilation=1, downsample=None, D=3, reduction=16):
        super().__init__(inplanes, planes, stride=stride, dilation=dilation, downsample=downsample, dimension=D)
        self.se = SELayer(planes * self.expansion, reduction=reduction, D=D)

    def residual(self, x):
        return self.se(super().residual(x))

    def forward(self, x):
        return super().forward(x)
