# SPDX-License-Identifier: Apache-2.0
"""Gradient checks of the package's functions."""
from __future__ import annotations

from typing import Callable

import torch
from torch.types import _TensorOrTensors


def gradcheck(
    func: Callable[..., _TensorOrTensors],
    inputs: _TensorOrTensors,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    check_sparse_nnz: bool = False,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
) -> bool:
    """torch.autograd.gradcheck for a function, or for an autograd function such as MinkowskiConvolutionFunction, given as
    a class or an object. Inputs that are no tensors are passed on."""
    apply = getattr(func, "apply", func)
    return torch.autograd.gradcheck(
        apply,
        inputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
    )
