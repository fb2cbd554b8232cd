# SPDX-License-Identifier: Apache-2.0
"""What all modules share: their base, and arguments that may be one number or one for each axis."""
from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, List, Union

import numpy as np
import torch

StrideType = Union[int, Sequence, np.ndarray, torch.Tensor]
Array = Union[np.ndarray, torch.Tensor]


def convert_to_int_list(arg: int | Sequence | np.ndarray | torch.Tensor, dimension: int) -> List[int]:
    """One integer an axis: `arg` itself where it has `dimension` values, or `dimension` times the one number.

    Raises AssertionError on another number of values, ValueError on something else than numbers.
    """
    if isinstance(arg, (numbers.Number, np.generic)) or (isinstance(arg, torch.Tensor) and arg.ndim == 0):
        return [int(arg)] * dimension  # type: ignore[arg-type]
    if not isinstance(arg, (Sequence, np.ndarray, torch.Tensor)) or isinstance(arg, str):
        raise ValueError(f"Input must be a scalar or a sequence, got {arg!r}")
    values = [int(value) for value in arg]
    assert len(values) == dimension, f"got {values}, expected {dimension} values, one for each axis"
    return values


def whole(coordinates: torch.Tensor) -> torch.Tensor:
    """Coordinates rounded down, int32. Raises ValueError for what int32 does not hold, NaN among it."""
    if coordinates.dtype == torch.int32:
        return coordinates
    rounded = coordinates.floor() if coordinates.is_floating_point() else coordinates.long()
    if rounded.numel() > 0:
        least, most = rounded.aminmax()  # NaN if there is one
        if not (least >= -(2**31) and most < 2**31):
            raise ValueError(
                f"coordinates reach from {least.item()} to {most.item()}, expected them in int32: "
                f"{-(2**31)} to {2**31 - 1}"
            )
    return rounded.int()


def _fill_uniform(kernel: torch.Tensor, bias: torch.Tensor | None, fan: int) -> None:
    """Fills a layer's parameters uniformly in 1 / sqrt(fan); a bias may be None."""
    bound = 1.0 / math.sqrt(fan)
    with torch.no_grad():
        kernel.uniform_(-bound, bound)
        if bias is not None:
            bias.uniform_(-bound, bound)


def convert_to_int_tensor(
    arg: int | Sequence | np.ndarray | torch.IntTensor, dimension: int
) -> torch.Tensor:
    """As convert_to_int_list, as int32 [dimension]."""
    if isinstance(arg, torch.Tensor) and arg.dtype == torch.int32:
        assert arg.numel() == dimension, f"got {arg}, expected {dimension} values, one for each axis"
        return arg
    return torch.tensor(convert_to_int_list(arg, dimension), dtype=torch.int32)


class MinkowskiModuleBase(torch.nn.Module):
    """The base of all modules of the package."""


class EngineFunction(torch.autograd.Function):
    """An operation of the engine under the name of an autograd function: `apply` calls `forward` with a context that is
    None. Gradients, of any order, are those of the engine's own operations, so there is no `backward`."""

    def __init__(self) -> None:  # code that holds functions as objects makes them without arguments
        pass

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.forward(None, *args, **kwargs)

    __call__ = apply
