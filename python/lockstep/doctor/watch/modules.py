# SPDX-License-Identifier: Apache-2.0
"""What models do: forward passes of the outermost modules, the weights and buffers that they begin with, the statistics
that batch norms see, the random numbers that a pass draws.

A root is an outermost module that has parameters. Its passes in training are numbered, and so compare between ranks.
"""
from __future__ import annotations

import threading
import weakref
import zlib
from typing import Any, Dict, List, Optional, Tuple

import torch

from . import hashing, state, trace, where, wrappers

_depth = threading.local()
_roots: "weakref.WeakKeyDictionary[Any, _Root]" = weakref.WeakKeyDictionary()
observing_norms = False
_norm_names: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
names: Dict[int, Tuple[Any, str]] = {}  # id of a parameter -> it, weakly, and its name


class _Root:
    def __init__(self, number: int) -> None:
        self.number, self.passes, self.others, self.known = number, 0, 0, False
        self.sends = False  # buffers, before each pass
        self.open = False  # its last pass was one in evaluation mode with gradients, and no backward pass came since
        self.trains_quietly = False  # it learns in evaluation mode, as with frozen statistics
        self.phase = (-1, -1)  # the backward passes and loops that there were when it was last seen without gradients


@state.on_reset
def _reset() -> None:
    _depth.value = 0


def name_of(parameter: Any) -> str:
    kept = names.get(id(parameter))
    return kept[1] if kept is not None and kept[0]() is parameter else ""


def _plain(name: str) -> str:
    return name.removeprefix("module.").replace("_orig_mod.", "")


def random_state() -> int:
    total = zlib.crc32(torch.default_generator.get_state().numpy().tobytes())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        total = zlib.crc32(torch.cuda.get_rng_state().numpy().tobytes(), total)
    return total


def _describe(root: _Root, module: Any) -> None:
    """Once a root: what is in it."""
    root.known, root.sends = True, any(True for _ in module.buffers())
    norms, drops = [], []
    for name, each in module.named_modules():
        name, kind = _plain(name), type(each).__name__
        if isinstance(each, torch.nn.modules.batchnorm._BatchNorm):
            _norm_names[each] = name
            norms.append([name, kind, bool(each.training)])
        if "Dropout" in kind and bool(getattr(each, "p", 0.0)):
            drops.append(name)
    trained = 0
    for name, parameter in module.named_parameters():
        # The name that a part gives is replaced by that of the whole model.
        if not name_of(parameter) or name_of(parameter).count(".") < _plain(name).count("."):
            names[id(parameter)] = (weakref.ref(parameter), _plain(name))
        trained += parameter.requires_grad
    inner = getattr(module, "module", module)
    state.log.add(
        "root", root=root.number, cls=type(inner).__name__, wrapper=type(module).__name__ if inner is not module else "",
        norms=norms, drops=drops[:20], trained=trained, where=where.here(),
    )  # fmt: skip


def _hashes(named: Any) -> Tuple[List[str], List[int]]:
    pairs = [(_plain(name), each) for name, each in named if _is_plain(each)]
    arrays = hashing.to_arrays([each for _, each in pairs])
    return [name for name, _ in pairs], [hashing.crc(each) for each in arrays]


def _is_plain(tensor: Any) -> bool:
    return (
        type(tensor) in (torch.nn.Parameter, torch.Tensor, torch.nn.Buffer)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and tensor.numel() > 0
    )


_named: Dict[Tuple[int, str], int] = {}


def _log_hashes(event: str, root: _Root, named: Any, **fields: Any) -> None:
    found, hashes = _hashes(named)
    if not found:
        return
    digest = zlib.crc32("\n".join(found).encode())
    if _named.get((root.number, event)) != digest:
        _named[(root.number, event)] = digest
        fields["names"] = found
    state.log.add(event, root=root.number, h=hashes, **fields)


def _is_training(module: Any) -> bool:
    """Whether any part is in training mode: Lightning's wrapper stays in evaluation mode after the first validation."""
    return bool(module.training) or any(each.training for each in module.modules())


def learned() -> None:
    """A backward pass begins: models that ran last in evaluation mode, with gradients, are trained in that mode."""
    for root in _roots.values():
        root.trains_quietly |= root.open
        root.open = False


