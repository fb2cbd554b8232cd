# SPDX-License-Identifier: Apache-2.0
"""The tensor field: features at real points, as they were measured."""
from __future__ import annotations

import torch

from lockstep._C import CoordinateMapKey

from ._enums import GPUMemoryAllocatorType, MinkowskiAlgorithm, SparseTensorQuantizationMode
from ._quantize import quantize_features, splat
from .MinkowskiCommon import StrideType, convert_to_int_list
from .MinkowskiCoordinateManager import CoordinateManager, round_down
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import Tensor, check_arguments, manager_for


class TensorField(Tensor):
    """Features [N, C] at N points (batch index, then D real numbers), not all in different voxels.

    sparse() makes a sparse tensor of it, quantization_mode says how; SparseTensor.slice() goes back to the points.
    Arguments and errors are those of SparseTensor; coordinates are float32 or float64 [N, 1 + D].
    """

    _key_name = "coordinate_field_map_key"
    coordinate_field_map_key: CoordinateMapKey

    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        # optional coordinate related arguments
        tensor_stride: StrideType = 1,
        coordinate_field_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE,
        # optional manager related arguments
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        requires_grad: bool | None = None,
        device: torch.device | str | int | None = None,
    ) -> None:
        key = coordinate_field_map_key
        check_arguments(
            features, coordinates, key, "coordinate_field_map_key", coordinate_manager, quantization_mode
        )
        assert quantization_mode != SparseTensorQuantizationMode.NO_QUANTIZATION, "invalid quantization mode"
        self.quantization_mode = quantization_mode
        if device is not None:
            features = features.to(device)
            coordinates = None if coordinates is None else coordinates.to(device)
        self._manager = manager_for(coordinate_manager, coordinates, allocator_type, minkowski_algorithm)
        self._D = self._manager.D
        if coordinates is not None:
            assert features.is_cuda == coordinates.is_cuda, "Features and coordinates must have the same backend."
            if not coordinates.is_floating_point():
                coordinates = coordinates.float()
            key = self._manager.insert_field(coordinates, convert_to_int_list(tensor_stride, self._D), "")
        else:
            assert key is not None and key.is_key_set(), "The coordinate field map key must be valid."
            points = len(self._manager.get_coordinate_field(key))
            assert len(features) == points, (
                f"features have {len(features)} rows, expected {points}, as many as '{key}' has points"
            )
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F = features
        self._C = coordinates
        self.coordinate_field_map_key = key
        self._batch_rows = None
        self._inverse_mapping: dict[CoordinateMapKey, torch.Tensor] = {}
        self._splat: dict[CoordinateMapKey, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def _like(self, features: torch.Tensor) -> "TensorField":
        made = self.__class__.__new__(self.__class__)
        made.__dict__.update(self.__dict__)
        made._F = features
        made._inverse_mapping, made._splat = dict(self._inverse_mapping), dict(self._splat)
        return made

    @property
    def coordinate_key(self) -> CoordinateMapKey:
        return self.coordinate_field_map_key

    @property
    def coordinates(self) -> torch.Tensor:
        """Points [N, 1 + D], batch index first, real numbers."""
        return super().coordinates

    @property
    def C(self) -> torch.Tensor:
        """The same as `coordinates`."""
        return self.coordinates

    def _load_coordinates(self) -> torch.Tensor:
        return self._manager.get_coordinate_field(self.coordinate_field_map_key)

    def _load_batch_rows(self) -> list[torch.Tensor]:
        return self._manager.origin_field_map(self.coordinate_field_map_key)[1]

    def sparse(
        self,
        tensor_stride: StrideType = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        quantization_mode: SparseTensorQuantizationMode | None = None,
    ) -> SparseTensor:
        """The sparse tensor of the voxels that the points fall into, or of those of a key.

        Features of points in one voxel become one as quantization_mode says (the field's, by default); with a key,
        voxels without points are zero.
        """
        mode = self.quantization_mode if quantization_mode is None else quantization_mode
        assert mode != SparseTensorQuantizationMode.SPLAT_LINEAR_INTERPOLATION, (
            "Please use .splat() for splat quantization."
        )
        if coordinate_map_key is not None:
            return self._sparse_at(coordinate_map_key, mode)
        stride = convert_to_int_list(tensor_stride, self._D)
        key, (unique, inverse) = self._manager.field_to_sparse_insert_and_map(self.coordinate_field_map_key, stride)
        self._inverse_mapping[key] = inverse
        return SparseTensor._make(quantize_features(self._F, unique, inverse, mode), key, self._manager)

    def _sparse_at(self, key: CoordinateMapKey, mode: SparseTensorQuantizationMode) -> SparseTensor:
        rows, points = self._manager.field_to_sparse_map(self.coordinate_field_map_key, key)
        # The voxels that have points, then put where they belong.
        used, inverse = torch.unique(rows, return_inverse=True)
        first = torch.full((len(used),), len(rows)).scatter_reduce(0, inverse, torch.arange(len(rows)), "amin")
        features = quantize_features(self._F[points.to(self.device)], first, inverse, mode)
        if len(first) == len(rows):
            features = features[first.to(self.device)]
        made = torch.zeros(self._manager.size(key), self._F.size(1), dtype=self.dtype, device=self.device)
        made = made.index_copy(0, used.to(self.device), features)
        return SparseTensor._make(made, key, self._manager)

    def splat(self) -> SparseTensor:
        """The sparse tensor of all corners of the grid around the points, with features spread over them linearly.
        SparseTensor.interpolate() is the way back."""
        features, key, kept = splat(self._F, self.C, self._manager, 1)
        self._splat[key] = kept
        return SparseTensor._make(features, key, self._manager)

    def inverse_mapping(self, sparse_tensor_map_key: CoordinateMapKey) -> torch.Tensor:
        """The row of a coordinate map that each point falls into, int64 [N]; -1 where there is none."""
        if sparse_tensor_map_key not in self._inverse_mapping:
            rows = self._manager._find_voxels(self.coordinate_field_map_key, sparse_tensor_map_key)
            self._inverse_mapping[sparse_tensor_map_key] = rows
        return self._inverse_mapping[sparse_tensor_map_key]

    def _rows_in(self, x: SparseTensor) -> torch.Tensor:
        if x.coordinate_manager is self._manager:
            return self.inverse_mapping(x.coordinate_map_key)
        return x.coordinate_manager._manager.find(x.coordinate_map_key, round_down(self.C, x.tensor_stride))
