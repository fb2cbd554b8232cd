# SPDX-License-Identifier: Apache-2.0
"""Joining point clouds to a batch."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..MinkowskiCommon import Array, whole


def _as_tensor(name: str, given: Array) -> torch.Tensor:
    assert isinstance(given, (np.ndarray, torch.Tensor)), (
        f"{name} must be of type numpy.ndarray or torch.Tensor, got {type(given).__name__}"
    )
    return torch.from_numpy(given) if isinstance(given, np.ndarray) else given


def batched_coordinates(
    coords: Sequence[Array], dtype: torch.dtype = torch.int32, device: torch.device | str | int | None = None
) -> torch.Tensor:
    """Clouds [n_b, D], arrays or tensors, as one table [N, 1 + D] with the batch index in front. To int32 coordinates
    are rounded down; float32 is the other dtype there is."""
    assert isinstance(coords, Sequence) and len(coords) > 0, "The coordinates must be a sequence of arrays or tensors."
    assert dtype in (torch.int32, torch.float32), (
        f"Only torch.int32, torch.float32 supported for coordinates, got {dtype}."
    )
    clouds = [_as_tensor("coordinates", cloud) for cloud in coords]
    assert all(cloud.ndim == 2 for cloud in clouds), "All coordinates must be in a 2D array."
    axes = sorted({cloud.size(1) for cloud in clouds})
    assert len(axes) == 1, f"Dimension of the array mismatch. All dimensions: {axes}"
    if device is None:
        device = clouds[0].device
    joined = torch.zeros((sum(len(cloud) for cloud in clouds), 1 + axes[0]), dtype=dtype, device=device)
    start = 0
    for batch, cloud in enumerate(clouds):
        joined[start : start + len(cloud), 0] = batch
        joined[start : start + len(cloud), 1:] = whole(cloud) if dtype == torch.int32 else cloud
        start += len(cloud)
    return joined


def sparse_collate(
    coords: Sequence[Array],
    feats: Sequence[Array],
    labels: Sequence[Any] | None = None,
    dtype: torch.dtype = torch.int32,
    device: torch.device | str | int | None = None,
) -> tuple:
    """Clouds of coordinates [n_b, D] and features [n_b, C] as (coordinates [N, 1 + D], features [N, C]), and labels
    behind each other where they are given. Labels that are no arrays or tensors stay a list."""
    assert isinstance(coords, Sequence), "The coordinates must be a sequence of arrays or tensors."
    assert isinstance(feats, Sequence), "The features must be a sequence of arrays or tensors."
    points, rows = sum(len(cloud) for cloud in coords), sum(len(part) for part in feats)
    assert points == rows, f"Coordinate length {points} != Feature length {rows}"
    joined = batched_coordinates(coords, dtype, device)
    features = torch.cat([_as_tensor("features", part) for part in feats], 0)
    if labels is None:
        return joined, features
    assert isinstance(labels, Sequence), "The labels must be a sequence of arrays or tensors."
    parts: Any = [torch.from_numpy(part) if isinstance(part, np.ndarray) else part for part in labels[: len(coords)]]
    if isinstance(parts[0], torch.Tensor):
        parts = torch.cat([part.reshape(1) if part.ndim == 0 else part for part in parts], 0)
    return joined, features, parts


def batch_sparse_collate(
    data: Sequence[tuple], dtype: torch.dtype = torch.int32, device: torch.device | str | int | None = None
) -> tuple:
    """sparse_collate of a list of (coordinates, features) or (coordinates, features, labels): a DataLoader's
    collate_fn."""
    coords, feats, *labels = zip(*data)
    return sparse_collate(coords, feats, labels[0] if labels else None, dtype, device)


class SparseCollation:
    """A DataLoader's collate_fn for (coordinates, features, labels). A batch ends before the example that would bring it
    above limit_numpoints points, if that is positive, with a warning in the log."""

    def __init__(
        self,
        limit_numpoints: int = -1,
        dtype: torch.dtype = torch.int32,
        device: torch.device | str | int | None = None,
    ) -> None:
        self.limit_numpoints = limit_numpoints
        self.dtype = dtype
        self.device = device

    def __call__(self, list_data: Sequence[tuple]) -> tuple:
        kept = self._within_limit([len(example[0]) for example in list_data])
        return batch_sparse_collate(list_data[:kept], self.dtype, self.device)

    def _within_limit(self, sizes: Sequence[int]) -> int:
        if not self.limit_numpoints or self.limit_numpoints < 0:
            return len(sizes)
        total = 0
        for number, size in enumerate(sizes):
            if total + size > self.limit_numpoints:
                logging.warning(
                    "Cannot fit %d points into %d points limit. Truncating batch size at %d out of %d with %d.",
                    sum(sizes),
                    self.limit_numpoints,
                    number,
                    len(sizes),
                    total,
                )
                if number == 0:
                    raise ValueError(
                        f"the first example has {size} points, expected at most limit_numpoints={self.limit_numpoints}"
                    )
                return number
            total += size
        return len(sizes)
