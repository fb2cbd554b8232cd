# SPDX-License-Identifier: Apache-2.0
"""Collectives of the program: each with its kind, shape, group and place, written down before it runs, so that a hang can
be read from the log. Values of small tensors are kept before and after."""
from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Dict, List

import torch

from . import figures, hashing, state, where

_NAMES = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_into_tensor",
    "all_gather_coalesced", "gather", "scatter", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "barrier", "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list",
    "scatter_object_list", "broadcast_coalesced",
)  # fmt: skip
_TO_ONE = ("send", "recv", "isend", "irecv", "batch_isend_irecv")  # between two ranks, which nothing else waits for
_BLOCKING = ("send", "recv")
_inside = threading.local()
_sequence: Dict[str, int] = {}
_calls: Dict[str, int] = {}
SMALL = 16
EARLY = 60  # calls of a place of the program at which its numbers are kept
LATE = 1.0  # seconds that the first group takes, from which on it is asked why


@state.on_reset
def _reset() -> None:
    _sequence.clear()
    _calls.clear()
    _inside.value = False


def _time_a_name(init: float) -> None:
    """Of the store's host, as c10d asks for it with each connection, to write it into a log."""
    begun, address = time.monotonic(), os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        address = socket.gethostbyname(address)
        socket.getnameinfo((f"::ffff:{address}", 0), socket.NI_NUMERICSERV)
    except OSError:
        pass
    state.log.add("name", address=address, seconds=round(time.monotonic() - begun, 3), init=round(init, 3))


def _group_name(group: Any) -> str:
    import torch.distributed as dist

    if group is None or group is dist.group.WORLD:
        return "world"
    try:
        return ",".join(str(each) for each in dist.get_process_group_ranks(group))
    except Exception:
        return "?"


def _values(data: Any) -> Any:
    found = [each for each in hashing.tensors_in(data)][:8]
    if not found or sum(each.numel() for each in found) > SMALL or found[0].device.type != "cpu":
        return None
    return [float(value) for each in found if not each.is_complex() for value in each.detach().reshape(-1).tolist()]


def _is_early(place: str) -> bool:
    """Whether a place of the program is among the first that call."""
    _calls[place] = _calls.get(place, 0) + 1
    return _calls[place] <= EARLY


@state.guarded
def _enter(name: str, arguments: Any, options: Any) -> Any:
    state.calls += 1
    group = options.get("group")
    group = next((each for each in arguments if type(each).__name__ == "ProcessGroup"), group)
    key = _group_name(group)
    number = _sequence[key] = _sequence.get(key, -1) + 1
    data = [arguments, {k: v for k, v in options.items() if k not in ("group", "op")}]
    tensors = [] if name.endswith("object") or "object" in name else list(hashing.tensors_in(data))
    shape = [list(each.shape) for each in tensors[:4]]
    op = options.get("op", next((each for each in arguments if type(each).__name__ in ("RedOpType", "ReduceOp")), None))
    op_name = str(op).rsplit(".", 1)[-1] if op is not None else "SUM" if "reduce" in name else ""
    values, places = _values(tensors), where.frames(8)
    held = where.numbers() if values and places and _is_early(places[0]) else {}
    state.log.add(
        "call", group=key, i=number, kind=name, shape=shape, dtype=str(tensors[0].dtype)[6:] if tensors else "", op=op_name,
        elements=sum(each.numel() for each in tensors), where=places, before=values, s=state.steps, held=held,
        ptr=[each.data_ptr() for each in tensors[:4]], src=options.get("src"),
        cut="gather" in name and where.within("gather_for_metrics"),  # Accelerate's, which cuts repeats off
    )  # fmt: skip
    state.log.flush()
    return key, number, tensors if sum(each.numel() for each in tensors) <= SMALL else None, time.perf_counter()


@state.guarded
def _leave(entered: Any, result: Any) -> None:
    key, number, tensors, begun = entered
    is_async = hasattr(result, "wait")
    after = None if tensors is None or is_async else _values(tensors)
    took = round(time.perf_counter() - begun, 6)
    state.log.add("called", group=key, i=number, took=took, after=after, left=is_async)
    state.log.flush()  # whoever reads the log must not take a rank that computes for one that waits


@state.guarded
def _to_one(name: str) -> None:
    places = where.frames(2)
    if places and _is_early(places[0]):
        state.log.add("p2p", kind=name, where=places[0], s=state.steps)
    if name in _BLOCKING:
        state.log.add("enter", kind=name, where=places, s=state.steps)
        state.log.flush()


@state.guarded
def _left_to_one(name: str) -> None:
    if name in _BLOCKING:
        state.log.add("leave", kind=name, s=state.steps)


@state.guarded
def _grouped() -> None:
    import torch.distributed as dist

    state.world, state.rank = dist.get_world_size(), dist.get_rank()
    state.log.add("group", rank=dist.get_rank(), world=dist.get_world_size(), backend=str(dist.get_backend()),
                  threads=torch.get_num_threads(), where=where.here())  # fmt: skip
    state.log.flush()


def install() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d

    def wrap(original: Any) -> Any:
        name = original.__name__

        def call(*arguments: Any, **options: Any) -> Any:
            if getattr(_inside, "value", False) or state.busy() or torch.compiler.is_compiling():
                return original(*arguments, **options)
            _inside.value = True
            try:
                entered = _enter(name, arguments, options)
                begun = state.begin_span()
                try:
                    result = original(*arguments, **options)
                finally:
                    state.end_span("collectives", begun)
                if entered is not None:
                    _leave(entered, result)
                return result
            finally:
                _inside.value = False

        return call

    patched: List[str] = [name for name in _NAMES if hasattr(distributed_c10d, name)]
    for name in patched:
        state.wraps_function(distributed_c10d, name, wrap)
        if hasattr(dist, name):
            setattr(dist, name, getattr(distributed_c10d, name))

    def wrap_wait(original: Any) -> Any:
        def wait(*arguments: Any, **options: Any) -> Any:
            if getattr(_inside, "value", False) or state.busy() or torch.compiler.is_compiling():
                return original(*arguments, **options)
            begun = state.begin_span()
            try:
                return original(*arguments, **options)
            finally:
                state.end_span("collectives", begun)

        return wait

    state.wraps_function(distributed_c10d.Work, "wait", wrap_wait)

    def wrap_to_one(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if getattr(_inside, "value", False) or state.busy():
                return original(*arguments, **options)
            _to_one(original.__name__)
            result = original(*arguments, **options)
            _left_to_one(original.__name__)
            return result

        return call

    for name in _TO_ONE:
        state.wraps_function(distributed_c10d, name, wrap_to_one)
        if hasattr(dist, name):
            setattr(dist, name, getattr(distributed_c10d, name))

    def wrap_init(original: Any) -> Any:
        def init_process_group(*arguments: Any, **options: Any) -> Any:
            begun = time.monotonic()
            result = original(*arguments, **options)
            took = time.monotonic() - begun
            if took > LATE:
                _time_a_name(took)
            _grouped()
            figures.late()
            return result

        return init_process_group

    state.wraps_function(distributed_c10d, "init_process_group", wrap_init)
    dist.init_process_group = distributed_c10d.init_process_group  # type: ignore[assignment]

    def wrap_destroy(original: Any) -> Any:
        def destroy_process_group(*arguments: Any, **options: Any) -> Any:
            state.log.add("destroyed", s=state.steps)
            state.log.flush()
            return original(*arguments, **options)

        return destroy_process_group

    state.wraps_function(distributed_c10d, "destroy_process_group", wrap_destroy)
    dist.destroy_process_group = distributed_c10d.destroy_process_group
