# SPDX-License-Identifier: Apache-2.0
"""Backward passes: each rank's loss, how it was scaled, and each parameter's gradient before anything was reduced.

Gradients are kept as projections, a linear function of them: that of the ranks' mean is the mean of theirs.
"""
from __future__ import annotations

import time
from typing import Any, Dict, List, Tuple

import torch

from . import hashing, modules, optimizers, state, where

ready = 0.0  # when the last gradient of this backward pass was made
local: Dict[int, torch.Tensor] = {}  # id of a parameter -> the sample of its own gradient
hooked = 0  # parameters for which hooks of the program's call collectives
_raw: Dict[int, Tuple[int, torch.Tensor]] = {}  # id of a parameter -> collectives until then, its gradient before such hooks
_REDUCED = {"MseLossBackward0", "NllLossBackward0", "NllLoss2DBackward0", "BinaryCrossEntropyBackward0",
            "BinaryCrossEntropyWithLogitsBackward0", "L1LossBackward0", "SmoothL1LossBackward0",
            "HuberLossBackward0", "KlDivBackward0"}  # fmt: skip


@state.on_reset
def _reset() -> None:
    local.clear()
    _raw.clear()


def _scale(node: Any) -> Tuple[float, str]:
    """By what a loss was multiplied since it was reduced, and how it was reduced: 'mean', 'sum' or '' where that is not
    to be seen."""
    factor = 1.0
    for _ in range(12):
        if node is None:
            return factor, ""
        kind = type(node).__name__
        if kind == "MeanBackward0":
            return factor, "mean"
        if kind == "SumBackward0":
            return factor, "sum"
        if kind in _REDUCED:
            reduction = int(getattr(node, "_saved_reduction", -1))
            return factor, {1: "mean", 2: "sum"}.get(reduction, "")
        if kind in ("DivBackward0", "MulBackward0"):
            try:
                other = node._saved_other
            except (AttributeError, RuntimeError):
                other = None
            if isinstance(other, torch.Tensor) and other.numel() == 1 and not other.requires_grad:
                other = float(other)
            if not isinstance(other, (int, float)):
                return factor, ""
            factor = factor / other if kind == "DivBackward0" else factor * other
        elif kind not in ("AddBackward0", "ToCopyBackward0", "ViewBackward0", "SqueezeBackward0", "NegBackward0"):
            return factor, ""
        node = node.next_functions[0][0] if node.next_functions else None
    return factor, ""


def _weight(node: Any) -> Any:
    """Over how many targets a cross entropy is the mean, without those that it ignores; none where that is not to be seen."""
    for _ in range(12):
        if node is None or type(node).__name__ in ("NllLossBackward0", "NllLoss2DBackward0"):
            break
        node = node.next_functions[0][0] if node.next_functions else None
    weight = getattr(node, "_saved_total_weight", None)
    return float(weight) if isinstance(weight, torch.Tensor) and weight.numel() == 1 else None


def _count(node: Any) -> int:
    """The nodes of a graph, at most 20,000."""
    seen, open_ = {node}, [node]
    while open_ and len(seen) < 20_000:
        for after, _ in open_.pop().next_functions:
            if after is not None and after not in seen:
                seen.add(after)
                open_.append(after)
    return len(seen)


@state.guarded
def _begin(losses: List[Any]) -> List[Any]:
    number, state.backwards = state.backwards, state.backwards + 1
    modules.learned()
    due = state.is_due(state.steps)
    loss = losses[0] if losses and isinstance(losses[0], torch.Tensor) else None
    value, factor, reduced, weight = None, 1.0, "", None
    if loss is not None and loss.numel() == 1 and (loss.device.type == "cpu" or due):
        value = float(loss.detach())
        if due:
            factor, reduced = _scale(loss.grad_fn)
            weight = _weight(loss.grad_fn)
    place = where.frames(2)
    nodes = _count(loss.grad_fn) if loss is not None and loss.grad_fn is not None and state.steps in (2, 9) else 0
    state.log.add("backward", n=number, s=state.steps, loss=value, factor=factor, reduced=reduced, weight=weight, where=place,
                  nodes=nodes)  # fmt: skip
    if state.world > 1:
        state.log.add("enter", kind="backward", where=place, s=state.steps)
        state.log.flush()
    if not due:
        return []
    return [handle for parameter in optimizers.parameters() for handle in _observe(parameter)]


def _observe(parameter: torch.Tensor) -> List[Any]:
    """Hooks of ours: after those of the program's, and, where it has some, one before them as well."""
    handles = [parameter.register_post_accumulate_grad_hook(_keep)]
    own = getattr(parameter, "_backward_hooks", None)
    if own or len(getattr(parameter, "_post_accumulate_grad_hooks", None) or ()) > 1:
        handles.append(parameter.register_hook(lambda gradient: _keep_raw(parameter, gradient)))
        hooks: Any = parameter._backward_hooks
        others = [(key, hook) for key, hook in hooks.items() if key != handles[-1].id]
        for key, _ in others:  # torch calls them in the order in which the dictionary got them
            del hooks[key]
        hooks.update(others)
    return handles


@state.guarded
def _keep_raw(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    if gradient.layout != torch.strided or not modules._is_plain(gradient):
        return
    with torch.no_grad():
        sample = hashing.sample(gradient).clone()
        if parameter.grad is not None:  # of earlier backward passes of this step
            sample += hashing.sample(parameter.grad)
    _raw[id(parameter)] = (state.calls, sample)


def _keep(parameter: torch.Tensor) -> None:
    if not state.busy():
        _keep_guarded(parameter)


@state.guarded
def _keep_guarded(parameter: torch.Tensor) -> None:
    global ready, hooked
    ready = time.perf_counter()
    gradient = parameter.grad
    calls, raw = _raw.pop(id(parameter), (state.calls, None))
    if raw is not None and state.calls > calls:
        hooked += 1
        local[id(parameter)] = raw
        return
    if gradient is not None and gradient.layout == torch.strided and modules._is_plain(gradient):
        with torch.no_grad():
            local[id(parameter)] = hashing.sample(gradient).clone()


@state.guarded
def _end(handles: List[Any], done: bool) -> None:
    for handle in handles:
        handle.remove()
    if state.world > 1 and done:
        exposed = round(time.perf_counter() - ready, 6) if handles and ready else None
        state.log.add("leave", kind="backward", s=state.steps, exposed=exposed)
        state.log.flush()  # whoever reads the log must not take a rank that computes for one that waits


def install() -> None:
    def wrap(original: Any) -> Any:
        def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
            if state.busy() or torch.compiler.is_compiling():
                return original(tensors, *arguments, **options)
            losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            handles = _begin(losses)
            begun, done = state.begin_span(), False
            try:
                result = original(losses if not isinstance(tensors, torch.Tensor) else tensors, *arguments, **options)
                done = True
                return result
            finally:
                state.end_span("backward", begun)
                _end(handles or [], done)

        return backward

    state.wraps_function(torch.autograd, "backward", wrap)
