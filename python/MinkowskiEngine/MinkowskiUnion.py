# SPDX-License-Identifier: Apache-2.0
"""The union."""
from __future__ import annotations

from typing import Any

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._old_names import takes_old_names
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import COORDINATE_MANAGER_DIFFERENT_ERROR


class MinkowskiUnionFunction(EngineFunction):
    """The sum of features at the union of their coordinates. An empty out_coords_key is set."""

    @staticmethod
    def forward(
        ctx: Any,
        in_coords_keys: list,
        out_coords_key: CoordinateMapKey,
        coordinate_manager: CoordinateManager,
        *in_feats: torch.Tensor,
    ) -> torch.Tensor:
        assert isinstance(in_feats, (list, tuple)), "Input must be a collection of Tensors"
        assert len(in_feats) > 1, f"input must be a set with at least 2 Tensors, got {len(in_feats)}"
        assert len(in_feats) == len(in_coords_keys), (
            f"The input features and keys must have the same length, got {len(in_feats)} and {len(in_coords_keys)}"
        )
        return _C.unite(list(in_feats), list(in_coords_keys), coordinate_manager._manager, out_coords_key)


class MinkowskiUnion(MinkowskiModuleBase):
    """The sum of two or more sparse tensors of one manager at the union of their coordinates."""

    @takes_old_names("dimension")
    def __init__(self) -> None:
        super().__init__()

    @property
    def union(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiUnionFunction()

    def forward(self, *inputs: SparseTensor) -> SparseTensor:
        assert len(inputs) > 1, f"The number of inputs must be greater than 1, got {len(inputs)}"
        for each in inputs:
            assert isinstance(each, SparseTensor), f"Inputs must be sparse tensors, got a {type(each).__name__}"
            assert each._manager is inputs[0]._manager, COORDINATE_MANAGER_DIFFERENT_ERROR
        out_key = CoordinateMapKey(inputs[0].coordinate_map_key.get_coordinate_size())
        keys = [each.coordinate_map_key for each in inputs]
        features = MinkowskiUnionFunction.apply(keys, out_key, inputs[0]._manager, *(each.F for each in inputs))
        return SparseTensor._make(features, out_key, inputs[0]._manager)

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"
