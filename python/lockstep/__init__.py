# SPDX-License-Identifier: Apache-2.0
"""Lockstep for Python: what makes data-parallel training give the same model on one device or many.

- ExactSampler, Order: each example once an epoch, on any number of processes, resumed anywhere
- canonical_hook, Replicas: gradients that don't depend on the number of processes
- SyncBatchNorm: batch norm over all replicas, on CPUs too
- metrics: figures over all processes, never means of means
- divergence_watch: an error as soon as processes hold different weights
- parallel: several replicas in one process, in threads

The sparse engine has the names of MinkowskiEngine: `import MinkowskiEngine as ME`.
"""
import torch as _torch  # its libraries must be there before the extension's

from . import _built

if not _torch.__version__.startswith(_built.torch_version):
    raise ImportError(f"lockstep was built for torch {_built.torch_version}, but torch {_torch.__version__} is installed: "
                      "build it again with 'pip install --no-deps ./python' in Lockstep's folder")

from . import _C
from ._C import Error
from .canonical import Replicas, canonical_hook
from .divergence import DivergenceError, DivergenceWatch, divergence_watch
from .sampler import ExactSampler, Order
from .sync_batch_norm import SyncBatchNorm
from . import metrics, parallel  # isort: skip

__version__ = "0.1.0"

pin_numerics = _C.pin_numerics
"""Pins what is set once a process and changes bits: MKL's reproducibility mode, without which a product of matrices
depends on where in memory they start; on CUDA cuDNN's choice of algorithms. Call it when the program starts."""

has_cuda: bool = _C.has_cuda
"""Whether the engine was compiled with CUDA."""

__all__ = [
    "DivergenceError",
    "DivergenceWatch",
    "Error",
    "ExactSampler",
    "Order",
    "Replicas",
    "SyncBatchNorm",
    "canonical_hook",
    "divergence_watch",
    "has_cuda",
    "metrics",
    "parallel",
    "pin_numerics",
    "__version__",
]
