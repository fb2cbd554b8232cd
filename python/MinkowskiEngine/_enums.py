# SPDX-License-Identifier: Apache-2.0
"""The enumerations of the package. Members count as their integers: int(RegionType.CUSTOM) == 2."""
from enum import Enum, unique


class _Numbered(Enum):
    """An enumeration whose members can stand for their integers; str() is "Type.NAME"."""

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


@unique
class BroadcastMode(_Numbered):
    ELEMENTWISE_ADDITON = 0
    ELEMENTWISE_MULTIPLICATION = 1


@unique
class ConvolutionMode(_Numbered):
    """Which algorithm a convolution takes. The engine has one for each device, so it changes nothing."""

    DEFAULT = 0
    DIRECT_GEMM = 1
    COPY_GEMM = 2


@unique
class CoordinateMapType(_Numbered):
    CPU = 0
    CUDA = 1


@unique
class GPUMemoryAllocatorType(_Numbered):
    """Who allocates on a GPU. It is torch's allocator always."""

    PYTORCH = 0
    CUDA = 1


@unique
class MinkowskiAlgorithm(_Numbered):
    """Speed or memory first. The engine needs no such choice: it changes nothing."""

    DEFAULT = 0
    MEMORY_EFFICIENT = 1
    SPEED_OPTIMIZED = 2


@unique
class PoolingMode(_Numbered):
    """Which pooling. The variants of a global pooling are the same computation here."""

    LOCAL_SUM_POOLING = 0
    LOCAL_AVG_POOLING = 1
    LOCAL_MAX_POOLING = 2
    GLOBAL_SUM_POOLING_DEFAULT = 3
    GLOBAL_AVG_POOLING_DEFAULT = 4
    GLOBAL_MAX_POOLING_DEFAULT = 5
    GLOBAL_SUM_POOLING_KERNEL = 6
    GLOBAL_AVG_POOLING_KERNEL = 7
    GLOBAL_MAX_POOLING_KERNEL = 8
    GLOBAL_SUM_POOLING_PYTORCH_INDEX = 9
    GLOBAL_AVG_POOLING_PYTORCH_INDEX = 10
    GLOBAL_MAX_POOLING_PYTORCH_INDEX = 11


@unique
class RegionType(_Numbered):
    HYPER_CUBE = 0
    HYPER_CROSS = 1
    CUSTOM = 2


class SparseTensorOperationMode(Enum):
    """Whether tensors made from coordinates get a coordinate manager each, or share the process's global one until
    clear_global_coordinate_manager()."""

    SEPARATE_COORDINATE_MANAGER = 0
    SHARE_COORDINATE_MANAGER = 1


class SparseTensorQuantizationMode(Enum):
    """What becomes of features whose coordinates are equal: the first row's stay (RANDOM_SUBSAMPLE), their mean, sum or
    maximum is taken, equal coordinates are an error (NO_QUANTIZATION), or features of real coordinates are spread
    linearly over the corners of the grid around them."""

    RANDOM_SUBSAMPLE = 0
    UNWEIGHTED_AVERAGE = 1
    UNWEIGHTED_SUM = 2
    NO_QUANTIZATION = 3
    MAX_POOL = 4
    SPLAT_LINEAR_INTERPOLATION = 5
