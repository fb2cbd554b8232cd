# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors and networks over them, with the names of MinkowskiEngine 0.5.4, on Lockstep's engine.

    import MinkowskiEngine as ME

    x = ME.SparseTensor(features, coordinates)               # [N, C], int32 [N, 1 + D], batch index first
    net = ME.MinkowskiConvolution(3, 32, kernel_size=3, dimension=3)
    y = net(x)                                               # y.F, y.C
"""
from typing import Any as _Any

import torch as _torch

import lockstep as _lockstep
from lockstep._C import CoordinateMapKey

from . import MinkowskiFunctional, MinkowskiOps, _old_names
from ._enums import (
    BroadcastMode,
    ConvolutionMode,
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    PoolingMode,
    RegionType,
    SparseTensorOperationMode,
    SparseTensorQuantizationMode,
)
from .diagnostics import print_diagnostics
from .MinkowskiBroadcast import (
    MinkowskiBroadcast,
    MinkowskiBroadcastAddition,
    MinkowskiBroadcastConcatenation,
    MinkowskiBroadcastFunction,
    MinkowskiBroadcastMultiplication,
)
from .MinkowskiChannelwiseConvolution import MinkowskiChannelwiseConvolution
from .MinkowskiCommon import MinkowskiModuleBase, convert_to_int_list, convert_to_int_tensor
from .MinkowskiConvolution import (
    MinkowskiConvolution,
    MinkowskiConvolutionFunction,
    MinkowskiConvolutionTranspose,
    MinkowskiConvolutionTransposeFunction,
    MinkowskiGenerativeConvolutionTranspose,
)
from .MinkowskiCoordinateManager import (
    CoordinateManager,
    CoordsManager,
    set_gpu_allocator,
    set_memory_manager_backend,
)
from .MinkowskiInterpolation import MinkowskiInterpolation, MinkowskiInterpolationFunction
from .MinkowskiKernelGenerator import KernelGenerator, KernelRegion, convert_region_type, get_kernel_volume
from .MinkowskiNetwork import MinkowskiNetwork
from .MinkowskiNonlinearity import (
    MinkowskiAdaptiveLogSoftmaxWithLoss,
    MinkowskiAlphaDropout,
    MinkowskiCELU,
    MinkowskiDropout,
    MinkowskiELU,
    MinkowskiGELU,
    MinkowskiHardshrink,
    MinkowskiHardsigmoid,
    MinkowskiHardswish,
    MinkowskiHardtanh,
    MinkowskiLeakyReLU,
    MinkowskiLogSigmoid,
    MinkowskiLogSoftmax,
    MinkowskiPReLU,
    MinkowskiReLU,
    MinkowskiReLU6,
    MinkowskiRReLU,
    MinkowskiSELU,
    MinkowskiSigmoid,
    MinkowskiSiLU,
    MinkowskiSinusoidal,
    MinkowskiSoftmax,
    MinkowskiSoftmin,
    MinkowskiSoftplus,
    MinkowskiSoftshrink,
    MinkowskiSoftsign,
    MinkowskiTanh,
    MinkowskiTanhshrink,
    MinkowskiThreshold,
)
from .MinkowskiNormalization import (
    MinkowskiBatchNorm,
    MinkowskiInstanceNorm,
    MinkowskiInstanceNormFunction,
    MinkowskiStableInstanceNorm,
    MinkowskiSyncBatchNorm,
)
from .MinkowskiOps import (
    MinkowskiLinear,
    MinkowskiStackCat,
    MinkowskiStackMean,
    MinkowskiStackSum,
    MinkowskiStackVar,
    MinkowskiToDenseTensor,
    MinkowskiToFeature,
    MinkowskiToSparseTensor,
    cat,
    dense_coordinates,
    mean,
    to_sparse,
    to_sparse_all,
    var,
)
from .MinkowskiOps import _sum as sum  # noqa: A004  the name that users call
from .MinkowskiPooling import (
    MinkowskiAvgPooling,
    MinkowskiDirectMaxPoolingFunction,
    MinkowskiGlobalAvgPooling,
    MinkowskiGlobalMaxPooling,
    MinkowskiGlobalPooling,
    MinkowskiGlobalPoolingFunction,
    MinkowskiGlobalSumPooling,
    MinkowskiLocalPoolingFunction,
    MinkowskiLocalPoolingTransposeFunction,
    MinkowskiMaxPooling,
    MinkowskiPoolingTranspose,
    MinkowskiSumPooling,
)
from .MinkowskiPruning import MinkowskiPruning, MinkowskiPruningFunction
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import (
    clear_global_coordinate_manager,
    global_coordinate_manager,
    set_global_coordinate_manager,
    set_sparse_tensor_operation_mode,
    sparse_tensor_operation_mode,
)
from .MinkowskiTensorField import TensorField
from .MinkowskiUnion import MinkowskiUnion, MinkowskiUnionFunction
from .sparse_matrix_functions import MinkowskiSPMMAverageFunction, MinkowskiSPMMFunction, spmm
from . import utils  # isort: skip
from . import modules  # isort: skip

__version__ = "0.5.4"
"""The release of MinkowskiEngine whose names and behaviour these are; lockstep.__version__ is this package's own."""


def __getattr__(name: str) -> _Any:
    """Today's class for a name of an earlier version."""
    if name not in _old_names.CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _old_names.warn(f"`{name}` is called `{_old_names.CLASSES[name]}` now")
    return globals()[_old_names.CLASSES[name]]


def is_cuda_available() -> bool:
    """Whether the engine was compiled with CUDA."""
    return _lockstep.has_cuda


def cuda_version() -> int:
    """The version of CUDA that torch was compiled with, 13000 for 13.0; -1 where it has none."""
    if _torch.version.cuda is None:
        return -1
    major, minor = _torch.version.cuda.split(".")[:2]
    return 1000 * int(major) + 10 * int(minor)


def cudart_version() -> int:
    """As cuda_version()."""
    return cuda_version()


def get_gpu_memory_info() -> tuple[int, int]:
    """(free, total) bytes of the current GPU. Raises RuntimeError where there is none."""
    if not _torch.cuda.is_available():
        raise RuntimeError("there is no GPU, expected one")
    return _torch.cuda.mem_get_info()
