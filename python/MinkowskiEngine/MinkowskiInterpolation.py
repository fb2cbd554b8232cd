# SPDX-License-Identifier: Apache-2.0
"""Interpolation."""
from __future__ import annotations

from typing import Any

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor


class MinkowskiInterpolationFunction(EngineFunction):
    """Features [N, C] at real points tfield [M, 1 + D]: (features [M, C], rows, numbers of the points, weights), an
    entry for each corner of the grid that is there."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        tfield: torch.Tensor,
        in_coordinate_map_key: CoordinateMapKey,
        coordinate_manager: CoordinateManager | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        assert coordinate_manager is not None, "coordinate_manager is None, expected a CoordinateManager"
        rows, points, weights = coordinate_manager.interpolation_map_weight(in_coordinate_map_key, tfield)
        weights = weights.to(input_features.dtype)
        return _C.spmm(points, rows, weights, len(tfield), input_features), rows, points, weights


class MinkowskiInterpolation(MinkowskiModuleBase):
    """Features at real points, linear from the corners of the grid around them; corners that are not there count as
    zero. Beside the features it gives (rows, points) with return_kernel_map, and weights with return_weights."""

    def __init__(self, return_kernel_map: bool = False, return_weights: bool = False) -> None:
        super().__init__()
        self.return_kernel_map = return_kernel_map
        self.return_weights = return_weights

    @property
    def interp(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiInterpolationFunction()

    def forward(self, input: SparseTensor, tfield: torch.Tensor) -> Any:
        features, rows, points, weights = MinkowskiInterpolationFunction.apply(
            input.F, tfield, input.coordinate_map_key, input._manager
        )
        results = [features]
        if self.return_kernel_map:
            results.append((rows, points))
        if self.return_weights:
            results.append(weights)
        return tuple(results) if len(results) > 1 else features

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"
