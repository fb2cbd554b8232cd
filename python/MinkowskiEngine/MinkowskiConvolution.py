# SPDX-License-Identifier: Apache-2.0
"""Convolutions."""
from __future__ import annotations

from typing import Any

import torch
from torch.nn import Parameter

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import ConvolutionMode, RegionType
from ._old_names import takes_old_names
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase, StrideType, _fill_uniform
from .MinkowskiCoordinateManager import CoordinateManager, engine_manager
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _check_input, _get_coordinate_map_key


def empty_key(key: CoordinateMapKey | None, in_key: CoordinateMapKey) -> CoordinateMapKey:
    """`key`, or where it is None an empty one for the engine to set."""
    return CoordinateMapKey(in_key.get_coordinate_size()) if key is None else key


def output_key(
    input: SparseTensor,
    coordinates: torch.Tensor | CoordinateMapKey | SparseTensor | None,
    transposed: bool,
    geometry: _C.LayerGeometry,
) -> CoordinateMapKey:
    """Where a layer's user wants its outputs; an empty key where it doesn't matter. A plain tensor of coordinates has
    stride 1, of a transposed layer the stride that its outputs have."""
    stride: StrideType = 1
    if transposed and isinstance(coordinates, torch.Tensor):
        stride = input._manager._manager.out_stride(input.coordinate_map_key, geometry)
    return _get_coordinate_map_key(input, coordinates, stride)


def _convolve(
    transposed: bool,
    features: torch.Tensor,
    kernel: torch.Tensor,
    generator: KernelGenerator,
    in_key: CoordinateMapKey,
    out_key: CoordinateMapKey | None,
    manager: CoordinateManager | None,
) -> torch.Tensor:
    out_key = empty_key(out_key, in_key)
    geometry = generator.geometry(transposed)
    return _C.convolution(features, kernel, None, engine_manager(manager), in_key, out_key, geometry)


