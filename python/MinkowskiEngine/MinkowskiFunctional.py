# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional on features: activations give a tensor at the same points, losses the loss of the features."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .MinkowskiTensor import AnyTensor, Tensor


def _wrap_tensor(input: AnyTensor, F: torch.Tensor) -> AnyTensor:
    """Features `F` at the points of `input`, a sparse tensor or a field."""
    return input._like(F)


def threshold(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.threshold(input.F, *args, **kwargs))


def relu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.relu(input.F, *args, **kwargs))


def hardtanh(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.hardtanh(input.F, *args, **kwargs))


def hardswish(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.hardswish(input.F, *args, **kwargs))


def relu6(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.relu6(input.F, *args, **kwargs))


def elu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.elu(input.F, *args, **kwargs))


def selu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.selu(input.F, *args, **kwargs))


def celu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.celu(input.F, *args, **kwargs))


def leaky_relu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.leaky_relu(input.F, *args, **kwargs))


def prelu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.prelu(input.F, *args, **kwargs))


def rrelu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.rrelu(input.F, *args, **kwargs))


def glu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.glu(input.F, *args, **kwargs))


def gelu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.gelu(input.F, *args, **kwargs))


def logsigmoid(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.logsigmoid(input.F, *args, **kwargs))


def hardshrink(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.hardshrink(input.F, *args, **kwargs))


def tanhshrink(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.tanhshrink(input.F, *args, **kwargs))


def softsign(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.softsign(input.F, *args, **kwargs))


def softplus(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.softplus(input.F, *args, **kwargs))


def softmin(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.softmin(input.F, *args, **kwargs))


def softmax(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.softmax(input.F, *args, **kwargs))


def softshrink(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.softshrink(input.F, *args, **kwargs))


def gumbel_softmax(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.gumbel_softmax(input.F, *args, **kwargs))


def log_softmax(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.log_softmax(input.F, *args, **kwargs))


def tanh(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.tanh(input.F, *args, **kwargs))


def sigmoid(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.sigmoid(input.F, *args, **kwargs))


def hardsigmoid(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.hardsigmoid(input.F, *args, **kwargs))


def silu(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.silu(input.F, *args, **kwargs))


def batch_norm(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.batch_norm(input.F, *args, **kwargs))


def normalize(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.normalize(input.F, *args, **kwargs))


def linear(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.linear(input.F, *args, **kwargs))


def dropout(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.dropout(input.F, *args, **kwargs))


def alpha_dropout(input: AnyTensor, *args: Any, **kwargs: Any) -> AnyTensor:
    return _wrap_tensor(input, F.alpha_dropout(input.F, *args, **kwargs))


def binary_cross_entropy(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.binary_cross_entropy(input.F, target, *args, **kwargs)


def binary_cross_entropy_with_logits(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(input.F, target, *args, **kwargs)


def poisson_nll_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.poisson_nll_loss(input.F, target, *args, **kwargs)


def cross_entropy(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.cross_entropy(input.F, target, *args, **kwargs)


def hinge_embedding_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.hinge_embedding_loss(input.F, target, *args, **kwargs)


def kl_div(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.kl_div(input.F, target, *args, **kwargs)


def l1_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.l1_loss(input.F, target, *args, **kwargs)


def mse_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.mse_loss(input.F, target, *args, **kwargs)


def multilabel_margin_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.multilabel_margin_loss(input.F, target, *args, **kwargs)


def multilabel_soft_margin_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.multilabel_soft_margin_loss(input.F, target, *args, **kwargs)


def multi_margin_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.multi_margin_loss(input.F, target, *args, **kwargs)


def nll_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.nll_loss(input.F, target, *args, **kwargs)


def smooth_l1_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.smooth_l1_loss(input.F, target, *args, **kwargs)


def soft_margin_loss(input: Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return F.soft_margin_loss(input.F, target, *args, **kwargs)
