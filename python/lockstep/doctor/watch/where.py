# SPDX-License-Identifier: Apache-2.0
"""Where in the program a call comes from."""
from __future__ import annotations

import os
import sys
import sysconfig
from typing import Dict, List, Optional

_known: Dict[str, bool] = {}
_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = tuple(
    os.path.abspath(path) + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if path
)
_PARTS = ("site-packages", "dist-packages")
_PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep  # lockstep itself


def is_of_program(filename: str) -> bool:
    """Whether a source is the program's own: not the standard library's, not an installed package's, not ours."""
    known = _known.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        known = not (
            filename.startswith("<")
            or path.startswith(_STANDARD)
            or path.startswith(_PACKAGE)
            or any(f"{os.sep}{part}{os.sep}" in path for part in _PARTS)
        )
        _known[filename] = known
    return known


def frames(limit: int = 6) -> List[str]:
    """The program's own frames, the innermost first, as file:line."""
    found: List[str] = []
    frame: Optional[object] = sys._getframe(1)
    depth = 0
    while frame is not None and len(found) < limit and depth < 120:
        code = frame.f_code  # type: ignore[attr-defined]
        if is_of_program(code.co_filename):
            found.append(f"{os.path.abspath(code.co_filename)}:{frame.f_lineno}")  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
        depth += 1
    return found


def here() -> str:
    found = frames(1)
    return found[0] if found else ""
