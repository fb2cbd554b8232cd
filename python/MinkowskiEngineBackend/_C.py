# SPDX-License-Identifier: Apache-2.0
"""The names that programs import from MinkowskiEngine's extension. They are MinkowskiEngine's own here; the functions
of its kernels, ConvolutionForwardCPU and the like, have no counterpart: call the layers, or the autograd functions."""
import warnings as _warnings

from MinkowskiEngine import (
    BroadcastMode,
    ConvolutionMode,
    CoordinateMapKey,
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    PoolingMode,
    RegionType,
    cuda_version,
    cudart_version,
    get_gpu_memory_info,
    is_cuda_available,
)

__all__ = [
    "BroadcastMode",
    "ConvolutionMode",
    "CoordinateMapKey",
    "CoordinateMapType",
    "GPUMemoryAllocatorType",
    "MinkowskiAlgorithm",
    "PoolingMode",
    "RegionType",
    "cuda_version",
    "cudart_version",
    "get_gpu_memory_info",
    "is_cuda_available",
]

_warnings.warn("the names of `MinkowskiEngineBackend._C` are in `MinkowskiEngine` now", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"MinkowskiEngineBackend._C has no {name!r}, expected one of {', '.join(__all__)}: call MinkowskiEngine's layers or "
        "autograd functions instead of its kernels"
    )
