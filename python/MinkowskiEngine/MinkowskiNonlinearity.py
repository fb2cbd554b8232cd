# SPDX-License-Identifier: Apache-2.0
"""torch's own layers on features: each module holds the one of torch as `module`."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn as nn

from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiTensor import AnyTensor, Tensor


class MinkowskiNonlinearityBase(MinkowskiModuleBase):
    """Applies MODULE(*args, **kwargs), a module of torch, to the features of a sparse tensor or a field."""

    MODULE: type[nn.Module]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = self.MODULE(*args, **kwargs)

    def forward(self, input: AnyTensor) -> AnyTensor:
        return input._like(self.module(input.F))

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"


class MinkowskiELU(MinkowskiNonlinearityBase):
    MODULE = nn.ELU


class MinkowskiHardshrink(MinkowskiNonlinearityBase):
    MODULE = nn.Hardshrink


class MinkowskiHardsigmoid(MinkowskiNonlinearityBase):
    MODULE = nn.Hardsigmoid


class MinkowskiHardtanh(MinkowskiNonlinearityBase):
    MODULE = nn.Hardtanh


class MinkowskiHardswish(MinkowskiNonlinearityBase):
    MODULE = nn.Hardswish


class MinkowskiLeakyReLU(MinkowskiNonlinearityBase):
    MODULE = nn.LeakyReLU


class MinkowskiLogSigmoid(MinkowskiNonlinearityBase):
    MODULE = nn.LogSigmoid


class MinkowskiPReLU(MinkowskiNonlinearityBase):
    MODULE = nn.PReLU


class MinkowskiReLU(MinkowskiNonlinearityBase):
    MODULE = nn.ReLU


class MinkowskiReLU6(MinkowskiNonlinearityBase):
    MODULE = nn.ReLU6


class MinkowskiRReLU(MinkowskiNonlinearityBase):
    MODULE = nn.RReLU


class MinkowskiSELU(MinkowskiNonlinearityBase):
    MODULE = nn.SELU


class MinkowskiCELU(MinkowskiNonlinearityBase):
    MODULE = nn.CELU


class MinkowskiGELU(MinkowskiNonlinearityBase):
    MODULE = nn.GELU


class MinkowskiSigmoid(MinkowskiNonlinearityBase):
    MODULE = nn.Sigmoid


class MinkowskiSiLU(MinkowskiNonlinearityBase):
    MODULE = nn.SiLU


class MinkowskiSoftplus(MinkowskiNonlinearityBase):
    MODULE = nn.Softplus


class MinkowskiSoftshrink(MinkowskiNonlinearityBase):
    MODULE = nn.Softshrink


class MinkowskiSoftsign(MinkowskiNonlinearityBase):
    MODULE = nn.Softsign


class MinkowskiTanh(MinkowskiNonlinearityBase):
    MODULE = nn.Tanh


class MinkowskiTanhshrink(MinkowskiNonlinearityBase):
    MODULE = nn.Tanhshrink


class MinkowskiThreshold(MinkowskiNonlinearityBase):
    MODULE = nn.Threshold


class MinkowskiSoftmin(MinkowskiNonlinearityBase):
    MODULE = nn.Softmin


class MinkowskiSoftmax(MinkowskiNonlinearityBase):
    MODULE = nn.Softmax


class MinkowskiLogSoftmax(MinkowskiNonlinearityBase):
    MODULE = nn.LogSoftmax


class MinkowskiAdaptiveLogSoftmaxWithLoss(MinkowskiNonlinearityBase):
    """torch's takes targets too and gives a pair: forward(input, target) -> (output, loss), as torch's module does for
    the features; log_prob(input) and predict(input) likewise give tensors."""

    MODULE = nn.AdaptiveLogSoftmaxWithLoss
    module: nn.AdaptiveLogSoftmaxWithLoss

    def forward(self, input: Tensor, target: torch.Tensor) -> Any:  # type: ignore[override]
        return self.module(input.F, target)

    def log_prob(self, input: AnyTensor) -> AnyTensor:
        return input._like(self.module.log_prob(input.F))

    def predict(self, input: Tensor) -> torch.Tensor:
        return self.module.predict(input.F)


class MinkowskiDropout(MinkowskiNonlinearityBase):
    MODULE = nn.Dropout


class MinkowskiAlphaDropout(MinkowskiNonlinearityBase):
    MODULE = nn.AlphaDropout


class MinkowskiSinusoidal(MinkowskiModuleBase):
    """sin(x kernel + bias) * coef, for features of sparse tensors and fields."""

    def __init__(self, in_channel: int, out_channel: int) -> None:
        super().__init__()
        self.in_channel = in_channel
        self.out_channel = out_channel
        self.kernel = nn.Parameter(torch.rand(in_channel, out_channel))
        self.bias = nn.Parameter(torch.rand(1, out_channel))
        self.coef = nn.Parameter(torch.rand(1, out_channel))

    def forward(self, input: AnyTensor) -> AnyTensor:
        return input._like(torch.sin(input.F.mm(self.kernel) + self.bias) * self.coef)
