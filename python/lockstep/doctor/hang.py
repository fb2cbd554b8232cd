# SPDX-License-Identifier: Apache-2.0
"""Reads the logs while the program runs: how far the ranks are, and whether they wait for each other for ever."""
from __future__ import annotations

import json
import os
import pathlib
import time
from typing import Any, Dict, List, Optional

from . import processes

STUCK = 6.0  # seconds without a line of any rank
PERHAPS = 5  # times as long, where a rank may compute: it has left a call whose result it waits for somewhere, or waits for a GPU
COMPUTES = 0.02  # of a processor: who waits takes far less, and who computes gets more even on a busy machine


class Follower:
    """One rank's log, read as it grows."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.place, self.rest = path, 0, b""
        self.pid, self.host, self.steps, self.backwards = 0, "", 0, 0
        self.trained: Dict[int, int] = {}  # passes of a loader in which steps were made
        self.passes: Dict[int, int] = {}
        self.begun_at: Dict[int, int] = {}
        self.last: Dict[str, Any] = {}
        self.world, self.backend = 1, ""
        self.is_out = False  # has left its process group or ended
        self.changed = time.monotonic()  # when a line came last
        self.looked, self.used = 0.0, 0.0  # when its processor time was taken, and what it was

    def read(self) -> bool:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.place)
                data = file.read()
        except OSError:
            return False
        if not data:
            return False
        self.place += len(data)
        self.changed = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                self._take(json.loads(line))
            except ValueError:
                continue
        return True

    def _take(self, event: Dict[str, Any]) -> None:
        kind = event["e"]
        if kind == "hello":
            self.pid, self.host = event["pid"], event["host"]
        elif kind == "group":
            self.world, self.backend = event["world"], event["backend"]
        elif kind == "step":
            self.steps = max(self.steps, event["s"])
        elif kind == "backward":
            self.backwards += 1
        elif kind == "pass":
            loader = event["loader"]
            if self._count() > self.begun_at.get(loader, self._count()):
                self.trained[loader] = self.trained.get(loader, 0) + 1
            self.begun_at[loader] = self._count()
        elif kind in ("exit", "destroyed"):
            self.is_out = True
        if kind in ("call", "called", "enter", "leave", "exit", "destroyed", "step", "batch", "forward"):
            self.last = event

    def _count(self) -> int:
        return self.steps or self.backwards

    def waits(self) -> bool:
        """Whether the last that the rank did was to enter a collective, or to leave the program."""
        if self.is_out or not self._lives():
            return True
        return self.last.get("e") in ("call", "enter") or self.may_wait()

    def may_wait(self) -> bool:
        return self.last.get("e") == "called" and bool(self.last.get("left"))

    def computes(self, silent: float) -> bool:
        """Whether the rank, or what it started, has computed while it wrote no line: who waits in a collective does not. (One
        that waits for a GPU does.) It is asked again and again; what it compares with is taken half-way."""
        if self.host != os.uname().nodename or self.is_out:
            return False
        if self.looked < self.changed:
            self.looked, self.used = time.monotonic(), processes.seconds(self.pid)
        return silent > STUCK and processes.seconds(self.pid) - self.used > COMPUTES * (time.monotonic() - self.looked)

    def _lives(self) -> bool:
        return self.host != os.uname().nodename or os.path.exists(f"/proc/{self.pid}")


class Progress:
    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder)
        self.followers: Dict[str, Follower] = {}

    def read(self) -> None:
        for path in self.folder.glob("*.jsonl"):
            self.followers.setdefault(path.name, Follower(path)).read()

    def _trains(self) -> List[Follower]:
        return [each for each in self.followers.values() if each.steps or each.backwards]

    def ready(self, steps: int, epochs: Optional[int]) -> List[bool]:
        """For each training rank, whether it has made its steps or epochs."""
        return [
            each._count() >= steps or (epochs is not None and max(each.trained.values(), default=0) >= epochs)
            for each in self._trains()
        ]

    def hangs(self) -> bool:
        """All ranks of a group wait or have left, at least one waits, and nothing has happened for some seconds."""
        ranks = [each for each in self.followers.values() if each.world > 1]
        if len(ranks) < 2 or any(not each.waits() for each in ranks):
            return False
        if all(each.is_out or not each._lives() for each in ranks):
            return False
        silent = min(time.monotonic() - each.changed for each in ranks)
        if silent <= STUCK / 2:
            return False
        computing = [each.computes(silent) for each in ranks]
        if silent <= STUCK or (silent <= PERHAPS * STUCK and any(each.may_wait() for each in ranks)):
            return False
        on_gpus = any("nccl" in each.backend for each in ranks)
        return silent > PERHAPS * STUCK if on_gpus else not any(computing)