@state.guarded
def _begin(module: Any, arguments: Any, options: Any) -> Optional[Tuple[Any, ...]]:
    """A pass of an outermost module begins."""
    global observing_norms
    if not any(True for _ in module.parameters()):
        return None
    root = _roots.get(module)
    if root is None:
        root = _roots[module] = _Root(state.count("roots"))
    training = torch.is_grad_enabled() and (root.trains_quietly or _is_training(module))
    if not training:
        root.open = torch.is_grad_enabled()
        root.others += 1
        phase = (state.backwards, state.loops)
        if phase != root.phase:
            root.phase = phase
            rows = hashing.row_hashes((arguments, options))
            state.log.add("infer", root=root.number, n=root.others, train=_is_training(module), s=state.steps,
                          rows=rows[1], grad=torch.is_grad_enabled(), where=where.frames(3))  # fmt: skip
        return None
    if not root.known:
        _describe(root, module)
    if trace.on:
        trace.begin(module)
    number, root.passes = root.passes, root.passes + 1
    due = state.is_due(number)
    ddp = wrappers.inside.get(module)
    around = ddp is not None and ddp() is not None
    rows = hashing.row_hashes((arguments, options))
    place = where.frames(3) if due else []
    state.log.add("forward", root=root.number, n=number, s=state.steps, size=rows[0],
                  rows=rows[1], around=around, where=place,
                  sync=getattr(module, "require_backward_grad_sync", None),
                  hook=bool(getattr(module, "_comm_hooks", ())))  # fmt: skip
    if state.world > 1 and type(module).__name__ == "DistributedDataParallel":
        state.log.add("enter", kind="forward of DistributedDataParallel", where=place or where.frames(2), s=state.steps)
        if root.sends or number < 3:  # the first passes agree on how gradients are sent
            state.log.flush()
    if not due:
        return (root, number, False, 0)
    _log_hashes("weights", root, module.named_parameters(), n=number, s=state.steps, b=state.backwards)
    observing_norms = True
    return (root, number, True, random_state())


@state.guarded
def _end(began: Tuple[Any, ...]) -> None:
    global observing_norms
    root, number, due, before = began
    observing_norms = False
    if due:
        state.log.add("random", root=root.number, n=number, before=before, drawn=random_state() != before)


@state.guarded
def _inner(module: Any, began: Tuple[Any, ...]) -> None:
    """The module inside of DistributedDataParallel, which has made buffers equal by now."""
    root, number = began[0], began[1]
    _log_hashes("buffers", root, module.named_buffers(), n=number, s=state.steps, b=state.backwards)


@state.guarded
def _norm(module: Any, x: Any) -> None:
    if not module.training or not isinstance(x, torch.Tensor) or x.dim() < 2 or x.numel() == 0:
        return
    with torch.no_grad():
        channels = x.detach()[:, :8].transpose(0, 1).reshape(min(8, x.size(1)), -1).double()
        mean, variance = channels.mean(1), channels.var(1, unbiased=False)
    state.log.add("norm", name=_norm_names.get(module, type(module).__name__), cls=type(module).__name__, s=state.steps,
                  rows=int(x.numel() // x.size(1)), batch=int(x.size(0)), mean=mean.tolist(),
                  var=variance.tolist())  # fmt: skip


_SYNCHRONISED = ("SyncBatchNorm",)


def install() -> None:
    original = torch.nn.Module.__call__
    batch_norm = torch.nn.modules.batchnorm._BatchNorm
    compiling = torch.compiler.is_compiling
    current: List[Any] = [None]

    def traced(self: Any, *arguments: Any, **options: Any) -> Any:
        trace.enter(self)
        result = None
        try:
            result = original(self, *arguments, **options)
            return result
        finally:
            trace.leave(self, result)

    run = traced if trace.on else original

    def __call__(self: Any, *arguments: Any, **options: Any) -> Any:
        if compiling():
            return original(self, *arguments, **options)
        depth = getattr(_depth, "value", 0)
        if depth:
            if observing_norms:
                if depth == 1 and current[0] is not None:
                    began, current[0] = current[0], None
                    _inner(self, began)
                if isinstance(self, batch_norm) and arguments:
                    _norm(self, arguments[0])
            _depth.value = depth + 1
            try:
                return run(self, *arguments, **options)
            finally:
                _depth.value = depth
        if state.busy() or not state.in_main_thread():
            return original(self, *arguments, **options)
        began = _begin(self, arguments, options)
        if began is None:
            if not self._parameters and not self._modules:
                return original(self, *arguments, **options)
        elif began[2]:
            if hasattr(self, "require_backward_grad_sync"):
                current[0] = began
            else:
                _inner(self, began)
        _depth.value, begun = 1, state.begin_span()
        try:
            return run(self, *arguments, **options)
        finally:
            state.end_span("forward", begun)
            _depth.value = 0
            if began is not None:
                current[0] = None
                _end(began)

    __call__.__name__ = original.__name__
    torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]
