# SPDX-License-Identifier: Apache-2.0
"""What models are wrapped in (DistributedDataParallel, DataParallel, joins of uneven inputs), and on how many threads they run."""
from __future__ import annotations

import weakref
from typing import Any

from . import state, where

inside: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()  # a module -> its DistributedDataParallel


@state.guarded
def _note_ddp(wrapper: Any, place: str) -> None:
    inside[wrapper.module] = weakref.ref(wrapper)
    ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
    trained = [name for name, each in wrapper.module.named_parameters() if each.requires_grad and name not in ignored]
    state.log.add(
        "ddp", cls=type(wrapper.module).__name__, where=place, trained=len(trained),
        unused=bool(getattr(wrapper, "find_unused_parameters", False)),
        static=bool(getattr(wrapper, "static_graph", False)),
        buffers=bool(getattr(wrapper, "broadcast_buffers", True)),
    )  # fmt: skip
    _names[wrapper] = {id(each) for each in wrapper.module.parameters()}


_names: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def is_reduced(wrapper: Any, parameter: Any) -> bool:
    """Whether a parameter was there when the model was wrapped."""
    return wrapper not in _names or id(parameter) in _names[wrapper]


def install() -> None:
    import torch
    from torch.distributed.algorithms import join
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    def wrap_ddp(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            _note_ddp(self, where.here())

        return __init__

    def wrap_parallel(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            state.log.add("data_parallel", where=where.here(), devices=len(getattr(self, "device_ids", []) or []))

        return __init__

    def wrap_join(original: Any) -> Any:
        def __init__(self: Any, *arguments: Any, **options: Any) -> None:
            state.log.add("join", where=where.here())
            original(self, *arguments, **options)

        return __init__

    def wrap_threads(original: Any) -> Any:
        def set_num_threads(number: int) -> None:
            original(number)
            state.log.add("threads", threads=number, where=where.here())

        return set_num_threads

    state.wraps_function(torch, "set_num_threads", wrap_threads)
    state.wraps_function(DistributedDataParallel, "__init__", wrap_ddp)
    state.wraps_function(DataParallel, "__init__", wrap_parallel)
    state.wraps_function(join.Join, "__init__", wrap_join)
