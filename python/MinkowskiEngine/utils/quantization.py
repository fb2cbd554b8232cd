# SPDX-License-Identifier: Apache-2.0
"""Voxels of point clouds."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Tuple

import numpy as np
import torch

from lockstep import _C

from .._old_names import takes_old_names
from ..MinkowskiCommon import Array, StrideType, convert_to_int_list, whole


def fnv_hash_vec(arr: np.ndarray) -> np.ndarray:
    """The 64-bit FNV-1 hash of each row, uint64 [N]."""
    assert arr.ndim == 2, f"the array has {arr.ndim} dimensions, expected 2"
    columns = arr.astype(np.int64).view(np.uint64)
    hashed = np.full(arr.shape[0], 14695981039346656037, dtype=np.uint64)
    for column in columns.T:
        hashed = (hashed * np.uint64(1099511628211)) ^ column
    return hashed


def ravel_hash_vec(arr: np.ndarray) -> np.ndarray:
    """A number for each row, uint64 [N]: its place in the box of all rows. The same for equal rows only."""
    assert arr.ndim == 2, f"the array has {arr.ndim} dimensions, expected 2"
    if len(arr) == 0:
        return np.zeros(0, dtype=np.uint64)
    places = (arr - arr.min(0)).astype(np.uint64)
    extents = places.max(0) + np.uint64(1)
    keys = np.zeros(arr.shape[0], dtype=np.uint64)
    for axis in range(arr.shape[1] - 1):
        keys = (keys + places[:, axis]) * extents[axis + 1]
    return keys + places[:, -1]


def _voxels(coordinates: Array, quantization_size: float | Sequence[float] | Array | None) -> Array:
    """Coordinates divided by the size and rounded down, int32, in the container they came in."""
    size: Any = quantization_size
    if isinstance(size, (np.ndarray, torch.Tensor)) and size.ndim == 0:
        size = size.item()
    if size is not None:
        if isinstance(size, (Sequence, np.ndarray, torch.Tensor)) and not np.isscalar(size):
            assert len(size) == coordinates.shape[1], (
                f"Quantization size and coordinates size mismatch: {len(size)} and {coordinates.shape[1]}."
            )
            numpy = isinstance(coordinates, np.ndarray)
            size = np.asarray(size) if numpy else torch.as_tensor(size, device=coordinates.device)
        elif not np.isscalar(size):
            raise ValueError(f"Not supported type for quantization_size: {type(size).__name__}.")
        sizes = torch.as_tensor(size, dtype=torch.float64)
        if not (sizes.isfinite() & (sizes > 0)).all():
            raise ValueError(f"quantization_size is {quantization_size}, expected it above 0")
        coordinates = coordinates / size
    if isinstance(coordinates, np.ndarray):
        return whole(torch.from_numpy(np.floor(coordinates))).numpy()
    return whole(coordinates)


def _merge_labels(labels: Array, unique: Array, inverse: Array, ignore_label: int) -> Array:
    """The label of each voxel, or ignore_label where its points disagree. Labels whose type does not hold ignore_label
    become int32."""
    dtype: Any = labels.dtype
    if isinstance(labels, np.ndarray):
        if dtype == bool or (dtype.kind in "iu" and not np.iinfo(dtype).min <= ignore_label <= np.iinfo(dtype).max):
            labels = labels.astype(np.int32)
    elif dtype == torch.bool or (
        not dtype.is_floating_point and not torch.iinfo(dtype).min <= ignore_label <= torch.iinfo(dtype).max
    ):
        labels = labels.int()
    merged = labels[unique]
    conflicts = inverse[labels != merged[inverse]]
    merged[conflicts] = ignore_label
    return merged


@takes_old_names()
def sparse_quantize(
    coordinates: Array,
    features: Array | None = None,
    labels: Array | None = None,
    ignore_label: int = -100,
    return_index: bool = False,
    return_inverse: bool = False,
    return_maps_only: bool = False,
    quantization_size: float | Sequence[float] | Array | None = None,
    device: torch.device | str = "cpu",
) -> Any:
    """The voxels of one cloud [N, D], array or tensor: points divided by quantization_size (a number, or one an axis) and
    rounded down; the first point of a voxel stands for it. labels are [N], or a column [N, 1].

    Returns, in this order, as a tuple if there is more than one: coordinates int32 [M, D], features [M, C] and labels [M]
    where they are given (ignore_label where points of a voxel disagree; int32 if their type does not hold it), the points that stay [M] with return_index, and
    each point's voxel [N] with return_inverse. With return_maps_only the last two alone.
    """
    assert isinstance(coordinates, (np.ndarray, torch.Tensor)), "Coords must be either np.array or torch.Tensor."
    assert coordinates.ndim == 2, (
        f"The coordinates must be a 2D matrix. The shape of the input is {tuple(coordinates.shape)}"
    )
    if return_inverse:
        assert return_index, "return_reverse must be set with return_index"
    if features is not None:
        assert features.ndim == 2, f"features are {tuple(features.shape)}, expected [N, C]"
        assert len(features) == len(coordinates), f"{len(coordinates)} coordinates, {len(features)} features"
    if labels is not None:
        if not isinstance(labels, (np.ndarray, torch.Tensor)):
            labels = np.asarray(labels) if isinstance(coordinates, np.ndarray) else torch.as_tensor(labels)
        labels = labels.reshape(-1)
        assert len(labels) == len(coordinates), f"{len(coordinates)} coordinates, {len(labels)} labels"
    if torch.device(device).type not in ("cpu", "cuda"):
        raise ValueError(f"Invalid device {device}. Only `cpu`, `cuda` or torch.device supported.")
    voxels: Any = _voxels(coordinates, quantization_size)
    unique: Any  # an array or a tensor, as voxels are
    inverse: Any
    table = torch.from_numpy(voxels) if isinstance(voxels, np.ndarray) else voxels.cpu()
    unique, inverse = _C.unique_rows(torch.nn.functional.pad(table, (1, 0)))
    if labels is None:  # tensors whatever came in, on the device asked for
        voxels, unique, inverse = (each.to(device) for each in (table, unique, inverse))
    elif isinstance(coordinates, np.ndarray):
        unique, inverse = unique.numpy(), inverse.numpy()
    if return_maps_only:
        return (unique, inverse) if return_inverse else unique
    results = [voxels[unique]]
    if features is not None:
        numpy = isinstance(features, np.ndarray) and isinstance(unique, torch.Tensor)
        results.append(features[unique.cpu().numpy() if numpy else unique])
    if labels is not None:
        results.append(_merge_labels(labels, unique, inverse, ignore_label))
    if return_index:
        results.append(unique)
    if return_inverse:
        results.append(inverse)
    return results[0] if len(results) == 1 else tuple(results)


def unique_coordinate_map(
    coordinates: torch.Tensor,
    tensor_stride: StrideType = 1,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """(unique int64 [M], inverse int64 [N]): coordinates[unique] are the different ones of int32 [N, 1 + D], and
    coordinates[unique][inverse] those given."""
    assert isinstance(coordinates, torch.Tensor), f"got a {type(coordinates).__name__}, expected a torch.Tensor"
    assert coordinates.ndim == 2, "Coordinates must be a matrix"
    convert_to_int_list(tensor_stride, coordinates.shape[-1] - 1)
    return _C.unique_rows(coordinates.int())
