# SPDX-License-Identifier: Apache-2.0
"""The shapes of kernels."""
from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from lockstep import _C

from ._enums import RegionType
from .MinkowskiCommon import StrideType, convert_to_int_list


def _check_sizes(kernel_size: Any) -> list[int]:
    sizes = [int(size) for size in kernel_size]
    assert all(size > 0 for size in sizes), f"kernel_size must be positive, got {sizes}"
    return sizes


def get_kernel_volume(
    region_type: RegionType, kernel_size: Any, region_offset: torch.Tensor | None, axis_types: Any, dimension: int
) -> int:
    """The number of offsets of a kernel."""
    if region_type == RegionType.CUSTOM:
        assert region_offset is not None and region_offset.numel() > 0, (
            "region_offset must be non empty when region_type is CUSTOM"
        )
        assert region_offset.size(1) == dimension, (
            f"region_offset must have the same dimension as the network, got {region_offset.size(1)}, "
            f"expected {dimension}"
        )
        return int(region_offset.size(0))
    sizes = _check_sizes(kernel_size)
    if region_type == RegionType.HYPER_CUBE:
        assert region_offset is None, "Region offset must be None when region_type is given"
        assert axis_types is None, "Axis types must be None when region_type is given"
        return prod(sizes)
    if region_type == RegionType.HYPER_CROSS:
        assert all(size % 2 == 1 for size in sizes), (
            f"kernel_size must be odd for region_type HYPER_CROSS, got {sizes}"
        )
        return sum(size - 1 for size in sizes) + 1
    raise NotImplementedError(f"region_type is {region_type}")


def convert_region_type(
    region_type: RegionType,
    tensor_stride: Sequence | np.ndarray | torch.IntTensor,
    kernel_size: Sequence | np.ndarray | torch.IntTensor,
    up_stride: Sequence | np.ndarray | torch.IntTensor,
    dilation: Sequence | np.ndarray | torch.IntTensor,
    region_offset: Sequence | np.ndarray | torch.Tensor | None,
    axis_types: Any,
    dimension: int,
    center: bool = True,
) -> tuple[RegionType, torch.Tensor, int]:
    """(region type, offsets as int32, which are empty unless given, the number of offsets)."""
    offsets = region_offset
    if offsets is not None and not isinstance(offsets, torch.Tensor):
        offsets = torch.as_tensor(offsets, dtype=torch.int32)
    volume = get_kernel_volume(region_type, kernel_size, offsets, axis_types, dimension)
    return region_type, torch.IntTensor() if offsets is None else offsets, volume


