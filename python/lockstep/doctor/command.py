# SPDX-License-Identifier: Apache-2.0
"""Runs the watched program, ends it after its steps, and ends it when its ranks wait for each other for ever."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from typing import Dict, Optional, Sequence

from . import options as settings
from . import processes
from .hang import Progress

INJECT = pathlib.Path(__file__).resolve().parent / "inject"
OWN_END = 5.0  # seconds that a program gets to end by itself, where the user named no number of steps; more, up to four times
# as much, where it has trained for longer


@dataclasses.dataclass
class Outcome:
    """How a run ended: by itself with `code`, or by us because of `ended` ('steps', 'hang', 'interrupted')."""

    code: Optional[int] = None
    ended: str = ""
    error: str = ""


def environment(folder: str, more: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    found = {**os.environ, **(more or {})}
    path = found.get("PYTHONPATH")
    found["PYTHONPATH"] = str(INJECT) + (os.pathsep + path if path else "")
    found["LOCKSTEP_DOCTOR"] = folder
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the launcher first, so that it says nothing of ranks that died, then all that it started, which may have made
    process groups of their own."""
    below = processes.below([process.pid])
    _kill(process.pid)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for pid in below:
        _kill(pid)
    process.wait()


def _is_enough(progress: Progress, steps: Optional[int], since: Dict[str, float]) -> bool:
    """Whether all training ranks have made their steps, or one of them did and the others had two seconds more."""
    if steps == 0:
        return False
    limit = settings.DEFAULT_STEPS if steps is None else steps
    epochs = settings.DEFAULT_EPOCHS if steps is None else None
    ready = progress.ready(limit, epochs)
    if ready:
        since.setdefault("training", time.monotonic())
    if not any(ready):
        return False
    begun = since.setdefault("ready", time.monotonic())
    waited = time.monotonic() - begun
    if steps is None:
        return waited > min(4 * OWN_END, max(OWN_END, begun - since["training"]))
    return all(ready) or waited > 2.0


def run(command: Sequence[str], folder: str, steps: Optional[int], more: Optional[Dict[str, str]] = None) -> Outcome:
    """Runs the command with `more` in its environment, and writes the ranks' logs into the folder."""
    try:
        process = subprocess.Popen(command, env=environment(folder, more), start_new_session=True)
    except OSError as error:
        return Outcome(error=f"{command[0]}: {error.strerror}")
    progress = Progress(folder)
    since: Dict[str, float] = {}
    try:
        while True:
            try:
                return Outcome(code=process.wait(timeout=0.2))
            except subprocess.TimeoutExpired:
                pass
            progress.read()
            if _is_enough(progress, steps, since):
                end(process)
                return Outcome(ended="steps")
            if progress.hangs():
                end(process)
                return Outcome(ended="hang")
    except KeyboardInterrupt:
        end(process)
        return Outcome(ended="interrupted")
    except BaseException:
        end(process)
        raise
