# SPDX-License-Identifier: Apache-2.0
"""What the doctor runs inside each process of the watched program.

Observers are put into torch right after the program has imported it. Each writes events to this process's log; nothing is
judged here. An observer draws no random number of the program's generators, calls no collective, and hands back what the
watched call gave. One that fails is switched off, and the log says so.

This package is loaded by ../inject/sitecustomize.py under the name _lockstep_doctor_watch, so it imports nothing of lockstep.
"""
from __future__ import annotations

import importlib.machinery
import os
import sys
from typing import Any, Optional, Sequence

from . import state


class _AfterTorch:
    """A finder that changes nothing of how torch is found, and installs the observers when it has been imported."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            from . import install

            install.install()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def start() -> None:
    """Called before the program's first line."""
    state.begin(os.environ["LOCKSTEP_DOCTOR"])
    sys.meta_path.insert(0, _AfterTorch())  # type: ignore[arg-type]