class KernelGenerator:
    """The shape of a layer's kernel, and how its outputs lie to its inputs.

    kernel_size, stride, dilation: one number, or one for each axis. region_offsets: for RegionType.CUSTOM the offsets,
    [K, D] integers; they are multiplied by dilation and by the tensor stride, as those of other regions are.
    expand_coordinates: outputs at every coordinate that an input reaches.
    """

    __slots__ = (
        "cache",
        "kernel_size",
        "kernel_stride",
        "kernel_dilation",
        "region_type",
        "region_offsets",
        "axis_types",
        "dimension",
        "kernel_volume",
        "requires_strided_coordinates",
        "expand_coordinates",
        "_geometries",
    )

    def __init__(
        self,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        is_transpose: bool = False,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offsets: torch.Tensor | None = None,
        expand_coordinates: bool = False,
        axis_types: Any = None,
        dimension: int | None = -1,
    ) -> None:
        assert dimension is not None and dimension > 0, f"dimension is {dimension}, expected a positive number of axes"
        assert isinstance(region_type, RegionType), f"region_type is {region_type!r}, expected a RegionType"
        if region_offsets is not None and not isinstance(region_offsets, torch.Tensor):
            region_offsets = torch.as_tensor(region_offsets, dtype=torch.int32)
        self.cache: dict[tuple[int, ...], tuple[RegionType, torch.Tensor, int]] = {}
        self.kernel_size = convert_to_int_list(kernel_size, dimension)
        self.kernel_stride = convert_to_int_list(stride, dimension)
        self.kernel_dilation = convert_to_int_list(dilation, dimension)
        for name, steps in (("stride", self.kernel_stride), ("dilation", self.kernel_dilation)):
            assert all(step > 0 for step in steps), f"{name} is {steps}, expected it above 0"
        self.region_type = region_type
        self.region_offsets = torch.IntTensor() if region_offsets is None else region_offsets
        self.axis_types = axis_types
        self.dimension = dimension
        self.kernel_volume = get_kernel_volume(region_type, self.kernel_size, region_offsets, axis_types, dimension)
        # The name says the opposite; code that reads it expects this.
        self.requires_strided_coordinates = all(value == 1 for value in self.kernel_stride)
        self.expand_coordinates = expand_coordinates
        self._geometries: dict[tuple, _C.LayerGeometry] = {}

    def get_kernel(self, tensor_stride: Any, is_transpose: bool) -> tuple[RegionType, torch.Tensor, int]:
        """As convert_region_type, for inputs of this tensor stride."""
        assert len(tensor_stride) == self.dimension
        key = tuple(int(value) for value in tensor_stride)
        if key not in self.cache:
            offsets = self.region_offsets if self.region_type == RegionType.CUSTOM else None
            up_stride = self.kernel_stride if is_transpose else [1] * self.dimension
            self.cache[key] = convert_region_type(
                self.region_type,
                key,
                self.kernel_size,
                up_stride,
                self.kernel_dilation,
                offsets,
                self.axis_types,
                self.dimension,
            )
        return self.cache[key]

    def geometry(self, transposed: bool = False, expand_coordinates: bool = False) -> _C.LayerGeometry:
        """The same for the engine. Layers may share a generator and expand or not."""
        kind = (transposed, expand_coordinates or self.expand_coordinates)
        if kind not in self._geometries:
            region = engine_region(self.region_type, self.kernel_size, self.kernel_dilation, self.region_offsets)
            self._geometries[kind] = _C.LayerGeometry(region, self.kernel_stride, *kind)
        return self._geometries[kind]

    def pooling_geometry(self, transposed: bool = False) -> _C.LayerGeometry:
        """The same for a pooling. One whose size is its stride pools blocks, each input in exactly one: the inputs whose
        coordinate rounds down to the output's, for odd sizes too."""
        whole_blocks = self.region_type == RegionType.HYPER_CUBE and self.kernel_size == self.kernel_stride
        if not whole_blocks or all(size == 1 or size % 2 == 0 for size in self.kernel_size):
            return self.geometry(transposed)
        if ("blocks", transposed) not in self._geometries:
            axes = [torch.arange(size) for size in self.kernel_size]
            block = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).view(-1, self.dimension)
            region = _C.KernelRegion.custom(block, [1] * self.dimension)
            self._geometries["blocks", transposed] = _C.LayerGeometry(
                region, self.kernel_stride, transposed, self.expand_coordinates
            )
        return self._geometries["blocks", transposed]

    def __getstate__(self) -> dict:
        caches: dict[str, dict] = {"cache": {}, "_geometries": {}}
        return {name: caches.get(name, getattr(self, name)) for name in self.__slots__}

    def __setstate__(self, state: dict) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return (
            f"KernelGenerator(kernel_size={self.kernel_size}, stride={self.kernel_stride}, "
            f"dilation={self.kernel_dilation}, region_type={self.region_type}, volume={self.kernel_volume})"
        )


def engine_region(
    region_type: RegionType, kernel_size: list[int], dilation: list[int], offsets: torch.Tensor | None
) -> _C.KernelRegion:
    """The engine's region. Lists have one value for each axis."""
    if region_type == RegionType.CUSTOM:
        assert offsets is not None and offsets.ndim == 2 and offsets.size(1) == len(dilation), (
            f"offsets of a custom region are {None if offsets is None else tuple(offsets.shape)}, "
            f"expected [K, {len(dilation)}]"
        )
        return _C.KernelRegion.custom(offsets, dilation)
    if region_type == RegionType.HYPER_CROSS:
        return _C.KernelRegion.hypercross(kernel_size, dilation)
    return _C.KernelRegion.hypercube(kernel_size, dilation)


class KernelRegion(
    namedtuple("KernelRegion", ("kernel_size", "kernel_stride", "kernel_dilation", "region_type", "offset", "D"))
):
    """The parts of a kernel's shape as a tuple, each with one value for each axis."""

    __slots__ = ()

    def __new__(
        cls,
        kernel_size: StrideType,
        kernel_stride: StrideType,
        kernel_dilation: StrideType,
        region_type: RegionType,
        offset: torch.Tensor | None,
        dimension: int,
    ) -> KernelRegion:
        return super().__new__(
            cls,
            convert_to_int_list(kernel_size, dimension),
            convert_to_int_list(kernel_stride, dimension),
            convert_to_int_list(kernel_dilation, dimension),
            region_type,
            offset,
            dimension,
        )

    def __str__(self) -> str:
        return f"kernel_size:{self.kernel_size}, kernel_stride:{self.kernel_stride}, region_type:{self.region_type}"
