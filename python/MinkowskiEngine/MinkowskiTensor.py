# SPDX-License-Identifier: Apache-2.0
"""What sparse tensors and tensor fields share, and the process's choice of coordinate managers."""
from __future__ import annotations

import numbers
import operator
import os
from typing import Any, Callable, TypeVar, Union, cast

import torch

from lockstep._C import CoordinateMapKey

from ._enums import (
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    SparseTensorOperationMode,
    SparseTensorQuantizationMode,
)
from .MinkowskiCoordinateManager import CoordinateManager

__all__ = [
    "SparseTensorOperationMode",
    "SparseTensorQuantizationMode",
    "Tensor",
    "clear_global_coordinate_manager",
    "global_coordinate_manager",
    "set_global_coordinate_manager",
    "set_sparse_tensor_operation_mode",
    "sparse_tensor_operation_mode",
]

AnyTensor = TypeVar("AnyTensor", bound="Tensor")
Operand = Union["Tensor", torch.Tensor, float]

_sparse_tensor_operation_mode = SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER
_global_coordinate_manager: CoordinateManager | None = None

COORDINATE_MANAGER_DIFFERENT_ERROR = (
    "SparseTensors must share the same coordinate manager for this operation. Make the second with the first's "
    "`coordinate_manager`, or share one by `set_sparse_tensor_operation_mode`."
)
COORDINATE_KEY_DIFFERENT_ERROR = "SparseTensors must have the same coordinate_map_key. "


def set_sparse_tensor_operation_mode(operation_mode: SparseTensorOperationMode) -> None:
    """Chooses whether tensors made from coordinates share one coordinate manager. A shared one holds all coordinates
    until clear_global_coordinate_manager() is called, after each backward pass say."""
    assert isinstance(operation_mode, SparseTensorOperationMode), (
        f"Input must be an instance of SparseTensorOperationMode not {operation_mode}"
    )
    global _sparse_tensor_operation_mode
    _sparse_tensor_operation_mode = operation_mode


def sparse_tensor_operation_mode() -> SparseTensorOperationMode:
    """The mode chosen."""
    return _sparse_tensor_operation_mode


def global_coordinate_manager() -> CoordinateManager | None:
    """The shared coordinate manager; None where there is none yet."""
    return _global_coordinate_manager


def set_global_coordinate_manager(coordinate_manager: CoordinateManager | None) -> None:
    """Makes this the shared coordinate manager."""
    global _global_coordinate_manager
    _global_coordinate_manager = coordinate_manager


def clear_global_coordinate_manager() -> None:
    """Lets the shared coordinate manager go."""
    set_global_coordinate_manager(None)


def manager_for(
    given: CoordinateManager | None,
    coordinates: torch.Tensor | None,
    allocator_type: GPUMemoryAllocatorType | None,
    minkowski_algorithm: MinkowskiAlgorithm | None,
) -> CoordinateManager:
    """The manager of a new tensor: the one given, the shared one, or one of its own."""
    if given is not None:
        return given
    shared = _sparse_tensor_operation_mode == SparseTensorOperationMode.SHARE_COORDINATE_MANAGER
    if shared and _global_coordinate_manager is not None:
        return _global_coordinate_manager
    assert coordinates is not None  # check_arguments wants them where there is no manager
    manager = CoordinateManager(
        D=coordinates.size(1) - 1,
        coordinate_map_type=CoordinateMapType.CUDA if coordinates.is_cuda else CoordinateMapType.CPU,
        allocator_type=allocator_type,
        minkowski_algorithm=minkowski_algorithm,
    )
    if shared:
        set_global_coordinate_manager(manager)
    return manager


def check_arguments(
    features: torch.Tensor,
    coordinates: torch.Tensor | None,
    key: CoordinateMapKey | None,
    key_name: str,
    manager: CoordinateManager | None,
    quantization_mode: SparseTensorQuantizationMode,
) -> None:
    """What both kinds of tensors want of their arguments."""
    assert isinstance(features, torch.Tensor), f"Features must be a torch.Tensor, got {type(features).__name__}"
    assert features.ndim == 2, f"The feature should be a matrix, The input feature is an order-{features.ndim} tensor."
    assert isinstance(quantization_mode, SparseTensorQuantizationMode), (
        f"quantization_mode is {quantization_mode!r}, expected a SparseTensorQuantizationMode"
    )
    if coordinates is not None:
        assert isinstance(coordinates, torch.Tensor), "Coordinates must be a torch.Tensor"
    if manager is not None:
        assert isinstance(manager, CoordinateManager), f"coordinate_manager is {manager!r}"
    if key is not None:
        assert isinstance(key, CoordinateMapKey), f"{key_name} is {key!r}, expected a CoordinateMapKey"
        assert manager is not None, f"Must provide coordinate_manager if {key_name} is provided"
        assert coordinates is None, f"Must not provide coordinates if {key_name} is provided"
    elif coordinates is None:
        raise ValueError(f"Either coordinates or ({key_name}, coordinate_manager) pair must be provided.")
    else:
        assert coordinates.ndim == 2, f"coordinates are {tuple(coordinates.shape)}, expected [N, 1 + D]"
        assert len(features) == len(coordinates), (
            f"The number of rows in features and coordinates must match, got {len(features)} and {len(coordinates)}."
        )


