# SPDX-License-Identifier: Apache-2.0
"""What loaders hand out: which indices, which contents, in which epoch, and how long the program waited for it."""
from __future__ import annotations

import os
import time
import weakref
import zlib
from typing import Any, Dict, List, Tuple

from . import hashing, state, where

_numbers: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()  # of loaders
_made: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()  # where each was made
_passes: Dict[int, int] = {}
current = -1  # the loader whose workers are being started


def begun(loader: int) -> int:
    """How many passes over a loader had begun when this process was forked."""
    return _passes.get(loader, -1) + 1


class _Pass:
    """An iteration over a loader."""

    def __init__(self, loader: int, number: int) -> None:
        self.loader, self.number, self.batches, self.drawn = loader, number, 0, 0


_state_of: Dict[int, Tuple[Any, _Pass]] = {}  # by id of the iterator, which it holds weakly


@state.on_reset
def _reset() -> None:
    _state_of.clear()


def _value_print(value: Any, depth: int) -> int:
    """A hash of what a data set's attribute holds; 0 for what cannot be told apart."""
    import torch

    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return zlib.crc32(repr(value).encode())
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.layout != torch.strided:
            return 0
        return hashing.crc(hashing.to_arrays([value])[0]) ^ zlib.crc32(repr(tuple(value.shape)).encode())
    if type(value).__module__ == "numpy" and hasattr(value, "dtype"):
        if value.dtype.kind not in "fiub":
            return zlib.crc32(repr(value.shape).encode())
        flat = value.reshape(-1)
        return zlib.crc32(flat[:: max(1, flat.size // 1024)].tobytes()) ^ zlib.crc32(repr(value.shape).encode())
    if isinstance(value, (list, tuple, range)):
        some = [value[i] for i in range(0, len(value), max(1, len(value) // 64))]
        total = len(value)
        for each in some:
            total = zlib.crc32(str(_value_print(each, depth + 1) if depth < 4 else 0).encode(), total)
        return total
    if isinstance(value, torch.utils.data.Dataset) and depth < 4:
        return dataset_print(value, depth + 1)
    return 0


def dataset_print(dataset: Any, depth: int = 0) -> int:
    """The same number on two ranks tells that their data sets hold the same examples under the same indices, as far as
    can be seen from outside."""
    total = zlib.crc32(type(dataset).__name__.encode())
    if isinstance(dataset, (list, tuple)):
        return _value_print(dataset, depth)
    for name, value in sorted(getattr(dataset, "__dict__", {}).items(), key=lambda item: str(item[0])):
        if isinstance(value, (list, tuple)) and len(value) == 0:
            continue
        total = zlib.crc32(f"{name}{_value_print(value, depth)}".encode(), total)
    return total


def _length(thing: Any) -> int:
    try:
        return len(thing)
    except Exception:
        return -1


@state.guarded
def _describe(loader: Any) -> None:
    if loader in _numbers:
        return
    number = _numbers[loader] = state.count("loaders")
    kind = getattr(loader, "_dataset_kind", 0)
    dataset, iterable = loader.dataset, kind == 1
    batch_sampler, sampler = getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)
    # Accelerate's and others' loaders wrap the sampler that says what the order is.
    inner, names = (batch_sampler if batch_sampler is not None else sampler), []
    for _ in range(5):
        if inner is None:
            break
        names.append(type(inner).__name__)
        inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)
    state.log.add(
        "loader", loader=number, where=_made.get(loader, ""), dataset=type(dataset).__name__,
        size=-1 if iterable else _length(dataset), print=0 if iterable else dataset_print(dataset), iterable=iterable,
        samplers=names, batch=getattr(loader, "batch_size", None), drop_last=bool(getattr(loader, "drop_last", False)),
        workers=getattr(loader, "num_workers", 0), replacement=bool(getattr(sampler, "replacement", False)),
    )  # fmt: skip


@state.guarded
def _begin(loader: Any, iterator: Any) -> None:
    number = _numbers.get(loader, -1)
    state.loops += 1
    _passes[number] = _passes.get(number, -1) + 1
    new, identity = _Pass(number, _passes[number]), id(iterator)
    _state_of[identity] = (weakref.ref(iterator, lambda _: _state_of.pop(identity, None)), new)
    pending = _pending.pop(identity, [])
    state.log.add("pass", loader=number, n=new.number, s=state.steps, where=where.here(),
                  held=where.numbers() if new.number < 40 else {})  # fmt: skip
    for indices in pending:
        _log_indices(new, indices)


_pending: Dict[int, List[Any]] = {}  # drawn ahead, before the iteration is known


@state.guarded
def _index(iterator: Any, indices: Any) -> None:
    kept = _state_of.get(id(iterator))
    if kept is None or kept[0]() is not iterator:
        _pending.setdefault(id(iterator), []).append(indices)
    elif isinstance(indices, (list, tuple, int)):
        _log_indices(kept[1], indices)


def _log_indices(run: _Pass, indices: Any) -> None:
    found: List[Any] = [indices] if isinstance(indices, int) else list(indices)
    if found and isinstance(found[0], (list, tuple)):
        found = [each for part in found for each in part]
    if all(isinstance(each, int) or hasattr(each, "__index__") for each in found):
        state.log.add("index", loader=run.loader, n=run.number, i=run.drawn, ids=[int(each) for each in found])
    run.drawn += 1


@state.guarded
def _batch(iterator: Any, batch: Any, waited: float) -> None:
    import torch

    kept = _state_of.get(id(iterator))
    if kept is None:
        return
    run = kept[1]
    rows = hashing.row_hashes(batch)
    state.log.add(
        "batch", loader=run.loader, n=run.number, i=run.batches, s=state.steps, wait=round(waited, 6),
        grad=torch.is_grad_enabled(), size=rows[0], rows=rows[1],
    )  # fmt: skip
    run.batches += 1


@state.guarded
def _done(iterator: Any) -> None:
    kept = _state_of.get(id(iterator))
    if kept is not None:
        run = kept[1]
        state.log.add("passend", loader=run.loader, n=run.number, batches=run.batches, s=state.steps)


def _with_batch(factor: float, arguments: Tuple[Any, ...], options: Dict[str, Any]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """A loader's arguments with another batch size."""
    given = arguments[1] if len(arguments) > 1 else options.get("batch_size", 1)
    if not isinstance(given, int) or options.get("batch_sampler") is not None:
        return arguments, options
    size = max(1, round(given * factor))
    if len(arguments) > 1:
        return (arguments[0], size, *arguments[2:]), options
    return arguments, {**options, "batch_size": size}


def install() -> None:
    from torch.utils.data import dataloader

    factor = float(os.environ.get("LOCKSTEP_DOCTOR_BATCH", "1"))  # of --ranks: a rank's share where there are fewer ranks

    def init(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            if factor != 1:
                arguments, options = _with_batch(factor, arguments, options)
            original(self, *arguments, **options)
            place = where.here()
            if place:
                _made[self] = place

        return __init__

    def iterate(original: Any) -> Any:
        def __iter__(self: Any) -> Any:
            global current
            if state.busy():
                return original(self)
            _describe(self)
            before, current = current, _numbers.get(self, -1)
            kept = getattr(self, "_iterator", None)  # of persistent workers, which draws ahead before it is handed out again
            if kept is not None:
                _begin(self, kept)
            try:
                iterator = original(self)
            finally:
                current = before
            if isinstance(iterator, dataloader._BaseDataLoaderIter) and iterator is not kept:
                _begin(self, iterator)
            return iterator

        return __iter__

    def draw(original: Any) -> Any:
        def _next_index(self: Any) -> Any:
            indices = original(self)
            _index(self, indices)
            return indices

        return _next_index

    def give(original: Any) -> Any:
        def __next__(self: Any) -> Any:
            begun, at = state.begin_span(), time.perf_counter()
            try:
                batch = original(self)
            except StopIteration:
                _done(self)
                raise
            finally:
                state.end_span("wait", begun)
            _batch(self, batch, time.perf_counter() - at)
            return batch

        return __next__

    state.wraps_function(dataloader.DataLoader, "__init__", init)
    state.wraps_function(dataloader.DataLoader, "__iter__", iterate)
    state.wraps_function(dataloader._BaseDataLoaderIter, "_next_index", draw)
    state.wraps_function(dataloader._BaseDataLoaderIter, "__next__", give)
