# SPDX-License-Identifier: Apache-2.0
"""The coordinate manager: coordinate maps and fields by key, and the maps between them as tensors of row numbers."""
from __future__ import annotations

import uuid
import warnings
from collections.abc import Sequence
from typing import Any, Dict, List, Tuple

import numpy as np
import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import CoordinateMapType, GPUMemoryAllocatorType, MinkowskiAlgorithm, RegionType
from ._old_coords import OldMethods
from ._old_names import takes_old_names, warn
from .MinkowskiCommon import StrideType, convert_to_int_list, whole
from .MinkowskiKernelGenerator import engine_region

_allocator_type = GPUMemoryAllocatorType.PYTORCH
_coordinate_map_type = CoordinateMapType.CPU
_minkowski_algorithm = MinkowskiAlgorithm.DEFAULT


def set_coordinate_map_type(coordinate_map_type: CoordinateMapType) -> None:
    """The type that managers made from now on say they have. Maps lie on the CPU, with copies where they are used."""
    global _coordinate_map_type
    _coordinate_map_type = coordinate_map_type


def set_gpu_allocator(backend: GPUMemoryAllocatorType) -> None:
    """Is remembered; memory of a GPU comes from torch's allocator in any case."""
    assert isinstance(backend, GPUMemoryAllocatorType), (
        f"Input must be an instance of GPUMemoryAllocatorType not {backend}"
    )
    global _allocator_type
    _allocator_type = backend


def set_memory_manager_backend(backend: GPUMemoryAllocatorType) -> None:
    """The old name of set_gpu_allocator."""
    warnings.warn("`set_memory_manager_backend` has been deprecated. Use `set_gpu_allocator` instead.")
    set_gpu_allocator(backend)


def engine_manager(manager: CoordinateManager | None) -> _C.CoordinateManager:
    """The engine's part of a manager that functions take as an optional argument and need."""
    assert manager is not None, "coordinate_manager is None, expected a CoordinateManager"
    return manager._manager


