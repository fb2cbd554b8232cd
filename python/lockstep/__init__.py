# SPDX-License-Identifier: Apache-2.0
"""Lockstep for Python: what makes data-parallel training give the same model on one device or many.

The sparse engine has the names of MinkowskiEngine: `import MinkowskiEngine as ME`.
"""
import torch as _torch  # noqa: F401  its libraries must be there before the extension's

from . import _C
from ._C import Error
from .sync_batch_norm import SyncBatchNorm
from . import parallel

__version__ = "0.1.0"

has_cuda: bool = _C.has_cuda
"""Whether the engine was compiled with CUDA."""

__all__ = ["Error", "SyncBatchNorm", "has_cuda", "parallel", "__version__"]
