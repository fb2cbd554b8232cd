# SPDX-License-Identifier: Apache-2.0
"""What becomes of features whose coordinates are equal, or are no whole numbers."""
from __future__ import annotations

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import SparseTensorQuantizationMode
from .MinkowskiCommon import StrideType, convert_to_int_list
from .MinkowskiCoordinateManager import CoordinateManager, round_down


def quantize_features(
    features: torch.Tensor, unique: torch.Tensor, inverse: torch.Tensor, mode: SparseTensorQuantizationMode
) -> torch.Tensor:
    """Features [N, C] of points as features [M, C] of the different coordinates among them."""
    if len(unique) == len(features):
        return features
    if mode == SparseTensorQuantizationMode.NO_QUANTIZATION:
        raise ValueError(
            f"{len(features) - len(unique)} of {len(features)} coordinates occur before, expected different ones, or "
            "another quantization_mode"
        )
    if mode == SparseTensorQuantizationMode.RANDOM_SUBSAMPLE:
        return _C.take_rows(features, unique)
    pooling = {
        SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE: _C.Pooling.average,
        SparseTensorQuantizationMode.UNWEIGHTED_SUM: _C.Pooling.sum,
        SparseTensorQuantizationMode.MAX_POOL: _C.Pooling.max,
    }.get(mode)
    if pooling is None:
        raise ValueError(f"quantization mode {mode} is not one of coordinates that are equal")
    return _C.pool_pairs(features, pooling, torch.arange(len(features)), inverse, len(unique))


def splat(
    features: torch.Tensor,
    points: torch.Tensor,
    manager: CoordinateManager,
    tensor_stride: StrideType,
    string_id: str = "",
) -> tuple[torch.Tensor, CoordinateMapKey, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Spreads features of real points linearly over the corners of the grid around them.

    Returns (features, key) and (rows of the map, numbers of the points, weights)."""
    dimension = points.size(1) - 1
    stride = convert_to_int_list(tensor_stride, dimension)
    low = round_down(points, stride)
    corners = torch.cartesian_prod(*(torch.tensor([0, step], dtype=torch.int32) for step in stride))
    corners = torch.nn.functional.pad(corners.view(-1, dimension), (1, 0))
    key, _ = manager.insert_and_map((low.unsqueeze(1) + corners).reshape(-1, 1 + dimension), stride, string_id)
    rows, points_of, weights = manager.interpolation_map_weight(key, points)
    spread = _C.spmm(rows, points_of, weights.to(features.dtype), manager.size(key), features)
    return spread, key, (rows, points_of, weights)
