# SPDX-License-Identifier: Apache-2.0
"""Which random numbers the making of examples draws, in loader workers and in the program's own process: the states of
the generators before and after each fetch."""
from __future__ import annotations

import random
import sys
import zlib
from typing import Any, Dict, Tuple

from . import data, state

_counts: Dict[int, int] = {}  # fetches, by id of the fetcher
_of: Dict[int, Tuple[int, int]] = {}  # the loader and the pass over it, by id of the fetcher
_made: Dict[int, int] = {}  # passes that this process has begun, by loader
MOST = 60  # fetches of a pass that are looked at
FIRST = 6  # of these, those after which only each fourth is looked at, where none has drawn
_idle: Dict[int, int] = {}  # fetches that drew nothing since the last that did, by id of the fetcher


def get_worker_info() -> Any:
    from torch.utils.data import get_worker_info as of_torch

    return of_torch()


@state.on_reset
def _reset() -> None:
    _counts.clear()
    _idle.clear()
    _of.clear()
    _made.clear()


def _of_generator(value: Any) -> int:
    """The state of a generator that a data set holds; -1 for anything else."""
    kind = type(value)
    if kind.__module__.startswith("numpy.random"):
        if hasattr(value, "bit_generator"):
            return zlib.crc32(repr(value.bit_generator.state).encode())
        if hasattr(value, "get_state"):
            return zlib.crc32(value.get_state()[1].tobytes() + str(value.get_state()[2]).encode())
    if isinstance(value, random.Random):
        return zlib.crc32(repr(value.getstate()[1][::24]).encode() + repr(value.getstate()[1][-1]).encode())
    if kind.__name__ == "Generator" and kind.__module__.startswith("torch"):
        return zlib.crc32(value.get_state().numpy().tobytes())
    return -1


_KINDS: Dict[str, str] = {}  # the classes of the generators that data sets hold, by name


def _kind(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__name__ != "Generator" else f"{kind.__module__.split('.')[0]}.Generator"


def _held(thing: Any, name: str, states: Dict[str, int], depth: int) -> None:
    for key, value in list(getattr(thing, "__dict__", {}).items())[:40]:
        found = _of_generator(value)
        if found >= 0:
            states[f"{name}.{key}"] = found
            _KINDS[f"{name}.{key}"] = _kind(value)
        elif depth < 2 and (key in ("dataset", "transform", "transforms") or hasattr(value, "__getitem__")):
            if hasattr(value, "__dict__"):
                _held(value, f"{name}.{key}", states, depth + 1)


def _states(dataset: Any) -> Dict[str, int]:
    import torch

    python = random.getstate()[1]
    states = {
        "random": zlib.crc32(repr(python[::24]).encode() + repr(python[-1]).encode()),
        "torch": zlib.crc32(torch.default_generator.get_state().numpy().tobytes()),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        current = numpy.random.get_state()
        states["numpy.random"] = zlib.crc32(current[1].tobytes() + str(current[2]).encode())
    _held(dataset, "dataset", states, 0)
    return states


@state.guarded
def _begin(fetcher: Any) -> None:
    """A pass begins, in a worker or in the program's own process."""
    _counts[id(fetcher)] = _idle[id(fetcher)] = 0
    _made[data.current] = _made.get(data.current, -1) + 1
    begun = 0 if get_worker_info() is None else data.begun(data.current)
    _of[id(fetcher)] = (data.current, begun + _made[data.current])


@state.guarded
def _before(fetcher: Any) -> Any:
    number = _counts.get(id(fetcher), 0)
    _counts[id(fetcher)] = number + 1
    looks = number < MOST and (number % 4 == 0 or _idle.get(id(fetcher), 0) < FIRST)
    return (number, _states(fetcher.dataset)) if looks else None


@state.guarded
def _after(fetcher: Any, before: Any) -> None:
    number, old = before
    new = _states(fetcher.dataset)
    drawn = {name: value for name, value in old.items() if new.get(name) != value}
    _idle[id(fetcher)] = 0 if drawn else _idle.get(id(fetcher), 0) + 1
    info = get_worker_info()
    if not drawn and number > 4:
        return
    loader, run = _of.get(id(fetcher), (-1, 0))
    state.log.add("fetch", loader=loader, n=run, worker=-1 if info is None else info.id, i=number, drawn=drawn,
                  kinds={name: _KINDS[name] for name in drawn if name in _KINDS}, dataset=type(fetcher.dataset).__name__)  # fmt: skip
    if info is not None:
        state.log.flush()


def install() -> None:
    from torch.utils.data._utils import fetch

    def wrap(original: Any) -> Any:
        def fetch_(self: Any, possibly_batched_index: Any) -> Any:
            before = _before(self)
            batch = original(self, possibly_batched_index)
            if before is not None:
                _after(self, before)
            return batch

        return fetch_

    def wrap_init(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            _begin(self)

        return __init__

    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetch, name, None)
        if kind is not None:
            state.wraps_function(kind, "fetch", wrap)
            state.wraps_function(kind, "__init__", wrap_init)
