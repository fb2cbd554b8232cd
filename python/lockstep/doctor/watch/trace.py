# SPDX-License-Identifier: Apache-2.0
"""Every operation of the first steps, with hashes of what it took and what it gave, forwards and backwards: for
comparing two runs (--runs). It costs much more than the other observers, and is on only there."""
from __future__ import annotations

import os
import weakref
import zlib
from typing import Any, Dict, List, Optional, Tuple

import torch

from . import hashing, state, where

on = bool(os.environ.get("LOCKSTEP_DOCTOR_TRACE"))
STEPS = 40  # that are looked at
MOST = 1 << 22  # elements of a tensor that are looked at
_LATER = ("c10d", "_c10d_functional")  # give their results when they are waited for
_UNSET = ("empty", "new_empty", "resize_", "set_", "record_stream", "_local_scalar_dense")
_names: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
_stack: List[Tuple[str, int]] = []  # modules that run, and the number of the graph's next node when they began
_of_node: Dict[int, str] = {}  # the module that made a node of the graph, by the node's number
_rows: List[List[Any]] = []
_mode: List[Any] = []


@state.on_reset
def _reset() -> None:
    _stack.clear()
    _of_node.clear()
    _rows.clear()
    _mode.clear()


def _hash(data: Any) -> int:
    total = 0
    for each in hashing.tensors_in(data):
        if each.layout != torch.strided or each.device.type == "meta" or type(each) not in (torch.Tensor, torch.nn.Parameter):
            continue
        flat = each.detach().reshape(-1)
        flat = flat[:: -(-flat.numel() // MOST)] if flat.numel() > MOST else flat
        total = zlib.crc32(hashing.as_array(flat.cpu()).tobytes(), total)
    return total


def _is_random(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def _generator(options: Dict[str, Any]) -> int:
    own = options.get("generator")
    return zlib.crc32((own if own is not None else torch.default_generator).get_state().numpy().tobytes())


@state.guarded
def _taken(op: Any, arguments: Any, options: Dict[str, Any]) -> Optional[int]:
    name = op._schema.name.split("::")[-1]
    if state.steps >= STEPS or getattr(op, "is_view", False) or name.startswith(_UNSET) or op.namespace in _LATER:
        return None
    taken = _hash([arguments, options])
    return taken ^ (_generator(options) << 32) if _is_random(op) else taken


@state.guarded
def _given(op: Any, taken: int, result: Any) -> None:
    node = torch._C._current_autograd_node()
    module = _stack[-1][0] if _stack else ""
    if node is not None:
        module = _of_node.get(node._sequence_nr(), "")
    _rows.append([op._schema.name.split("::")[-1], module, node.name() if node is not None else "", taken, _hash(result),
                  int(_is_random(op)), where.here(), state.steps])  # fmt: skip
    if len(_rows) >= 100:
        flush()


def flush() -> None:
    if _rows:
        state.log.add("ops", rows=list(_rows))
        _rows.clear()


def _make_mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Trace(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            taken = None if state.busy() else _taken(func, args, kwargs or {})
            result = func(*args, **(kwargs or {}))
            if taken is not None:
                _given(func, taken, result)
            return result

    return Trace()


def begin(root: Any) -> None:
    """A training pass of an outermost module: modules get their names, and the first one switches the trace on."""
    if root not in _names:
        for name, each in root.named_modules():
            _names.setdefault(each, name.removeprefix("module.") or type(each).__name__)
    if not _mode:
        _mode.append(_make_mode())
        _mode[0].__enter__()


def enter(module: Any) -> None:
    _stack.append((_names.get(module, type(module).__name__), torch.autograd._get_sequence_nr()))


def leave(module: Any, result: Any) -> None:
    """Which nodes of the graph a module made: those behind its result that no module inside of it made."""
    name, first = _stack.pop()
    if len(_of_node) > 100_000:
        _of_node.clear()
    open_ = [each.grad_fn for each in hashing.tensors_in(result) if each.grad_fn is not None]
    for _ in range(200):
        if not open_:
            return
        node = open_.pop()
        number = node._sequence_nr()
        if number >= first and number not in _of_node and type(node).__name__ != "AccumulateGrad":
            _of_node[number] = name
            open_ += [after for after, _ in node.next_functions if after is not None]
