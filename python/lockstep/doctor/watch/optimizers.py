# SPDX-License-Identifier: Apache-2.0
"""Steps of optimisers: what they are set to, which gradients they are given, and how far training is."""
from __future__ import annotations

import functools
import weakref
import zlib
from typing import Any, Dict, Iterator, List

import torch

from . import gradients, hashing, modules, state, trace, where

_optimizers: "weakref.WeakKeyDictionary[Any, _Kept]" = weakref.WeakKeyDictionary()


class _Kept:
    def __init__(self, number: int, place: str) -> None:
        self.number, self.place, self.made, self.known = number, place, 0, False
        self.names = 0
        self.begun = 0.0


def parameters() -> Iterator[Any]:
    """Of all optimisers, each once."""
    seen = set()
    for optimizer in list(_optimizers):
        for group in optimizer.param_groups:
            for each in group["params"]:
                if id(each) not in seen and each.requires_grad and each.is_leaf:
                    seen.add(id(each))
                    yield each


_NUMBERS = ("lr", "weight_decay", "momentum", "betas", "eps", "dampening", "nesterov", "alpha")


def _settings(optimizer: Any) -> List[Dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return float(value) if value.device.type == "cpu" else None
        return value

    return [{key: plain(group[key]) for key in _NUMBERS if key in group} for group in optimizer.param_groups]


@state.guarded
def _made(optimizer: Any, place: str) -> None:
    if optimizer not in _optimizers:
        _optimizers[optimizer] = _Kept(state.count("optimizers"), place)


@state.guarded
def _before(optimizer: Any, arguments: Any, options: Any) -> Any:
    kept = _optimizers.get(optimizer)
    if kept is None:
        kept = _optimizers[optimizer] = _Kept(state.count("optimizers"), "")
    if not kept.known:
        kept.known = True
        held = [each for group in optimizer.param_groups for each in group["params"]]
        state.log.add("optimizer", opt=kept.number, cls=type(optimizer).__name__, where=kept.place,
                      settings=_settings(optimizer), count=len(held),
                      elements=sum(each.numel() for each in held))  # fmt: skip
    kept.begun = state.begin_span()
    changed = _with_closure(optimizer, kept, arguments, options)
    if changed is None:
        _look(optimizer, kept)
    return changed


def _look(optimizer: Any, kept: _Kept) -> None:
    if state.is_due(kept.made):
        _note_gradients(optimizer, kept)
    else:
        gradients.local.clear()


_look_guarded = state.guarded(_look)


def _with_closure(optimizer: Any, kept: _Kept, arguments: Any, options: Any) -> Any:
    """The call with a closure after which gradients are looked at, since the backward pass is in it (Lightning, LBFGS)."""
    closure = options.get("closure", arguments[1] if len(arguments) > 1 else None)
    if not callable(closure):
        return None
    called: List[int] = []

    @functools.wraps(closure)
    def run(*given: Any, **named: Any) -> Any:
        result = closure(*given, **named)
        if not called and not state.busy():
            called.append(1)
            _look_guarded(optimizer, kept)
        return result

    if "closure" in options:
        return arguments, {**options, "closure": run}
    return (arguments[0], run, *arguments[2:]), options


def _state_print(optimizer: Any, some: List[Any]) -> int:
    """A hash of what an optimiser keeps of some parameters, as momentum."""
    kept = [value for each in some for value in (optimizer.state.get(each) or {}).values()]
    plain = [each for each in kept if isinstance(each, torch.Tensor) and modules._is_plain(each)]
    total = 0
    for array in hashing.to_arrays(plain):
        total = zlib.crc32(array.tobytes(), total)
    return total


def _note_gradients(optimizer: Any, kept: _Kept) -> None:
    held = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
    given = [each for each in held if each.grad is not None and modules._is_plain(each.grad)]
    arrays = hashing.to_arrays([each.grad for each in given])
    own = [gradients.local.pop(id(each), None) for each in given]
    own_arrays = hashing.to_arrays([each for each in own if each is not None])
    projected = iter([hashing.project(each)[0] for each in own_arrays])
    projections = [hashing.project(each) for each in arrays]
    names = [modules.name_of(each) or f"parameter {n}" for n, each in enumerate(given)]
    digest = zlib.crc32("\n".join(names).encode())
    fields: Dict[str, Any] = {}
    if digest != kept.names:
        kept.names = digest
        fields["names"] = names
    state.log.add(
        "gradients", opt=kept.number, n=kept.made, s=state.steps, b=state.backwards, h=[hashing.crc(each) for each in arrays],
        final=[each[0] for each in projections], norm=[each[1] for each in projections],
        local=[None if each is None else next(projected) for each in own],
        none=[modules.name_of(each) or f"parameter {n}" for n, each in enumerate(held) if each.grad is None],
        settings=_settings(optimizer), state=_state_print(optimizer, given[:2]), hooked=gradients.hooked, **fields,
    )  # fmt: skip


@state.guarded
def _after(optimizer: Any, arguments: Any, options: Any) -> None:
    kept = _optimizers.get(optimizer)
    if kept is None:
        return
    state.end_span("optimizer", kept.begun)
    kept.made += 1
    state.steps = max(state.steps, kept.made)
    trace.flush()
    state.log.add("step", opt=kept.number, n=kept.made, s=state.steps, spent=round(state.log.spent, 4),
                  spans=state.take_spans(), queued=round(state.queued(), 4))  # fmt: skip


def install() -> None:
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(_before)
    optimizer.register_optimizer_step_post_hook(_after)

    def wrap(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            _made(self, where.here())

        return __init__

    state.wraps_function(optimizer.Optimizer, "__init__", wrap)
