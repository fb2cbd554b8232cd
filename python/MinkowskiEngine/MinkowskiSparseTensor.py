# SPDX-License-Identifier: Apache-2.0
"""The sparse tensor."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey
from lockstep.sampler import share

from ._enums import GPUMemoryAllocatorType, MinkowskiAlgorithm, SparseTensorQuantizationMode
from ._old_names import old_attribute, takes_old_names
from ._quantize import quantize_features, splat
from .MinkowskiCommon import StrideType, convert_to_int_list, whole
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiTensor import Tensor, check_arguments, manager_for

if TYPE_CHECKING:
    from .MinkowskiTensorField import TensorField


class SparseTensor(Tensor):
    """Features [N, C] at N different coordinates (batch index, then D integers) of a coordinate manager.

    Made from `coordinates`, int32 [N, 1 + D], that are all different, it keeps their order; of equal ones the first
    keeps its place and `quantization_mode` says what becomes of the features. Or made from `coordinate_map_key` and
    `coordinate_manager`. unique_index int64 [M] and inverse_mapping int64 [N] lead from the rows given to the tensor's
    and back.

    Raises AssertionError on arguments of a wrong kind or size, ValueError where there are neither coordinates nor a key.
    """

    _key_name = "coordinate_map_key"
    coordinate_map_key: CoordinateMapKey
    coords_key = old_attribute("coords_key", "coordinate_map_key")
    coords_man = old_attribute("coords_man", "coordinate_manager")

    @takes_old_names("force_creation", "allow_duplicate_coords")
    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        # optional coordinate related arguments
        tensor_stride: StrideType = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE,
        # optional manager related arguments
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        requires_grad: bool | None = None,
        device: torch.device | str | int | None = None,
    ) -> None:
        check_arguments(
            features, coordinates, coordinate_map_key, "coordinate_map_key", coordinate_manager, quantization_mode
        )
        self.quantization_mode = quantization_mode
        if device is not None:
            features = features.to(device)
            coordinates = None if coordinates is None else coordinates.to(device)
        self._manager = manager_for(coordinate_manager, coordinates, allocator_type, minkowski_algorithm)
        self._D = self._manager.D
        self._batch_rows = None
        if coordinates is not None:
            assert features.is_cuda == coordinates.is_cuda, "Features and coordinates must have the same backend."
            key = CoordinateMapKey(convert_to_int_list(tensor_stride, self._D), "")
            coordinates, features, coordinate_map_key = self.initialize_coordinates(coordinates, features, key)
        else:
            assert coordinate_map_key is not None and coordinate_map_key.is_key_set(), "The coordinate key must be valid."
            points = self._manager.size(coordinate_map_key)
            assert len(features) == points, (
                f"features have {len(features)} rows, expected {points}, as many as '{coordinate_map_key}' has points"
            )
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F = features
        self._C = coordinates
        self.coordinate_map_key = coordinate_map_key

    @classmethod
    def _make(cls, features: torch.Tensor, key: CoordinateMapKey, manager: CoordinateManager) -> "SparseTensor":
        """What a layer makes: nothing needs to be checked."""
        made = cls.__new__(cls)
        made.quantization_mode = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE
        made._D = manager.D
        made._manager = manager
        made._F = features
        made._C = None
        made._batch_rows = None
        made.coordinate_map_key = key
        return made

    def _like(self, features: torch.Tensor) -> "SparseTensor":
        made = self._make(features, self.coordinate_map_key, self._manager)
        made._C = self._C
        for name in ("unique_index", "inverse_mapping"):  # of a tensor that was made from coordinates
            if name in self.__dict__:
                setattr(made, name, self.__dict__[name])
        return made

    def initialize_coordinates(
        self, coordinates: torch.Tensor, features: torch.Tensor, coordinate_map_key: CoordinateMapKey
    ) -> tuple[torch.Tensor, torch.Tensor, CoordinateMapKey]:
        """Adds coordinates to the manager: (coordinates, features, key) of those that are different."""
        stride, string_id = coordinate_map_key.get_key()
        assert all(step > 0 for step in stride), f"tensor_stride is {stride}, expected it above 0"
        if self.quantization_mode == SparseTensorQuantizationMode.SPLAT_LINEAR_INTERPOLATION:
            features, key, _ = splat(features, coordinates, self._manager, stride, string_id)
            return self._manager.get_coordinates(key), features, key
        if coordinates.dtype != torch.int32:
            warnings.warn(
                "coordinates implicitly converted to torch.IntTensor. To remove this warning, use `.int()` to convert "
                "the coords into an torch.IntTensor"
            )
            coordinates = whole(coordinates)
        _warn_of_points_off_the_grid(coordinates, stride)
        key, (unique, inverse) = self._manager.insert_and_map(coordinates, stride, string_id)
        self.unique_index, self.inverse_mapping = unique, inverse
        features = quantize_features(features, unique, inverse, self.quantization_mode)
        return coordinates[unique.to(coordinates.device)], features, key

    @property
    def coordinate_key(self) -> CoordinateMapKey:
        return self.coordinate_map_key

    @property
    def tensor_stride(self) -> list[int]:
        """One value an axis. Setting it makes this tensor one of coordinates known by another stride."""
        return self.coordinate_map_key.get_tensor_stride()

    @tensor_stride.setter
    def tensor_stride(self, stride: StrideType) -> None:
        stride = convert_to_int_list(stride, self._D)
        if stride != self.tensor_stride:
            self.coordinate_map_key, _ = self._manager.insert_and_map(self.C.cpu(), stride)

    def _load_coordinates(self) -> torch.Tensor:
        return self._manager.get_coordinates(self.coordinate_map_key)

    def _load_batch_rows(self) -> list[torch.Tensor]:
        return self._manager.origin_map(self.coordinate_map_key)[1]

    def _at_union(self, other: Any, function: Callable[[Any, Any], Any]) -> SparseTensor:
        manager, mine, others = self._manager._manager, self.coordinate_map_key, other.coordinate_map_key
        assert self.tensor_stride == other.tensor_stride, (
            f"tensor strides are {self.tensor_stride} and {other.tensor_stride}, expected the same"
        )
        key = manager.unite([mine, others])
        features = function(
            _C.features_on(self._F, manager, mine, key), _C.features_on(other._F, manager, others, key)
        )
        return self._make(features, key, self._manager)

    # ---- shares of a batch, for lockstep.parallel -------------------------------------------------------------------

    @classmethod
    def _of_entries(
        cls, features: torch.Tensor, coordinates: torch.Tensor, tensor_stride: StrideType, entries: int
    ) -> "SparseTensor":
        """A tensor with a manager of its own, which knows how many batch entries there are: the last may be empty."""
        manager = CoordinateManager(D=coordinates.size(1) - 1)
        manager._manager.batch_size = entries
        return cls._make(features, manager.insert_and_map(coordinates, tensor_stride)[0], manager)

    def _scatter(self, devices: Sequence[torch.device]) -> list[SparseTensor]:
        """Runs of batch entries, each counted from 0; rows keep their order."""
        rows, shares = self._batchwise_row_indices, []
        for number, device in enumerate(devices):
            run = share(len(rows), number, len(devices))
            mine = torch.cat([rows[entry] for entry in run] or [torch.zeros(0, dtype=torch.long)]).sort()[0]
            coordinates = self.C[mine].cpu()
            coordinates[:, 0] -= run.start
            shares.append(self._of_entries(self._F[mine].to(device), coordinates, self.tensor_stride, len(run)))
        return shares

    def _gather(self, parts: Sequence[SparseTensor], device: torch.device) -> SparseTensor:
        """The batch that shares were cut from."""
        coordinates, entries = [], 0
        for part in parts:
            assert part.tensor_stride == self.tensor_stride, (
                f"tensor strides are {part.tensor_stride} and {self.tensor_stride}, expected the same"
            )
            coordinates.append(part.C.cpu() + torch.tensor([entries] + [0] * self._D, dtype=torch.int32))
            entries += len(part._batchwise_row_indices)
        features = torch.cat([part._F.to(device) for part in parts])
        return self._of_entries(features, torch.cat(coordinates), self.tensor_stride, entries)

    # ---- as tensors of torch ----------------------------------------------------------------------------------------

    def sparse(
        self,
        min_coords: torch.Tensor | Sequence[int] | None = None,
        max_coords: torch.Tensor | Sequence[int] | None = None,
        contract_coords: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As a sparse COO tensor of torch, [batches, extents..., C].

        min_coords, max_coords (int32 [D], multiples of the tensor stride, the maximum included): where it begins, by
        default at the smallest coordinate, and ends. contract_coords: divide by the tensor stride.
        Returns it, its corner int32 [1, D] (contracted too), and the tensor stride int32 [D].
        """
        stride = torch.IntTensor(self.tensor_stride)
        coordinates = self.C.cpu()
        batch, points = coordinates[:, :1], coordinates[:, 1:]
        low = points.amin(0) if min_coords is None and len(points) else min_coords
        low = _axis_values(low, self._D, stride, "minimum")
        high = None if max_coords is None else _axis_values(max_coords, self._D, stride, "maximum")
        points = points - low
        if contract_coords:
            points, low = _divide(points, stride), _divide(low, stride)
            high = None if high is None else _divide(high, stride)
        high = points.amax(0) + low if high is None and len(points) else high
        assert high is not None, "max_coords is required of an empty tensor"
        extents = (high - low + 1).view(-1).tolist()
        size = torch.Size([len(self._batchwise_row_indices), *extents, self._F.size(1)])
        index = torch.cat((batch, points), 1).long().t().to(self._F.device)
        made = torch.sparse_coo_tensor(index, self._F, size)
        return made, low, stride

    def dense(
        self,
        shape: Sequence[int] | None = None,
        min_coordinate: torch.Tensor | Sequence[int] | int | None = None,
        contract_stride: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As a dense tensor [batches, C, extents...], zero where there is no point.

        shape (torch.Size): by default up to the largest coordinate; its channels are those of the features.
        min_coordinate (int32 [D], multiples of the tensor stride, or one number): where it begins, by default at the
        origin, and then no coordinate may be negative (ValueError). contract_stride: divide coordinates by the tensor
        stride.
        Returns it, the smallest coordinate int32 [1, D] (or min_coordinate), and the tensor stride int32 [D].
        """
        if shape is not None:
            assert isinstance(shape, (torch.Size, Sequence)) and len(shape) == self._D + 2, (
                f"shape is {shape}, expected {self._D + 2} values: batches, channels and {self._D} extents"
            )
            shape = [shape[0], self._F.size(1), *shape[2:]]
        stride = torch.IntTensor(self.tensor_stride)
        if len(self) == 0:
            assert shape is not None, "shape is required to densify an empty tensor"
            zeros = torch.zeros(shape, dtype=self.dtype, device=self.device)
            return zeros, torch.zeros(self._D, dtype=torch.int32), stride
        if min_coordinate is None:
            low, corner = self.C[:, 1:].amin(0, keepdim=True).cpu(), [0] * self._D
            if (low < 0).any():
                raise ValueError(f"Coordinate has a negative value: {low}. Please provide min_coordinate argument")
        else:
            low = _axis_values(min_coordinate, self._D, stride, "minimum")
            corner = low.view(-1).tolist()
        key = self.coordinate_map_key
        if not contract_stride and any(value != 1 for value in self.tensor_stride):
            key, _ = self._manager._manager.insert(self._manager.get_coordinates(key), [1] * self._D, "dense")
        features = _C.dense(self._F, self._manager._manager, key, shape, corner)[0]
        return features, low, stride

    # ---- points -----------------------------------------------------------------------------------------------------

    def slice(self, X: TensorField | SparseTensor) -> TensorField:
        """A tensor field of X's points, each with the features of its voxel in this tensor. The points of a sparse
        tensor at the same coordinates are the rows that it was made from, before equal coordinates became one."""
        from .MinkowskiTensorField import TensorField

        if isinstance(X, SparseTensor):
            return self._at_points_of(X, self._F)
        assert isinstance(X, TensorField), f"X is a {type(X).__name__}, expected a TensorField or a SparseTensor"
        return X._like(_C.take_rows(self._F, X._rows_in(self)))

    def cat_slice(self, X: TensorField | SparseTensor) -> TensorField:
        """As slice(X), with X's own features behind."""
        if isinstance(X, SparseTensor):
            return self._at_points_of(X, torch.cat((self._F, X.F), dim=1))
        return X._like(torch.cat((self.slice(X).F, X.F), dim=1))

    def _at_points_of(self, X: SparseTensor, features: torch.Tensor) -> TensorField:
        """Features at this tensor's coordinates, for each row of coordinates that X was made from."""
        from .MinkowskiTensorField import TensorField

        self._is_same_key(X)
        if "inverse_mapping" not in X.__dict__:
            raise ValueError("X was not made from coordinates, so it has no points, expected the network's input, say")
        points = self.C[X.inverse_mapping.to(self.device)]
        features = _C.take_rows(features, X.inverse_mapping)
        return TensorField(features, points, self.tensor_stride, coordinate_manager=self._manager)

    def interpolate(self, X: TensorField) -> TensorField:
        """A tensor field of X's points, with features interpolated linearly from this tensor's around them. Of a field
        that was splat() onto this tensor, its weights are used again."""
        from .MinkowskiTensorField import TensorField

        assert isinstance(X, TensorField), f"X is a {type(X).__name__}, expected a TensorField"
        known = X._splat.get(self.coordinate_map_key)
        rows, points, weights = known or self._manager.interpolation_map_weight(self.coordinate_map_key, X.C)
        return X._like(_C.spmm(points, rows, weights.to(self._F.dtype), len(X), self._F))

    def features_at_coordinates(self, query_coordinates: torch.Tensor) -> torch.Tensor:
        """Features [M, C] at points [M, 1 + D], interpolated linearly; corners that this tensor lacks count as zero."""
        points = query_coordinates.to(torch.float64)
        rows, numbers, weights = self._manager.interpolation_map_weight(self.coordinate_map_key, points)
        return _C.spmm(numbers, rows, weights.to(self._F.dtype), len(points), self._F)


def _warn_of_points_off_the_grid(coordinates: torch.Tensor, stride: list[int]) -> None:
    steps = torch.tensor(stride, dtype=torch.int32).clamp(min=1)
    if (steps > 1).any() and (coordinates[:, 1:] % steps.to(coordinates.device)).any():
        warnings.warn(f"some coordinates are no multiples of the tensor stride {stride}; layers will pass over them")


def _divide(values: torch.Tensor, stride: torch.Tensor) -> torch.Tensor:
    return torch.div(values, stride.clamp(min=1), rounding_mode="floor").int()


def _axis_values(values: Any, dimension: int, stride: torch.Tensor, name: str) -> torch.Tensor:
    """int32 [1, D], checked to be multiples of the tensor stride."""
    row = torch.as_tensor(0 if values is None else values, dtype=torch.int32).cpu()
    if row.ndim == 0:
        row = row.repeat(dimension)
    row = row.view(1, -1)
    assert row.numel() == dimension, f"the {name} is {values}, expected {dimension} values"
    assert (row % stride.clamp(min=1) == 0).all(), (
        f"The {name} coordinates must be divisible by the tensor stride, got {row.tolist()} and {stride.tolist()}"
    )
    return row


def _check_input(input: SparseTensor, dimension: int) -> None:
    """What a layer of so many axes wants of its input."""
    assert isinstance(input, SparseTensor), f"input is a {type(input).__name__}, expected a SparseTensor"
    assert input.D == dimension, f"input has {input.D} axes, expected {dimension}"


def _get_coordinate_map_key(
    input: Tensor,
    coordinates: torch.Tensor | CoordinateMapKey | SparseTensor | None = None,
    tensor_stride: StrideType = 1,
    expand_coordinates: bool = False,
) -> CoordinateMapKey:
    """Where a layer is to put its outputs: at the coordinates given (a tensor, a key, or another sparse tensor), or, an
    empty key, where the layer says."""
    if coordinates is None or expand_coordinates:
        return CoordinateMapKey(input.coordinate_key.get_coordinate_size())
    if isinstance(coordinates, CoordinateMapKey):
        return coordinates
    if isinstance(coordinates, SparseTensor):
        own = input.coordinate_manager._manager
        return own.share_map(coordinates.coordinate_manager._manager, coordinates.coordinate_map_key)
    assert isinstance(coordinates, torch.Tensor), (
        f"coordinates is a {type(coordinates).__name__}, expected a torch.Tensor, a CoordinateMapKey or a SparseTensor"
    )
    assert coordinates.ndim == 2, f"coordinates are {tuple(coordinates.shape)}, expected [M, 1 + D]"
    stride = convert_to_int_list(tensor_stride, coordinates.size(1) - 1)
    return input.coordinate_manager.insert_and_map(coordinates.int(), stride)[0]
