# SPDX-License-Identifier: Apache-2.0
"""The depthwise convolution."""
from __future__ import annotations


import torch
from torch.nn import Parameter

from lockstep import _C
from lockstep._C import CoordinateMapKey

from ._enums import RegionType
from ._old_names import takes_old_names
from .MinkowskiCommon import MinkowskiModuleBase, StrideType, _fill_uniform
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _check_input, _get_coordinate_map_key


class MinkowskiChannelwiseConvolution(MinkowskiModuleBase):
    """A convolution of each channel with a kernel of its own: `kernel` [K, C], `bias` [1, C] or None."""

    @takes_old_names()
    def __init__(
        self,
        in_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        assert dimension is not None and dimension > 0, f"dimension must be a positive integer, {dimension}"
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size, stride=stride, dilation=dilation, dimension=dimension
            )
        self.kernel_generator = kernel_generator
        self.in_channels = in_channels
        self.dimension = dimension
        self.kernel = Parameter(torch.empty(kernel_generator.kernel_volume, in_channels))
        self.bias = Parameter(torch.empty(1, in_channels)) if bias else None
        self.reset_parameters()

    def forward(
        self,
        input: SparseTensor,
        coords: torch.IntTensor | CoordinateMapKey | SparseTensor | None = None,
    ) -> SparseTensor:
        """[N, C] -> [M, C], at `coords` where they are given."""
        _check_input(input, self.dimension)
        assert self.in_channels == input.shape[1], (
            f"Channel size mismatch {self.in_channels} != {input.shape[1]}"
        )
        out_key = _get_coordinate_map_key(input, coords)
        features = _C.channelwise_convolution(
            input.F,
            self.kernel,
            self.bias,
            input._manager._manager,
            input.coordinate_map_key,
            out_key,
            self.kernel_generator.geometry(),
        )
        return SparseTensor._make(features, out_key, input._manager)

    def reset_parameters(self, is_transpose: bool = False) -> None:
        _fill_uniform(self.kernel, self.bias, self.in_channels * self.kernel_generator.kernel_volume)

    def __repr__(self) -> str:
        generator = self.kernel_generator
        shape = (
            f"kernel_volume={generator.kernel_volume}"
            if generator.region_type == RegionType.CUSTOM
            else f"kernel_size={generator.kernel_size}"
        )
        return (
            f"{self.__class__.__name__}(in={self.in_channels}, region_type={generator.region_type}, {shape}, "
            f"stride={generator.kernel_stride}, dilation={generator.kernel_dilation})"
        )
