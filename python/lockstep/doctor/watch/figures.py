# SPDX-License-Identifier: Apache-2.0
"""Where figures leave the program or steer it: print, logging, TensorBoard, schedulers, saved files, Lightning's log."""
from __future__ import annotations

import builtins
import sys
from typing import Any, Dict

from . import state, where

_counts: Dict[str, int] = {}
MOST = 200  # events a place


def _note(kind: str, text: str, **fields: Any) -> None:
    places = where.frames(6)
    if not places:
        return
    key = kind + places[0]
    _counts[key] = _counts.get(key, 0) + 1
    if _counts[key] <= MOST:
        import torch

        state.log.add("figure", kind=kind, text=text[:200], where=places, s=state.steps, grad=torch.is_grad_enabled(),
                      **fields)  # fmt: skip


@state.guarded
def _printed(arguments: Any, options: Any) -> None:
    if options.get("file") not in (None, sys.stdout, sys.stderr):
        return
    import torch

    if any(isinstance(each, torch.Tensor) and (each.numel() > 4 or each.device.type != "cpu") for each in arguments):
        text = "0.0"
    else:
        text = " ".join(str(each) for each in arguments)
    if any(letter.isdigit() for letter in text):
        _note("print", text)


@state.guarded
def _logged(record: Any) -> None:
    if record.args or any(letter.isdigit() for letter in str(record.msg)):
        _note("logging", str(record.msg))


@state.guarded
def _other(kind: str, text: str, fields: Dict[str, Any]) -> None:
    _note(kind, text, **fields)


def install() -> None:
    import logging

    import torch

    shown = builtins.print

    def print(*arguments: Any, **options: Any) -> None:
        if not state.busy():
            _printed(arguments, options)
        shown(*arguments, **options)

    builtins.print = print  # type: ignore[assignment]

    def wrap_handle(original: Any) -> Any:
        def handle(self: Any, record: Any) -> Any:
            _logged(record)
            return original(self, record)

        return handle

    state.wraps_function(logging.Logger, "handle", wrap_handle)

    def wrap_plateau(original: Any) -> Any:
        def step(self: Any, metrics: Any, *arguments: Any, **options: Any) -> Any:
            value = float(metrics) if not isinstance(metrics, torch.Tensor) or metrics.numel() == 1 else None
            _other("scheduler", "", {"value": value})
            return original(self, metrics, *arguments, **options)

        return step

    from torch.optim import lr_scheduler

    state.wraps_function(lr_scheduler.ReduceLROnPlateau, "step", wrap_plateau)

    def wrap_save(original: Any) -> Any:
        def save(*arguments: Any, **options: Any) -> Any:
            _other("save", "", {})
            return original(*arguments, **options)

        return save

    state.wraps_function(torch, "save", wrap_save)
