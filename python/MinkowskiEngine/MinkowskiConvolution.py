# SPDX-License-Identifier: Apache-2.0
"""Convolutions."""
from __future__ import annotations

from typing import Union

import torch
from torch.nn import Parameter

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import ConvolutionMode, RegionType
from .MinkowskiCommon import EngineFunction, MinkowskiModuleBase, _fill_uniform
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _check_input, _get_coordinate_map_key


def empty_key(key, in_key: CoordinateMapKey) -> CoordinateMapKey:
    """`key`, or where it is None an empty one for the engine to set."""
    return CoordinateMapKey(in_key.get_coordinate_size()) if key is None else key


def _convolve(transposed, features, kernel, generator, in_key, out_key, manager):
    out_key = empty_key(out_key, in_key)
    geometry = generator.geometry(transposed)
    return _C.convolution(features, kernel, None, manager._manager, in_key, out_key, geometry)


class MinkowskiConvolutionFunction(EngineFunction):
    """Features [N, Cin] and kernel [K, Cin, Cout] -> [M, Cout]. An empty out_coordinate_map_key is set."""

    @staticmethod
    def forward(
        ctx,
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey = None,
        coordinate_manager: CoordinateManager = None,
    ):
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
        ctx,
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey = None,
        coordinate_manager: CoordinateManager = None,
    ):
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
    [1, Cout] or None. With a kernel_generator the other arguments of the kernel's shape are ignored."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        is_transpose=False,
        expand_coordinates=False,
        convolution_mode=ConvolutionMode.DEFAULT,
        dimension=-1,
    ):
        super().__init__()
        assert dimension is not None and dimension > 0, (
            f"Invalid dimension. Please provide a valid dimension argument. dimension={dimension}"
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
        volume = kernel_generator.kernel_volume
        self.use_mm = volume == 1 and all(value == 1 for value in kernel_generator.kernel_stride)
        shape = (in_channels, out_channels) if self.use_mm else (volume, in_channels, out_channels)
        self.kernel = Parameter(torch.empty(shape))
        self.bias = Parameter(torch.empty(1, out_channels)) if bias else None

    @property
    def conv(self):
        """The function of this layer."""
        return MinkowskiConvolutionTransposeFunction() if self.is_transpose else MinkowskiConvolutionFunction()

    def forward(
        self,
        input: SparseTensor,
        coordinates: Union[torch.Tensor, CoordinateMapKey, SparseTensor] = None,
    ):
        """[N, Cin] -> [M, Cout], at `coordinates` where they are given."""
        _check_input(input, self.dimension)
        geometry = self.kernel_generator.geometry(self.is_transpose, self.expand_coordinates)
        out_key = self._out_key(input, coordinates, geometry)
        features = _C.convolution(
            input.F,
            self.kernel,
            self.bias,
            input._manager._manager,
            input.coordinate_map_key,
            out_key,
            geometry,
        )
        return SparseTensor._make(features, out_key, input._manager)

    def _out_key(self, input, coordinates, geometry):
        # A plain tensor of coordinates has stride 1, of a transposed layer the stride that its outputs have.
        stride = 1
        if self.is_transpose and isinstance(coordinates, torch.Tensor):
            stride = input._manager._manager.out_stride(input.coordinate_map_key, geometry)
        return _get_coordinate_map_key(input, coordinates, stride)

    def reset_parameters(self, is_transpose=False):
        """Uniform in 1 / sqrt(channels * offsets), channels being the inputs', or the outputs' of a transposed layer."""
        channels = self.out_channels if is_transpose else self.in_channels
        _fill_uniform(self.kernel, self.bias, channels * self.kernel_generator.kernel_volume)

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        # Kernels of one offset occur both as [Cin, Cout] and as [1, Cin, Cout].
        kernel = state_dict.get(prefix + "kernel")
        if kernel is not None and kernel.shape != self.kernel.shape and self.kernel_generator.kernel_volume == 1:
            if kernel.numel() == self.kernel.numel() and kernel.shape[-2:] == self.kernel.shape[-2:]:
                state_dict = {**state_dict, prefix + "kernel": kernel.reshape(self.kernel.shape)}
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def __repr__(self):
        generator = self.kernel_generator
        shape = (
            f"region_type={generator.region_type}, kernel_volume={generator.kernel_volume}"
            if generator.region_type == RegionType.CUSTOM
            else f"kernel_size={generator.kernel_size}"
        )
        return (
            f"{self.__class__.__name__}(in={self.in_channels}, out={self.out_channels}, {shape}, "
            f"stride={generator.kernel_stride}, dilation={generator.kernel_dilation})"
        )


class MinkowskiConvolution(MinkowskiConvolutionBase):
    """A convolution over the points that are there: y[u] = sum over offsets i of x[u + i] kernel[i] (+ bias).

    kernel_size, stride, dilation: one number or one an axis. Odd sizes are centred, even ones look forward. Outputs lie
    at the inputs' coordinates rounded down to multiples of the new tensor stride.
    """

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        expand_coordinates=False,
        convolution_mode=ConvolutionMode.DEFAULT,
        dimension=None,
    ):
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
        )
        self.reset_parameters()


class MinkowskiConvolutionTranspose(MinkowskiConvolutionBase):
    """A convolution to finer coordinates: those of the finer tensor that the input came from where the manager has
    them, or with expand_coordinates all that an input reaches."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        expand_coordinates=False,
        convolution_mode=ConvolutionMode.DEFAULT,
        dimension=None,
    ):
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
        )
        self.reset_parameters(True)


class MinkowskiGenerativeConvolutionTranspose(MinkowskiConvolutionBase):
    """A transposed convolution whose outputs lie at every coordinate that an input reaches."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        convolution_mode=ConvolutionMode.DEFAULT,
        dimension=None,
    ):
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
        )
        self.reset_parameters(True)
