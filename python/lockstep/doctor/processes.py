# SPDX-License-Identifier: Apache-2.0
"""What /proc says of processes: which others they started, and how long all of them computed."""
from __future__ import annotations

import os
import pathlib
from typing import Dict, List, Sequence


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
    the time of one that ended is its parent's as soon as the parent has waited for it (fields 13 and 14), which is read last."""
    every = [_fields(pathlib.Path(f"/proc/{each}/stat")) for each in reversed([pid, *below([pid])])]
    return sum(sum(map(int, fields[11:15])) for fields in every if fields) / os.sysconf("SC_CLK_TCK")