class CoordinateManager(OldMethods):
    """The coordinate maps of the tensors of one network's pass, and the maps between them, each made once.

    D: the number of spatial axes, 1 to 8. The other arguments are remembered; the engine needs no such choices, and the
    process's number of threads stays as it is.
    """

    def __init__(
        self,
        D: int = 0,
        num_threads: int = -1,
        coordinate_map_type: CoordinateMapType | None = None,
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
    ) -> None:
        if D < 1:
            raise ValueError(f"Invalid rank D > 0, D = {D}.")
        self.D = D
        self.num_threads = num_threads
        self.coordinate_map_type = _coordinate_map_type if coordinate_map_type is None else coordinate_map_type
        self.allocator_type = _allocator_type if allocator_type is None else allocator_type
        self.minkowski_algorithm = _minkowski_algorithm if minkowski_algorithm is None else minkowski_algorithm
        self._manager = _C.CoordinateManager(D)
        # The key of a field -> coordinates, float [N, 1 + D]; (the key of a field, that of a map) -> (unique, inverse).
        self._fields: Dict[CoordinateMapKey, torch.Tensor] = {}
        self._voxels: Dict[Tuple[CoordinateMapKey, CoordinateMapKey], Tuple[torch.Tensor, torch.Tensor]] = {}

    # ---- coordinate maps ------------------------------------------------------------------------------------------

    def insert_and_map(
        self,
        coordinates: torch.Tensor,
        tensor_stride: StrideType = 1,
        string_id: str = "",
    ) -> Tuple[CoordinateMapKey, Tuple[torch.Tensor, torch.Tensor]]:
        """Adds coordinates int32 [N, 1 + D], of which the first of equal ones stays.

        Returns its key, and (unique, inverse), int64 [M] and [N]: coordinates[unique] are the map's, and
        coordinates[unique][inverse] those given.
        """
        return self._manager.insert(coordinates, convert_to_int_list(tensor_stride, self.D), string_id)

    @takes_old_names("force_creation")
    def stride(
        self,
        coordinate_map_key: CoordinateMapKey,
        stride: StrideType,
        string_id: str = "",
    ) -> CoordinateMapKey:
        """The map with coordinates rounded down to multiples of the tensor stride times `stride`."""
        return self._manager.stride(coordinate_map_key, convert_to_int_list(stride, self.D))

    def origin(self) -> CoordinateMapKey:
        """One coordinate, the origin, for each batch index."""
        return self._manager.origin()

    def size(self, coordinate_map_key: CoordinateMapKey) -> int:
        """The number of coordinates of a map, or of a field where no map has that key."""
        field = self._fields.get(coordinate_map_key)
        if field is None or self._manager.contains(coordinate_map_key):
            return self._manager.size(coordinate_map_key)
        return len(field)

    def number_of_unique_batch_indices(self) -> int:
        return self._manager.size(self._manager.origin())

    def get_unique_coordinate_map_key(self, tensor_stride: int | list) -> CoordinateMapKey:
        """A key of this tensor stride that names nothing yet."""
        return CoordinateMapKey(convert_to_int_list(tensor_stride, self.D), uuid.uuid4().hex)

    def _get_coordinate_map_key(self, key_or_tensor_strides: CoordinateMapKey | StrideType) -> CoordinateMapKey:
        if isinstance(key_or_tensor_strides, CoordinateMapKey):
            return key_or_tensor_strides
        assert isinstance(key_or_tensor_strides, (Sequence, np.ndarray, torch.Tensor, int)), (
            f"The input must be either a CoordinateMapKey or a tensor stride, got {key_or_tensor_strides!r}"
        )
        wanted = convert_to_int_list(key_or_tensor_strides, self.D)
        keys = [key for key in self._manager.keys() if key.get_tensor_stride() == wanted]
        assert keys, f"there is no coordinate map of tensor stride {wanted}, expected one of {self._manager.keys()}"
        return keys[0]

    def get_coordinates(self, coords_key_or_tensor_strides: CoordinateMapKey | StrideType) -> torch.Tensor:
        """int32 [N, 1 + D] of a key, or of the first key with that tensor stride."""
        return self._manager.coordinates(self._get_coordinate_map_key(coords_key_or_tensor_strides)).clone()

    # ---- fields: points with real coordinates -----------------------------------------------------------------------

    def insert_field(
        self, coordinates: torch.Tensor, tensor_stride: Sequence, string_id: str = ""
    ) -> CoordinateMapKey:
        """Adds real points, float [N, 1 + D], and returns their key."""
        assert coordinates.ndim == 2 and coordinates.size(1) == self.D + 1, (
            f"coordinates are {tuple(coordinates.shape)}, expected [N, {self.D + 1}]"
        )
        stride, number = convert_to_int_list(tensor_stride, self.D), 0
        key = CoordinateMapKey(stride, string_id)
        while key in self._fields:
            number += 1
            key = CoordinateMapKey(stride, f"{string_id}-{number}")
        self._fields[key] = coordinates
        return key

    def _get_field(self, key: CoordinateMapKey) -> torch.Tensor:
        if key not in self._fields:
            raise ValueError(f"there is no coordinate field '{key}', expected one of {list(self._fields)}")
        return self._fields[key]

    def get_coordinate_field(self, coords_key_or_tensor_strides: CoordinateMapKey | StrideType) -> torch.Tensor:
        """The points of a field, float [N, 1 + D]."""
        if isinstance(coords_key_or_tensor_strides, CoordinateMapKey):
            return self._get_field(coords_key_or_tensor_strides)
        wanted = convert_to_int_list(coords_key_or_tensor_strides, self.D)
        keys = [key for key in self._fields if key.get_tensor_stride() == wanted]
        assert keys, f"there is no coordinate field of tensor stride {wanted}, expected one of {list(self._fields)}"
        return self._fields[keys[0]]

    def field_to_sparse_insert_and_map(
        self,
        field_map_key: CoordinateMapKey,
        sparse_tensor_stride: StrideType,
        sparse_tensor_string_id: str = "",
    ) -> Tuple[CoordinateMapKey, Tuple[torch.Tensor, torch.Tensor]]:
        """A map of the voxels that a field's points fall into: (key, (unique, inverse)), as of insert_and_map."""
        stride = convert_to_int_list(sparse_tensor_stride, self.D)
        voxels = round_down(self._get_field(field_map_key), stride)
        key, maps = self._manager.insert(voxels, stride, sparse_tensor_string_id)
        self._voxels[field_map_key, key] = maps
        return key, maps

    def exists_field_to_sparse(self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey) -> bool:
        """Whether the map was made from the field."""
        return (field_map_key, sparse_map_key) in self._voxels

    def field_to_sparse_keys(self, field_map_key: CoordinateMapKey) -> List[CoordinateMapKey]:
        """The maps that were made from a field."""
        return [voxels for field, voxels in self._voxels if field == field_map_key]

    def get_field_to_sparse_map(
        self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """(unique, inverse) as of field_to_sparse_insert_and_map, of a map that it made."""
        if (field_map_key, sparse_map_key) not in self._voxels:
            raise ValueError(
                f"'{sparse_map_key}' was not made from the field '{field_map_key}', "
                f"expected one of {self.field_to_sparse_keys(field_map_key)}"
            )
        return self._voxels[field_map_key, sparse_map_key]

    def field_to_sparse_map(
        self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        """(rows of the map, rows of the field), int64 each: which voxel of any map a point falls into, for the points
        that fall into one."""
        rows = self._find_voxels(field_map_key, sparse_map_key)
        points = torch.nonzero(rows >= 0).squeeze(1)
        return rows[points], points

    def _find_voxels(self, field_map_key: CoordinateMapKey, sparse_map_key: CoordinateMapKey) -> torch.Tensor:
        """The voxel of each point, -1 where the map has none."""
        made = self._voxels.get((field_map_key, sparse_map_key))
        if made is not None:
            return made[1]
        voxels = round_down(self._get_field(field_map_key), sparse_map_key.get_tensor_stride())
        return self._manager.find(sparse_map_key, voxels)

    def origin_field(self) -> CoordinateMapKey:
        """One coordinate, the origin, for each batch index of the fields."""
        assert self._fields, "the manager has no coordinate fields, expected some"
        most = max((self._field_origin(key) for key in self._fields), key=self._manager.size)
        return most

    def _field_origin(self, key: CoordinateMapKey) -> CoordinateMapKey:
        """Where a field has no map yet, its voxels are made: they have its batch indices."""
        keys = self.field_to_sparse_keys(key)
        return self._manager.origin(
            keys[0] if keys else self.field_to_sparse_insert_and_map(key, key.get_tensor_stride())[0]
        )

    # ---- maps as tensors --------------------------------------------------------------------------------------------

    def get_kernel_map(
        self,
        in_key: CoordinateMapKey,
        out_key: CoordinateMapKey,
        stride: StrideType = 1,
        kernel_size: StrideType = 3,
        dilation: StrideType = 1,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offset: torch.Tensor | None = None,
        is_transpose: bool = False,
        is_pool: bool = False,
    ) -> dict:
        """The old name of kernel_map."""
        warnings.warn("`get_kernel_map` will be deprecated. Please use `kernel_map` instead.")
        return self.kernel_map(
            in_key, out_key, stride, kernel_size, dilation, region_type, region_offset, is_transpose, is_pool
        )

    def kernel_map(
        self,
        in_key: CoordinateMapKey,
        out_key: CoordinateMapKey,
        stride: StrideType = 1,
        kernel_size: StrideType = 3,
        dilation: StrideType = 1,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offset: torch.Tensor | None = None,
        is_transpose: bool = False,
        is_pool: bool = False,
    ) -> dict:
        """Which rows meet at each offset of a kernel: {number of the offset: int32 [2, pairs]}, the inputs' rows, then
        the outputs'. Offsets without pairs are left out. `stride` follows from the keys."""
        sizes = convert_to_int_list(kernel_size, self.D)
        assert all(size > 0 for size in sizes) or region_type == RegionType.CUSTOM, f"Invalid kernel size: {sizes}"
        region_type = RegionType(int(region_type))  # code passes numbers too
        if all(size == 1 for size in sizes) and region_type != RegionType.CUSTOM:
            region_type = RegionType.HYPER_CUBE
        region = engine_region(region_type, sizes, convert_to_int_list(dilation, self.D), region_offset)
        in_key, out_key = self._get_coordinate_map_key(in_key), self._get_coordinate_map_key(out_key)
        return self._manager.kernel_map(in_key, out_key, region, is_transpose)

    def origin_map(self, key: CoordinateMapKey) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        """(batch indices int64 [B], the rows of each, int64 [n_b]), from index 0 to the largest; parts may be empty."""
        rows = _C.rows_of_batches(self._manager, key)
        return torch.arange(len(rows)), rows

    def origin_field_map(self, key: CoordinateMapKey) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        """As origin_map, of a field."""
        batch = self._get_field(key)[:, 0].long()
        entries = max(int(batch.max()) + 1 if len(batch) else 0, self._manager.batch_size)
        return torch.arange(entries), [torch.nonzero(batch == index).squeeze(1) for index in range(entries)]

    def stride_map(self, in_key: CoordinateMapKey, stride_key: CoordinateMapKey) -> Tuple[torch.Tensor, torch.Tensor]:
        """(rows of in_key, rows of stride_key), int64 each: which coarse coordinate each fine one is rounded down to."""
        return self._manager.stride_map(in_key, stride_key)

    def union_map(self, in_keys: list, out_key: CoordinateMapKey) -> List[torch.Tensor]:
        """The union of maps, whose key is put into out_key, an empty key: for each of in_keys int64 [2, n], rows of
        it and where they lie in the union."""
        united = self._manager.unite(in_keys)
        if not out_key.is_key_set():
            out_key.set_key(united.get_key())
        assert out_key == united, f"out_key is '{out_key}', expected an empty key or '{united}'"
        return [torch.stack(self._manager.row_map(key, out_key)) for key in in_keys]

    def interpolation_map_weight(
        self, key: CoordinateMapKey, samples: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of real points [M, 1 + D]: (rows of the map, numbers of the points, weights), one entry for each corner of the
        grid around a point that the map has; weights are linear, in the samples' type if that is a floating one."""
        rows, points, weights = _C.interpolation_map(self._manager, key, samples.detach().cpu())
        device = samples.device
        dtype = samples.dtype if samples.is_floating_point() else weights.dtype
        return rows.to(device), points.to(device), weights.to(device, dtype)

    # ---- copies ----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict) -> CoordinateManager:
        """A manager of its own; coordinates never change, so both share them."""
        other = self.__class__.__new__(self.__class__)
        memo[id(self)] = other
        other.__dict__.update(self.__dict__)
        other._manager = self._manager.copy()
        other._fields, other._voxels = dict(self._fields), dict(self._voxels)
        return other

    def __repr__(self) -> str:
        lines = [f"\t{key.get_tensor_stride()}{key.get_key()[1] and ':' + key.get_key()[1]}:\t"
                 f"CoordinateMapCPU:{self._manager.size(key)}x{self.D + 1}\n" for key in self._manager.keys()]
        lines += [f"\t{key.get_tensor_stride()}:\tCoordinateFieldMapCPU:{len(field)}x{self.D + 1}\n"
                  for key, field in self._fields.items()]
        return (
            f"CoordinateMapManager{self.coordinate_map_type.name}(\n{''.join(lines)}"
            f"\talgorithm={self.minkowski_algorithm}\n  )\n"
        )


class CoordsManager(CoordinateManager):
    """The name that CoordinateManager had before version 0.5: (num_threads, memory_manager_backend, D)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warn("`CoordsManager` is called `CoordinateManager` now")
        super().__init__(D=kwargs.get("D", args[2] if len(args) > 2 else 0))


def round_down(points: torch.Tensor, stride: List[int]) -> torch.Tensor:
    """Real points [N, 1 + D] to multiples of the stride, int32."""
    steps = torch.tensor([1, *stride], dtype=torch.float64)
    return whole(torch.floor(points.detach().cpu().double() / steps) * steps)
