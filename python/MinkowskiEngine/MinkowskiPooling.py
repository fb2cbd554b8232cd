# SPDX-License-Identifier: Apache-2.0
"""Pooling: over a kernel's neighbourhood, over whole batch entries, and back."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import PoolingMode
from ._old_names import takes_old_names, warn
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase, StrideType
from .MinkowskiConvolution import empty_key, output_key
from .MinkowskiCoordinateManager import CoordinateManager, engine_manager
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _check_input, _get_coordinate_map_key
from .MinkowskiTensorField import TensorField

_KINDS = {"SUM": _C.Pooling.sum, "AVG": _C.Pooling.average, "MAX": _C.Pooling.max}


def _kind(mode: PoolingMode) -> _C.Pooling:
    return _KINDS[mode.name.split("_")[1]]


def _pool(
    transposed: bool,
    features: torch.Tensor,
    mode: PoolingMode,
    generator: KernelGenerator,
    in_key: CoordinateMapKey,
    out_key: CoordinateMapKey | None,
    manager: CoordinateManager | None,
) -> torch.Tensor:
    out_key = empty_key(out_key, in_key)
    geometry = generator.pooling_geometry(transposed)
    return _C.pool(features, _kind(mode), engine_manager(manager), in_key, out_key, geometry)


class MinkowskiLocalPoolingFunction(EngineFunction):
    """Features [N, C] -> [M, C]. An empty out_coordinate_map_key is set."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        kernel_generator: KernelGenerator,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        return _pool(
            False,
            input_features,
            pooling_mode,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
        )


class MinkowskiLocalPoolingTransposeFunction(EngineFunction):
    """As MinkowskiLocalPoolingFunction, to finer coordinates."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        kernel_generator: KernelGenerator,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        return _pool(
            True,
            input_features,
            pooling_mode,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
        )


class MinkowskiPoolingBase(MinkowskiModuleBase):
    """What local poolings share: the kernel's shape, and the mode."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        is_transpose: bool = False,
        pooling_mode: PoolingMode = PoolingMode.LOCAL_AVG_POOLING,
        dimension: int | None = -1,
    ) -> None:
        super().__init__()
        assert dimension is not None and dimension > 0, (
            f"Invalid dimension. Please provide a valid dimension argument. dimension={dimension}"
        )
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size, stride=stride, dilation=dilation, dimension=dimension
            )
        self.is_transpose = is_transpose
        self.kernel_generator = kernel_generator
        self.pooling_mode = pooling_mode
        self.dimension = dimension

    @property
    def pooling(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiLocalPoolingTransposeFunction() if self.is_transpose else MinkowskiLocalPoolingFunction()

    @takes_old_names()
    def forward(
        self,
        input: SparseTensor,
        coordinates: torch.IntTensor | CoordinateMapKey | SparseTensor | None = None,
    ) -> SparseTensor:
        """[N, C] -> [M, C], at `coordinates` where they are given."""
        _check_input(input, self.dimension)
        geometry = self.kernel_generator.pooling_geometry(self.is_transpose)
        out_key = output_key(input, coordinates, self.is_transpose, geometry)
        features = self.pooling.apply(
            input.F,
            self.pooling_mode,
            self.kernel_generator,
            input.coordinate_map_key,
            out_key,
            input._manager,
        )
        return SparseTensor._make(features, out_key, input._manager)

    def __repr__(self) -> str:
        generator = self.kernel_generator
        return (
            f"{self.__class__.__name__}(kernel_size={generator.kernel_size}, stride={generator.kernel_stride}, "
            f"dilation={generator.kernel_dilation})"
        )


class MinkowskiAvgPooling(MinkowskiPoolingBase):
    """The mean of the inputs that are there in a kernel's neighbourhood."""

    def __init__(
        self,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size, stride, dilation, kernel_generator, False, PoolingMode.LOCAL_AVG_POOLING, dimension
        )


class MinkowskiSumPooling(MinkowskiPoolingBase):
    """The sum of the inputs that are there in a kernel's neighbourhood."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size, stride, dilation, kernel_generator, False, PoolingMode.LOCAL_SUM_POOLING, dimension
        )


class MinkowskiMaxPooling(MinkowskiPoolingBase):
    """The largest value of each channel in a kernel's neighbourhood."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            kernel_size, stride, dilation, kernel_generator, False, PoolingMode.LOCAL_MAX_POOLING, dimension
        )


class MinkowskiPoolingTranspose(MinkowskiPoolingBase):
    """Unpooling: each finer output takes the mean of the inputs that reach it."""

    @takes_old_names()
    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        dimension: int | None = None,
    ) -> None:
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size,
                stride=stride,
                dilation=dilation,
                expand_coordinates=expand_coordinates,
                dimension=dimension,
            )
        super().__init__(kernel_size, stride, dilation, kernel_generator, True, dimension=dimension)


