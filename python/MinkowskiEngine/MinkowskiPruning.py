# SPDX-License-Identifier: Apache-2.0
"""Pruning."""
from __future__ import annotations

from typing import Any

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._old_names import takes_old_names
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase
from .MinkowskiConvolution import empty_key
from .MinkowskiCoordinateManager import CoordinateManager, engine_manager
from .MinkowskiSparseTensor import SparseTensor


class MinkowskiPruningFunction(EngineFunction):
    """The rows of [N, C] for which mask, bool [N], holds. An empty out_coords_key is set."""

    @staticmethod
    def forward(
        ctx: Any,
        in_feat: torch.Tensor,
        mask: torch.Tensor,
        in_coords_key: CoordinateMapKey,
        out_coords_key: CoordinateMapKey | None = None,
        coords_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        out_key = empty_key(out_coords_key, in_coords_key)
        return _C.prune(in_feat, mask, engine_manager(coords_manager), in_coords_key, out_key)


class MinkowskiPruning(MinkowskiModuleBase):
    """Keeps the points for which mask, bool [N], holds; they keep their order. None may be left."""

    @takes_old_names("dimension")
    def __init__(self) -> None:
        super().__init__()

    @property
    def pruning(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiPruningFunction()

    def forward(self, input: SparseTensor, mask: torch.Tensor) -> SparseTensor:
        assert isinstance(input, SparseTensor), f"input is a {type(input).__name__}, expected a SparseTensor"
        mask = torch.as_tensor(mask)
        out_key = CoordinateMapKey(input.coordinate_map_key.get_coordinate_size())
        features = MinkowskiPruningFunction.apply(input.F, mask, input.coordinate_map_key, out_key, input._manager)
        return SparseTensor._make(features, out_key, input._manager)

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"
