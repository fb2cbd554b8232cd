# SPDX-License-Identifier: Apache-2.0
"""Initialisation of kernels."""
from __future__ import annotations

import math

import torch


def kaiming_normal_(
    tensor: torch.Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> torch.Tensor:
    """Fills a kernel [K, Cin, Cout] or [Cin, Cout] with normal numbers whose deviation is the gain over the square root
    of the fan: K Cin, or with mode="fan_out" K Cout. Arguments are those of torch.nn.init.kaiming_normal_."""
    if tensor.dim() not in (2, 3):
        raise ValueError(f"the kernel has {tensor.dim()} dimensions, expected [K, Cin, Cout] or [Cin, Cout]")
    modes = ("fan_in", "fan_out")
    if mode.lower() not in modes:
        raise ValueError(f"Mode {mode} not supported, please use one of {modes}")
    volume = tensor.size(0) if tensor.dim() == 3 else 1
    fan = volume * tensor.size(-2 if mode.lower() == "fan_in" else -1)
    with torch.no_grad():
        return tensor.normal_(0, torch.nn.init.calculate_gain(nonlinearity, a) / math.sqrt(fan))  # type: ignore[arg-type]