class MinkowskiGlobalPoolingFunction(EngineFunction):
    """Features [N, C] -> [B, C], one row for each batch index that occurs. An empty out_coordinate_map_key is set."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        out_key = empty_key(out_coordinate_map_key, in_coordinate_map_key)
        manager, key = engine_manager(coordinate_manager), in_coordinate_map_key
        # Maps and fields have names of their own kinds: the same key can stand for one of each.
        if manager.contains(key) and manager.size(key) == len(input_features):
            return _C.global_pool(input_features, _kind(pooling_mode), manager, key, out_key)
        return _pool_field(input_features, pooling_mode, key, out_key, coordinate_manager)


def _pool_field(
    features: torch.Tensor,
    mode: PoolingMode,
    key: CoordinateMapKey,
    out_key: CoordinateMapKey,
    manager: CoordinateManager | None,
) -> torch.Tensor:
    """A field's points are no coordinate map, but each batch index of them is an origin."""
    assert manager is not None
    origin = manager._field_origin(key)
    if not out_key.is_key_set():
        out_key.set_key(origin.get_key())
    batch = manager.get_coordinate_field(key)[:, :1].int().cpu()
    rows = manager._manager.find(origin, torch.nn.functional.pad(batch, (0, manager.D)).contiguous())
    return _C.pool_pairs(features, _kind(mode), torch.arange(len(rows)), rows, manager.size(origin))


def takes_average(init: Callable[..., None]) -> Callable[..., None]:
    """Version 0.4 had `average=True` or False (a sum) before `mode`, which chose an algorithm."""

    @functools.wraps(init)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        if "average" in kwargs or (args and isinstance(args[0], bool)):
            average = kwargs.pop("average") if "average" in kwargs else args[0]
            name = f"GLOBAL_{'AVG' if average else 'SUM'}_POOLING_PYTORCH_INDEX"
            warn(f"`average` of MinkowskiGlobalPooling() is called `mode` now: PoolingMode.{name}")
            args, kwargs["mode"] = (), PoolingMode[name]
        init(self, *args, **kwargs)

    return call


class MinkowskiGlobalPooling(MinkowskiModuleBase):
    """All points of a batch entry to one at the origin; `mode` says how. Fields are taken too."""

    @takes_average
    @takes_old_names("dimension")
    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX) -> None:
        super().__init__()
        assert isinstance(mode, PoolingMode), f"Mode must be an instance of PoolingMode. mode={mode}"
        self.pooling_mode = mode

    @property
    def pooling(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiGlobalPoolingFunction()

    def forward(
        self,
        input: SparseTensor | TensorField,
        coordinates: torch.IntTensor | CoordinateMapKey | SparseTensor | None = None,
    ) -> SparseTensor:
        """[N, C] -> [B, C], batch indices that occur in ascending order."""
        assert isinstance(input, (SparseTensor, TensorField)), (
            f"input is a {type(input).__name__}, expected a SparseTensor or a TensorField"
        )
        out_key = _get_coordinate_map_key(input, coordinates, tensor_stride=0)
        pool = _pool_field if isinstance(input, TensorField) else MinkowskiGlobalPoolingFunction.apply
        features = pool(input.F, self.pooling_mode, input.coordinate_key, out_key, input._manager)
        return SparseTensor._make(features, out_key, input._manager)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(mode={self.pooling_mode})"


class MinkowskiGlobalSumPooling(MinkowskiGlobalPooling):
    """The sum of each batch entry's points."""

    @takes_old_names("dimension")
    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_SUM_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)


class MinkowskiGlobalAvgPooling(MinkowskiGlobalPooling):
    """The mean of each batch entry's points."""

    @takes_old_names("dimension")
    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)


class MinkowskiGlobalMaxPooling(MinkowskiGlobalPooling):
    """The largest value of each channel among each batch entry's points."""

    @takes_old_names("dimension")
    def __init__(self, mode: PoolingMode = PoolingMode.GLOBAL_MAX_POOLING_PYTORCH_INDEX) -> None:
        super().__init__(mode)

    def forward(
        self,
        input: SparseTensor | TensorField,
        coordinates: torch.IntTensor | CoordinateMapKey | SparseTensor | None = None,
    ) -> SparseTensor:
        return super().forward(input, coordinates)


class MinkowskiDirectMaxPoolingFunction(EngineFunction):
    """Maxima of rows by a list of pairs: output out_map[i] takes row in_map[i]."""

    @staticmethod
    def forward(
        ctx: Any,
        in_map: torch.Tensor,
        out_map: torch.Tensor,
        in_feat: torch.Tensor,
        out_nrows: int,
        is_sorted: bool = False,
    ) -> torch.Tensor:
        return _C.pool_pairs(in_feat, _C.Pooling.max, in_map.long().cpu(), out_map.long().cpu(), out_nrows)
