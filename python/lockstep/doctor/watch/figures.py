# SPDX-License-Identifier: Apache-2.0
"""Where figures leave the program or steer it: print, logging, TensorBoard, Lightning's log, ReduceLROnPlateau, torch.save.

An event holds the text's numbers and those of the program's variables around it, so that a rule can see what a figure
was made of.
"""
from __future__ import annotations

import builtins
import os
import re
import sys
from typing import Any, Dict

from . import state, where

_counts: Dict[str, int] = {}
MOST = 100  # events a place
_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:[eE][-+]?\d+)?")


@state.on_reset
def _reset() -> None:
    _counts.clear()


def _note(kind: str, text: str, **fields: Any) -> None:
    places = where.frames(6)
    if not places:
        return
    key = kind + places[0]
    _counts[key] = _counts.get(key, 0) + 1
    if _counts[key] > MOST:
        return
    import torch

    state.log.add("figure", kind=kind, text=text[:200], numbers=_NUMBER.findall(text)[:12], where=places, s=state.steps,
                  grad=torch.is_grad_enabled(), held=where.numbers(), **fields)  # fmt: skip


def _is_cheap(value: Any) -> bool:
    """Whether showing it costs little and runs nothing of the program."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() <= 16 and value.device.type == "cpu"
    if isinstance(value, (list, tuple, dict)):
        return len(value) <= 16 and all(_is_cheap(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, (str, int, float)) or type(value).__module__ == "numpy"


@state.guarded
def _printed(arguments: Any, options: Any) -> None:
    if options.get("file") in (None, sys.stdout, sys.stderr):
        text = " ".join(str(each) for each in arguments if _is_cheap(each))
        if _NUMBER.search(text):
            _note("print", text)


@state.guarded
def _logged(record: Any) -> None:
    text = record.getMessage()
    if _NUMBER.search(text):
        _note("logging", text)


@state.guarded
def _scalar(kind: str, name: Any, value: Any, fields: Dict[str, Any]) -> None:
    number = where.number(value)
    _note(kind, f"{name} {number:.6f}" if number is not None else str(name), **fields)


def _before(owner: Any, name: str, observe: Any) -> None:
    """Lets observe(*arguments, **options) see each call of a function."""

    def wrap(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if not state.busy():
                observe(*arguments, **options)
            return original(*arguments, **options)

        return call

    state.wraps_function(owner, name, wrap)


def _plateau(scheduler: Any, metrics: Any, *rest: Any, **options: Any) -> None:
    _scalar("ReduceLROnPlateau", "", metrics, {})


def _add_scalar(writer: Any, tag: Any = "", scalar_value: Any = None, *rest: Any, **options: Any) -> None:
    _scalar("TensorBoard", tag, scalar_value, {})


def _lightning_log(module: Any, name: Any = "", value: Any = None, *rest: Any, **options: Any) -> None:
    own = type(value).__module__.startswith("torchmetrics") or bool(options.get("sync_dist"))
    stage = str(getattr(getattr(module, "_trainer", None), "state", None) and module._trainer.state.stage or "")
    _scalar("Lightning's log", name, value, {"merged": own, "stage": stage.rsplit(".", 1)[-1].lower()})


@state.guarded
def _saved(file: Any = "") -> None:
    _note("torch.save", "", file=str(file) if isinstance(file, (str, os.PathLike)) else "")


@state.guarded
def late() -> None:
    """Libraries that the program imports after torch."""
    for name in ("lightning.pytorch.core.module", "pytorch_lightning.core.module"):
        module = sys.modules.get(name)
        if module is not None:
            _before(module.LightningModule, "log", _lightning_log)
    board = sys.modules.get("torch.utils.tensorboard.writer")
    if board is not None:
        _before(board.SummaryWriter, "add_scalar", _add_scalar)


def install() -> None:
    import logging

    import torch
    from torch.optim import lr_scheduler

    shown = builtins.print

    def print(*arguments: Any, **options: Any) -> None:
        if not state.busy():
            _printed(arguments, options)
        shown(*arguments, **options)

    builtins.print = print  # type: ignore[assignment]
    _before(logging.Logger, "handle", lambda logger, record, *rest, **options: _logged(record))
    _before(lr_scheduler.ReduceLROnPlateau, "step", _plateau)
    _before(torch, "save", lambda *given, **options: _saved(*given[1:2]))
