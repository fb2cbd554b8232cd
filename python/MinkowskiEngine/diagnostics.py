# SPDX-License-Identifier: Apache-2.0
"""What to put into a bug report."""
from __future__ import annotations

import platform
import sys

import torch

import lockstep


def print_diagnostics() -> None:
    """Prints versions of the system, Python, torch, CUDA and this package."""
    from . import __version__

    print("==========System==========")
    print(platform.platform())
    print(sys.version)
    print("==========Pytorch==========")
    print(torch.__version__)
    print(f"torch.cuda.is_available(): {torch.cuda.is_available()}")
    print("==========Lockstep==========")
    print(f"lockstep.__version__: {lockstep.__version__}")
    print(f"MinkowskiEngine.__version__: {__version__} (compatible)")
    print(f"lockstep was compiled with CUDA: {lockstep.has_cuda}")
    print(f"CUDA version of torch: {torch.version.cuda}")
