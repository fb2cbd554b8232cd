# SPDX-License-Identifier: Apache-2.0
"""The canonical tree: the order in which the contributions of R replicas are added, wherever they run."""
from __future__ import annotations

from typing import Callable, Sequence, TypeVar

import torch

from . import _C

T = TypeVar("T")


def merge(values: Sequence[T], function: Callable[[T, T], T]) -> T:
    """function(left, right) over the balanced binary tree of the values; they are at least one."""
    if len(values) == 1:
        return values[0]
    half = 1 << ((len(values) - 1).bit_length() - 1)  # the largest power of two below their number
    return function(merge(values[:half], function), merge(values[half:], function))


def sum_tensors(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum in the tree's order."""
    return merge(values, torch.add)


def block_nodes(replicas: int, begin: int, end: int) -> list[tuple[int, int]]:
    """The maximal nodes [begin, end) that make up a block of replicas: what its process contributes."""
    return _C.block_nodes(replicas, begin, end)
