# SPDX-License-Identifier: Apache-2.0
"""Products of sparse matrices and features."""
from __future__ import annotations

from typing import Any

import torch

from lockstep import _C

from .MinkowskiCommon import EngineFunction


def spmm(
    rows: torch.Tensor,
    cols: torch.Tensor,
    vals: torch.Tensor,
    size: torch.Size,
    mat: torch.Tensor,
    is_sorted: bool = False,
    cuda_spmm_alg: int = 1,
) -> torch.Tensor:
    """The product of the sparse matrix of `size` with entries vals[i] at (rows[i], cols[i]), and mat [size[1], C].

    Entries at one place are added. Differentiable with respect to vals and mat."""
    _check(rows, cols, size, mat)
    assert vals.dtype == mat.dtype, f"vals are {vals.dtype}, expected {mat.dtype} as mat has"
    return _C.spmm(rows.long().cpu(), cols.long().cpu(), vals, int(size[0]), mat)


def _check(rows: torch.Tensor, cols: torch.Tensor, size: torch.Size, mat: torch.Tensor) -> None:
    assert len(rows) == len(cols), f"rows and cols must have the same length, got {len(rows)} and {len(cols)}"
    assert len(size) == 2 and size[1] == len(mat), f"size is {tuple(size)}, expected [rows, {len(mat)}]"


class MinkowskiSPMMFunction(EngineFunction):
    """spmm()."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        cols: torch.Tensor,
        vals: torch.Tensor,
        size: torch.Size,
        mat: torch.Tensor,
        cuda_spmm_alg: int = 1,
    ) -> torch.Tensor:
        return spmm(rows, cols, vals, size, mat)


class MinkowskiSPMMAverageFunction(EngineFunction):
    """The mean, for each row, of mat's rows at its columns; zero where it has none."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        cols: torch.Tensor,
        size: torch.Size,
        mat: torch.Tensor,
        cuda_spmm_alg: int = 1,
    ) -> torch.Tensor:
        _check(rows, cols, size, mat)
        return _C.pool_pairs(mat, _C.Pooling.average, cols.long().cpu(), rows.long().cpu(), int(size[0]))