class Tensor:
    """Features [N, C] at N points of a coordinate manager. Layers make new ones; features are ordinary torch tensors."""

    _key_name: str
    _F: torch.Tensor
    _C: torch.Tensor | None
    _D: int
    _manager: CoordinateManager
    _batch_rows: list[torch.Tensor] | None
    quantization_mode: SparseTensorQuantizationMode

    # ---- what the two kinds differ in -------------------------------------------------------------------------------

    @property
    def coordinate_key(self) -> CoordinateMapKey:
        raise NotImplementedError

    def _like(self: AnyTensor, features: torch.Tensor) -> AnyTensor:
        """Other features at the same points."""
        raise NotImplementedError

    def _load_coordinates(self) -> torch.Tensor:
        raise NotImplementedError

    def _load_batch_rows(self) -> list[torch.Tensor]:
        raise NotImplementedError

    # ---- coordinates ------------------------------------------------------------------------------------------------

    @property
    def coordinate_manager(self) -> CoordinateManager:
        return self._manager

    @property
    def tensor_stride(self) -> list[int]:
        return self.coordinate_key.get_tensor_stride()

    @property
    def coordinates(self) -> torch.Tensor:
        """[N, 1 + D], batch index first, on the features' device."""
        if self._C is None:
            self._C = self._load_coordinates()
        if self._C.device != self._F.device:
            self._C = self._C.to(self._F.device)
        return self._C

    @property
    def C(self) -> torch.Tensor:
        """The same as `coordinates`."""
        return self.coordinates

    @property
    def D(self) -> int:
        """The number of spatial axes."""
        return self._D

    @property
    def dimension(self) -> int:
        """The same as `D`."""
        return self._D

    # ---- features ---------------------------------------------------------------------------------------------------

    @property
    def F(self) -> torch.Tensor:
        """The features [N, C]."""
        return self._F

    @property
    def features(self) -> torch.Tensor:
        """The same as `F`."""
        return self._F

    @property
    def feats(self) -> torch.Tensor:
        """The same as `F`."""
        return self._F

    @property
    def shape(self) -> torch.Size:
        return self._F.shape

    def size(self, *args: Any) -> torch.Size:
        return self._F.size(*args)

    def __len__(self) -> int:
        return len(self._F)

    @property
    def device(self) -> torch.device:
        return self._F.device

    @property
    def dtype(self) -> torch.dtype:
        return self._F.dtype

    @property
    def is_cuda(self) -> bool:
        return self._F.is_cuda

    def get_device(self) -> int:
        return self._F.get_device()

    @property
    def requires_grad(self) -> bool:
        return self._F.requires_grad

    def requires_grad_(self: AnyTensor, requires_grad: bool = True) -> AnyTensor:
        self._F.requires_grad_(requires_grad)
        return self

    def detach(self: AnyTensor) -> AnyTensor:
        """Cuts this tensor itself off the graph, and returns it."""
        self._F = self._F.detach()
        return self

    def float(self: AnyTensor) -> AnyTensor:
        """Turns this tensor's own features into float32, and returns it; double() likewise."""
        self._F = self._F.float()
        return self

    def double(self: AnyTensor) -> AnyTensor:
        self._F = self._F.double()
        return self

    def to(self: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
        """Another tensor at the same points, its features changed as torch.Tensor.to does: device, dtype, ..."""
        return self._like(self._F.to(*args, **kwargs))

    def cpu(self: AnyTensor) -> AnyTensor:
        return self.to("cpu")

    def cuda(self: AnyTensor, device: torch.device | str | int | None = None, non_blocking: bool = False) -> AnyTensor:
        return self._like(self._F.cuda(device, non_blocking=non_blocking))

    def half(self: AnyTensor) -> AnyTensor:
        return self.to(torch.float16)

    def bfloat16(self: AnyTensor) -> AnyTensor:
        return self.to(torch.bfloat16)

    # ---- parts of a batch -------------------------------------------------------------------------------------------

    @property
    def _batchwise_row_indices(self) -> list[torch.Tensor]:
        if self._batch_rows is None:
            self._batch_rows = self._load_batch_rows()
        if self._batch_rows and self._batch_rows[0].device != self._F.device:
            self._batch_rows = [rows.to(self._F.device) for rows in self._batch_rows]
        return self._batch_rows

    @property
    def decomposition_permutations(self) -> list[torch.Tensor]:
        """The rows of each batch index, int64 [n_b]; an index without points has none."""
        return self._batchwise_row_indices

    @property
    def decomposed_coordinates(self) -> list[torch.Tensor]:
        """Coordinates [n_b, D] of each batch index, without that index."""
        return [self.C[rows, 1:] for rows in self._batchwise_row_indices]

    @property
    def decomposed_features(self) -> list[torch.Tensor]:
        """Features [n_b, C] of each batch index."""
        return [self._F[rows] for rows in self._batchwise_row_indices]

    @property
    def decomposed_coordinates_and_features(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return self.decomposed_coordinates, self.decomposed_features

    def _rows_at(self, batch_index: int) -> torch.Tensor:
        parts = self._batchwise_row_indices
        if batch_index < len(parts):
            return parts[batch_index]
        return torch.zeros(0, dtype=torch.long, device=self._F.device)  # beyond the last index with points: none either

    def coordinates_at(self, batch_index: int) -> torch.Tensor:
        """Coordinates [n, D] of one batch index; none of an index without points."""
        return self.C[self._rows_at(batch_index), 1:]

    def features_at(self, batch_index: int) -> torch.Tensor:
        """Features [n, C] of one batch index; none of an index without points."""
        return self._F[self._rows_at(batch_index)]

    def coordinates_and_features_at(self, batch_index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.coordinates_at(batch_index), self.features_at(batch_index)

    # ---- arithmetic -------------------------------------------------------------------------------------------------

    def _same_points(self, other: Tensor) -> bool:
        assert self._manager is other._manager, COORDINATE_MANAGER_DIFFERENT_ERROR
        return self.coordinate_key == other.coordinate_key

    def _is_same_key(self, other: Any) -> None:
        assert isinstance(other, self.__class__), f"got {type(other).__name__}, expected {type(self).__name__}"
        assert self._same_points(other), (
            f"{COORDINATE_KEY_DIFFERENT_ERROR}{self.coordinate_key} != {other.coordinate_key}"
        )

    def _at_union(self: AnyTensor, other: Tensor, function: Callable[[Any, Any], Any]) -> AnyTensor:
        raise AssertionError(f"{COORDINATE_KEY_DIFFERENT_ERROR}{self.coordinate_key} != {other.coordinate_key}")

    def _binary(
        self: AnyTensor, other: Operand, function: Callable[[Any, Any], Any], reflected: bool = False
    ) -> AnyTensor:
        assert isinstance(other, (Tensor, torch.Tensor, numbers.Number)), (
            f"got {type(other).__name__}, expected a {type(self).__name__}, a torch.Tensor or a number"
        )
        if isinstance(other, Tensor):
            assert isinstance(other, self.__class__) or isinstance(self, other.__class__), (
                f"got {type(other).__name__}, expected {type(self).__name__}"
            )
            if not self._same_points(other):
                return self._at_union(other, function)
            other = other._F
        return self._like(function(other, self._F) if reflected else function(self._F, other))

    def _in_place(self: AnyTensor, other: Operand, function: Callable[[Any, Any], Any]) -> AnyTensor:
        if not isinstance(other, (torch.Tensor, numbers.Number)):
            self._is_same_key(other)
            other = cast(Tensor, other)._F
        # A new tensor, not an operation in place: others may have kept the old one for their gradients.
        self._F = function(self._F, other)
        return self

    def __add__(self: AnyTensor, other: Operand) -> AnyTensor:
        """Row by row with a torch tensor or number; with another sparse tensor of the manager at the union of both's
        coordinates, where what one lacks counts as zero. Likewise for -, * and /."""
        return self._binary(other, operator.add)

    def __sub__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.sub)

    def __mul__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.mul)

    def __truediv__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.truediv)

    def __radd__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.add, reflected=True)

    def __rsub__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.sub, reflected=True)

    def __rmul__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.mul, reflected=True)

    def __rtruediv__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._binary(other, operator.truediv, reflected=True)

    def __iadd__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._in_place(other, operator.add)

    def __isub__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._in_place(other, operator.sub)

    def __imul__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._in_place(other, operator.mul)

    def __itruediv__(self: AnyTensor, other: Operand) -> AnyTensor:
        return self._in_place(other, operator.truediv)

    __idiv__ = __itruediv__

    def __pow__(self: AnyTensor, power: Any) -> AnyTensor:
        return self._like(self._F**power)

    __power__ = __pow__

    def __neg__(self: AnyTensor) -> AnyTensor:
        return self._like(-self._F)

    def __repr__(self) -> str:
        lines = [
            f"{type(self).__name__}(",
            f"  coordinates={self.C}",
            f"  features={self._F}",
            f"  {self._key_name}={self.coordinate_key}",
            f"  coordinate_manager={self._manager}  spatial dimension={self._D})",
        ]
        return os.linesep.join(lines)
