# SPDX-License-Identifier: Apache-2.0
"""What /proc says of processes: which others they started, and how long all of them computed."""
from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Sequence

LOOKS = 100  # at most, at processes that start and end others all the time


def _fields(entry: pathlib.Path) -> List[str]:
    """Of a process's stat file, from its state on; empty where it has gone."""
    try:
        return entry.read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def below(pids: Sequence[int]) -> List[int]:
    """All descendants of processes, as /proc has them."""
    parents: Dict[int, List[int]] = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(entry)
        if fields:
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, open_ = [], list(pids)
    while open_:
        for child in parents.get(open_.pop(), []):
            found.append(child)
            open_.append(child)
    return found


def seconds(pid: int) -> float:
    """Processor time of a process and of those that it started, as a compiler; 0 where that is not to be seen. It only grows:
    the time of one that ended is its parent's as soon as the parent has waited for it (fields 13 and 14). If that happens while
    all are read, a time may be read twice or not at all; so all are read until nothing moved between two readings."""
    entries = [pathlib.Path(f"/proc/{each}/stat") for each in [pid, *below([pid])]]
    every = [_fields(entry) for entry in entries]
    for _ in range(LOOKS):
        before, every = every, [_fields(entry) for entry in entries]
        if [fields[13:15] for fields in before] == [fields[13:15] for fields in every]:
            break
    return sum(sum(map(int, fields[11:15])) for fields in every if fields) / os.sysconf("SC_CLK_TCK")
