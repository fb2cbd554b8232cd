# SPDX-License-Identifier: Apache-2.0
"""Where in the program a call comes from."""
from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any, Dict, List, Optional

_known: Dict[str, str] = {}  # the absolute paths of sources that are the program's own; empty for others
_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = tuple(
    os.path.abspath(path) + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path
)
_PARTS = ("site-packages", "dist-packages")
_PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep  # lockstep itself


def path_of(filename: str) -> str:
    """The absolute path of a source of the program's own: not the standard library's, an installed package's, or ours, for
    which it is empty."""
    known = _known.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        foreign = filename.startswith("<") or path.startswith(_STANDARD) or path.startswith(_PACKAGE)
        foreign = foreign or any(f"{os.sep}{part}{os.sep}" in path for part in _PARTS)
        known = _known[filename] = "" if foreign else path
    return known


def is_of_program(filename: str) -> bool:
    return bool(path_of(filename))


def frames(limit: int = 6) -> List[str]:
    """The program's own frames, the innermost first, as file:line."""
    found: List[str] = []
    frame: Any = sys._getframe(1)
    depth = 0
    while frame is not None and len(found) < limit and depth < 120:
        path = path_of(frame.f_code.co_filename)
        if path:
            found.append(f"{path}:{frame.f_lineno}")
        frame = frame.f_back
        depth += 1
    return found


def within(name: str) -> bool:
    """Whether a function of this name is being called, of the program's or of a library."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def here() -> str:
    found = frames(1)
    return found[0] if found else ""


def number(value: Any) -> Optional[float]:
    """The value of a number, or of a tensor or an array that is one; none for anything else."""
    kind = type(value)
    if kind is int or kind is float:
        return float(value)
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == () and value.dtype.kind in "fiu":
        return float(value)
    if kind.__name__ == "Tensor" and kind.__module__ == "torch" and value.dim() == 0 and value.device.type == "cpu":
        return None if value.is_complex() else float(value.detach())
    return None


def _add(found: Dict[str, float], name: str, value: Any, depth: int) -> None:
    known = number(value)
    if known is not None:
        found.setdefault(name, known)
        return
    if depth:
        return
    if type(value) is dict and len(value) <= 16:
        inside = value
    elif hasattr(value, "__dict__") and is_of_program(getattr(sys.modules.get(type(value).__module__), "__file__", None) or "<"):
        inside = value.__dict__
    elif isinstance(value, (list, tuple)) and 0 < len(value) <= 4:
        inside = dict(enumerate(value))
    else:
        return
    for key, each in list(inside.items())[:16]:
        _add(found, f"{name}.{key}", each, 1)


def numbers(frames_wanted: int = 2, most: int = 40) -> Dict[str, float]:
    """The numbers that the program's innermost functions hold, by the names of their variables."""
    found: Dict[str, float] = {}
    frame: Any = sys._getframe(1)
    while frame is not None and frames_wanted:
        if is_of_program(frame.f_code.co_filename):
            frames_wanted -= 1
            for name, value in list(frame.f_locals.items()):
                if len(found) < most and not name.startswith("__"):
                    _add(found, name, value, 0)
        frame = frame.f_back
    return found
