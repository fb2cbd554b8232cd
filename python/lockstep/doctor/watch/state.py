# SPDX-License-Identifier: Apache-2.0
"""What all observers of a process share: its log, how far training is, and the guard that they run under."""
from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Set

from .log import Log

log = Log()
steps = 0  # of the optimiser that made most
backwards = 0
loops = 0  # over loaders
calls = 0  # of collectives
world = 1
rank = 0
_local = threading.local()
_off: Set[str] = set()
_resets: List[Callable[[], None]] = []
_main = 0


def begin(folder: str) -> None:
    global _main
    _main = threading.get_ident()
    log.open(folder)
    atexit.register(_end)
    shown = sys.excepthook

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        if log.begun:
            log.add("raised", error=f"{kind.__name__}: {error}"[:200])
        shown(kind, error, trace)

    sys.excepthook = excepthook
    os.register_at_fork(after_in_child=_after_fork)


def _end() -> None:
    if log.begun:
        log.add("exit", s=steps)
        log.flush()


def on_reset(function: Callable[[], None]) -> Callable[[], None]:
    """Registers what a forked process begins with."""
    _resets.append(function)
    return function


def _after_fork() -> None:
    global steps, backwards, loops, calls, _main, _schedule
    if _schedule >= 0:
        os.close(_schedule)
    _schedule = -1
    _main = threading.get_ident()
    steps = backwards = loops = calls = 0
    _local.busy = False
    _spans.clear()
    _open.clear()
    log.after_fork()
    for reset in _resets:
        reset()


_counts: Dict[str, int] = {}


def count(kind: str) -> int:
    """0, 1, 2, ...: numbers for the program's objects, of which none is given again when its object is gone."""
    _counts[kind] = _counts.get(kind, -1) + 1
    return _counts[kind]


def busy() -> bool:
    return getattr(_local, "busy", False)


def in_main_thread() -> bool:
    return threading.get_ident() == _main


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """An observer's own code: never entered from itself, never raises, off after its first failure."""
    name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        if getattr(_local, "busy", False) or name in _off:
            return None
        _local.busy = True
        begun = time.perf_counter()
        try:
            return function(*arguments, **options)
        except Exception as error:
            _off.add(name)
            log.add("broken", observer=name, error=f"{type(error).__name__}: {error}"[:300])
            return None
        finally:
            _local.busy = False
            log.spent += time.perf_counter() - begun

    return run


def is_due(number: int) -> bool:
    """Whether the costly observers look at step `number`: the first ones, then ever fewer. A rule, so that ranks look at
    the same ones."""
    return number in _due


def _make_due() -> Set[int]:
    chosen, at = set(range(4)), 4.0
    while at < 1e7:
        chosen.add(int(at))
        at = max(at * 1.35, at + 1)
    return chosen


_due = _make_due()
_spans: Dict[str, float] = {}  # seconds since the last step, of the main thread
_open: List[float] = []  # seconds of the spans inside of each span that is open


_schedule = -1  # the main thread's account of its waiting, held open: it is read at each span's ends


def begin_span() -> float:
    if not in_main_thread():
        return 0.0
    _open.append(0.0)
    return time.perf_counter() - queued()


def end_span(kind: str, begun: float) -> None:
    """Adds what has gone by since `begun` to its kind, without the spans inside of it, and without the time for which
    others had the cores."""
    if in_main_thread() and _open:
        took, inside = time.perf_counter() - queued() - begun, _open.pop()
        _spans[kind] = _spans.get(kind, 0.0) + took - inside
        if _open:
            _open[-1] += took


def queued() -> float:
    """Seconds for which the main thread was ready to run, and others had the cores; 0 where Linux does not say."""
    global _schedule
    try:
        if _schedule < 0:
            _schedule = os.open(f"/proc/self/task/{os.getpid()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(_schedule, 64, 0).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def take_spans() -> Dict[str, float]:
    found = {kind: round(seconds, 6) for kind, seconds in _spans.items()}
    _spans.clear()
    return found


def wraps_function(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts make(the function) in the function's place; where it is not there, nothing happens."""
    original = getattr(owner, name, None)
    if original is None:
        return
    try:
        setattr(owner, name, functools.wraps(original)(make(original)))
    except (AttributeError, TypeError) as error:
        log.add("broken", observer=f"{owner}.{name}"[:80], error=str(error))
