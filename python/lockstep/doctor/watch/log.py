# SPDX-License-Identifier: Apache-2.0
"""A process's log: a file of JSON lines, one an event. A process without events has no file."""
from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any, Dict, List

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "LOCAL_RANK")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def _number(names: Any) -> int:
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return -1


_encode = json.JSONEncoder(default=str, separators=(",", ":")).encode


class Log:
    def __init__(self) -> None:
        self.folder = ""
        self.spent = 0.0  # seconds that observers took
        self.begun = False
        self._file = -1
        self._lines: List[str] = []
        self._flushed = 0.0
        self._size = 0

    def open(self, folder: str) -> None:
        self.folder = folder

    def after_fork(self) -> None:
        """The child writes a file of its own."""
        if self._file >= 0:
            os.close(self._file)
        self.begun, self._file, self._lines, self._size = False, -1, [], 0

    def _hello(self) -> Dict[str, Any]:
        return {
            "e": "hello", "t": time.time(), "pid": os.getpid(), "ppid": os.getppid(), "host": socket.gethostname(),
            "rank": _number(_RANK), "world": _number(_WORLD), "argv": sys.argv[:20] if hasattr(sys, "argv") else [],
            "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1)),
            "threads": os.environ.get("OMP_NUM_THREADS", ""),
        }  # fmt: skip

    def add(self, event: str, **fields: Any) -> None:
        if not self.begun:
            self.begun = True
            self._lines.append(json.dumps(self._hello()))
        fields["e"], fields["t"] = event, round(time.time(), 6)
        line = _encode(fields)
        self._lines.append(line)
        self._size += len(line)
        if self._size > 65536 or fields["t"] - self._flushed > 0.2:
            self.flush()

    def flush(self) -> None:
        """A write is one call to the system, so lines of threads and of a process that is ended stay whole."""
        if not self._lines:
            return
        lines, self._lines, self._size = self._lines, [], 0
        self._flushed = time.time()
        try:
            if self._file < 0:
                name = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.jsonl"
                self._file = os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(self._file, ("\n".join(lines) + "\n").encode())
        except OSError:
            pass
