# SPDX-License-Identifier: Apache-2.0
"""One row for each batch entry (as of a global pooling) brought to all of its points."""
from __future__ import annotations

from typing import Any

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import BroadcastMode
from ._old_names import takes_old_names
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import COORDINATE_MANAGER_DIFFERENT_ERROR


class MinkowskiBroadcastFunction(EngineFunction):
    """Features [N, C] plus or times the global row [B, C] of their batch index."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        input_features_global: torch.Tensor,
        operation_type: BroadcastMode,
        in_coords_key: CoordinateMapKey,
        glob_coords_key: CoordinateMapKey,
        coords_manager: CoordinateManager,
    ) -> torch.Tensor:
        assert isinstance(operation_type, BroadcastMode), f"operation_type is {operation_type!r}"
        rows = _C.broadcast(
            input_features, input_features_global, coords_manager._manager, in_coords_key, glob_coords_key
        )
        if operation_type == BroadcastMode.ELEMENTWISE_ADDITON:
            return input_features + rows
        return input_features * rows


class MinkowskiBroadcastBase(MinkowskiModuleBase):
    """input [N, C] and input_glob [B, C] of one manager, which has a row for each batch index of the input."""

    def __init__(self, operation_type: BroadcastMode) -> None:
        super().__init__()
        assert isinstance(operation_type, BroadcastMode), f"operation_type is {operation_type!r}"
        self.operation_type = operation_type

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        _check(input, input_glob)
        features = MinkowskiBroadcastFunction.apply(
            input.F,
            input_glob.F,
            self.operation_type,
            input.coordinate_map_key,
            input_glob.coordinate_map_key,
            input._manager,
        )
        return input._like(features)

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"


class MinkowskiBroadcastAddition(MinkowskiBroadcastBase):
    """Adds each batch entry's global row to its points."""

    @takes_old_names("dimension")
    def __init__(self) -> None:
        super().__init__(BroadcastMode.ELEMENTWISE_ADDITON)


class MinkowskiBroadcastMultiplication(MinkowskiBroadcastBase):
    """Multiplies each batch entry's points by its global row."""

    @takes_old_names("dimension")
    def __init__(self) -> None:
        super().__init__(BroadcastMode.ELEMENTWISE_MULTIPLICATION)


class MinkowskiBroadcast(MinkowskiModuleBase):
    """Each point takes its batch entry's global row: [N, C of input_glob]."""

    @takes_old_names("dimension")
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        return input._like(_rows(input, input_glob))


class MinkowskiBroadcastConcatenation(MinkowskiBroadcast):
    """Each point's channels, then those of its batch entry's global row."""

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        return input._like(torch.cat((input.F, _rows(input, input_glob)), dim=1))


def _check(input: SparseTensor, input_glob: SparseTensor) -> None:
    for name, given in (("input", input), ("input_glob", input_glob)):
        assert isinstance(given, SparseTensor), f"{name} is a {type(given).__name__}, expected a SparseTensor"
    assert input._manager is input_glob._manager, COORDINATE_MANAGER_DIFFERENT_ERROR


def _rows(input: SparseTensor, input_glob: SparseTensor) -> torch.Tensor:
    _check(input, input_glob)
    return _C.broadcast(
        input.F, input_glob.F, input._manager._manager, input.coordinate_map_key, input_glob.coordinate_map_key
    )