class MinkowskiConvolutionFunction(EngineFunction):
    """Features [N, Cin] and kernel [K, Cin, Cout] -> [M, Cout]. An empty out_coordinate_map_key is set."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        return _convolve(
            False,
            input_features,
            kernel_weights,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
        )


class MinkowskiConvolutionTransposeFunction(EngineFunction):
    """As MinkowskiConvolutionFunction, to finer coordinates."""

    @staticmethod
    def forward(
        ctx: Any,
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        return _convolve(
            True,
            input_features,
            kernel_weights,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
        )


class MinkowskiConvolutionBase(MinkowskiModuleBase):
    """What convolutions share: `kernel` [K, Cin, Cout], or [Cin, Cout] where K = 1 and the stride is 1; `bias`
    [1, Cout] or None. With a kernel_generator the other arguments of the kernel's shape are ignored. With groups, as of
    torch's convolutions, each run of Cout / groups outputs sees its run of inputs alone: Cin / groups in the shapes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        is_transpose: bool = False,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = -1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        assert dimension is not None and dimension > 0, (
            f"Invalid dimension. Please provide a valid dimension argument. dimension={dimension}"
        )
        assert in_channels > 0 and out_channels > 0, (
            f"channels are {in_channels} and {out_channels}, expected 1 or more of each"
        )
        assert groups > 0 and in_channels % groups == 0 and out_channels % groups == 0, (
            f"groups is {groups}, expected a number that divides {in_channels} and {out_channels} channels"
        )
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size,
                stride=stride,
                dilation=dilation,
                expand_coordinates=expand_coordinates,
                dimension=dimension,
            )
        self.is_transpose = is_transpose
        self.expand_coordinates = expand_coordinates
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_generator = kernel_generator
        self.dimension = dimension
        self.convolution_mode = convolution_mode
        self.groups = groups
        volume = kernel_generator.kernel_volume
        self.use_mm = volume == 1 and all(value == 1 for value in kernel_generator.kernel_stride)
        matrix = (in_channels // groups, out_channels)
        self.kernel_shape = matrix if self.use_mm else (volume, *matrix)
        self.kernel = Parameter(torch.empty(self.kernel_shape))
        self.bias = Parameter(torch.empty(1, out_channels)) if bias else None

    @property
    def conv(self) -> EngineFunction:
        """The function of this layer."""
        return MinkowskiConvolutionTransposeFunction() if self.is_transpose else MinkowskiConvolutionFunction()

    @takes_old_names()
    def forward(
        self,
        input: SparseTensor,
        coordinates: torch.Tensor | CoordinateMapKey | SparseTensor | None = None,
    ) -> SparseTensor:
        """[N, Cin] -> [M, Cout], at `coordinates` where they are given."""
        _check_input(input, self.dimension)
        geometry = self.kernel_generator.geometry(self.is_transpose, self.expand_coordinates)
        out_key = output_key(input, coordinates, self.is_transpose, geometry)
        features = _C.convolution(
            input.F,
            self.kernel,
            self.bias,
            input._manager._manager,
            input.coordinate_map_key,
            out_key,
            geometry,
            self.groups,
        )
        return SparseTensor._make(features, out_key, input._manager)

    def reset_parameters(self, is_transpose: bool = False) -> None:
        """Uniform in 1 / sqrt(channels * offsets), channels being the inputs', or the outputs' of a transposed layer."""
        channels = self.out_channels if is_transpose else self.in_channels
        _fill_uniform(self.kernel, self.bias, channels // self.groups * self.kernel_generator.kernel_volume)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        # Kernels of one offset occur both as [Cin, Cout] and as [1, Cin, Cout].
        kernel = state_dict.get(prefix + "kernel")
        if kernel is not None and kernel.shape != self.kernel.shape and self.kernel_generator.kernel_volume == 1:
            if kernel.numel() == self.kernel.numel() and kernel.shape[-2:] == self.kernel.shape[-2:]:
                state_dict = {**state_dict, prefix + "kernel": kernel.reshape(self.kernel.shape)}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def __repr__(self) -> str:
        generator = self.kernel_generator
        shape = (
            f"region_type={generator.region_type}, kernel_volume={generator.kernel_volume}"
            if generator.region_type == RegionType.CUSTOM
            else f"kernel_size={generator.kernel_size}"
        )
        return (
            f"{self.__class__.__name__}(in={self.in_channels}, out={self.out_channels}, {shape}, "
            f"stride={generator.kernel_stride}, dilation={generator.kernel_dilation}"
            f"{'' if self.groups == 1 else f', groups={self.groups}'})"
        )


class MinkowskiConvolution(MinkowskiConvolutionBase):
    """A convolution over the points that are there: y[u] = sum over offsets i of x[u + i] kernel[i] (+ bias).

    kernel_size, stride, dilation: one number or one an axis. Odd sizes are centred, even ones look forward. Outputs lie
    at the inputs' coordinates rounded down to multiples of the new tensor stride.
    """

    @takes_old_names()
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
        *,
        groups: int = 1,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            False,
            expand_coordinates,
            convolution_mode,
            dimension,
            groups,
        )
        self.reset_parameters()


class MinkowskiConvolutionTranspose(MinkowskiConvolutionBase):
    """A convolution to finer coordinates: those of the finer tensor that the input came from where the manager has
    them, or with expand_coordinates all that an input reaches."""

    @takes_old_names()
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
        *,
        groups: int = 1,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            True,
            expand_coordinates,
            convolution_mode,
            dimension,
            groups,
        )
        self.reset_parameters(True)


class MinkowskiGenerativeConvolutionTranspose(MinkowskiConvolutionBase):
    """A transposed convolution whose outputs lie at every coordinate that an input reaches."""

    @takes_old_names("generate_new_coords")
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
        *,
        groups: int = 1,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            True,
            True,
            convolution_mode,
            dimension,
            groups,
        )
        self.reset_parameters(True)
