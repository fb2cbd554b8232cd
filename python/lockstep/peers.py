# SPDX-License-Identifier: Apache-2.0
"""The replicas of one step that run as threads of this process, as a layer sees them that needs them all."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, Optional, Sequence

_local = threading.local()


class MeetingStopped(RuntimeError):
    """Another replica failed, or ended while this one waited for it."""


class Meeting:
    """Where the threads of `replicas` replicas meet: each brings something, the last one to come computes every
    replica's result."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self._condition = threading.Condition()
        self._brought: dict[int, Any] = {}
        self._results: Optional[list] = None
        self._error: Optional[BaseException] = None
        self._taken = 0
        self._left = 0
        self._stopped = False

    def meet(self, replica: int, mine: Any, joint: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        """The result of this replica of joint([what each brought]), which one thread calls when all have come."""
        with self._condition:
            self._condition.wait_for(lambda: self._results is None or self._stopped)
            self._check()
            self._brought[replica] = mine
            if len(self._brought) == self.replicas:
                try:
                    self._results = list(joint([self._brought[r] for r in range(self.replicas)]))
                except BaseException:
                    self._stop()
                    raise
                self._condition.notify_all()
            else:
                self._check_left()
                self._condition.wait_for(lambda: self._results is not None or self._stopped)
                self._check()
            assert self._results is not None
            result = self._results[replica]
            self._taken += 1
            if self._taken == self.replicas:
                self._brought, self._results, self._taken = {}, None, 0
                self._condition.notify_all()
            return result

    def leave(self) -> None:
        """A replica has ended. Throws off those that wait for it."""
        with self._condition:
            self._left += 1
            if self._brought and self._results is None:
                self._stop()

    def stop(self) -> None:
        """A replica has failed."""
        with self._condition:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._condition.notify_all()

    def _check_left(self) -> None:
        if self._left:
            self._stop()
            self._check()

    def _check(self) -> None:
        if self._stopped:
            raise MeetingStopped(
                "a replica failed or ended while this one waited for it in a synchronised layer; expected all replicas "
                "to run the same layers"
            )


class Peers:
    """The replica that a thread runs, and where it meets the others."""

    def __init__(self, meeting: Meeting, replica: int) -> None:
        self.meeting, self.replica, self.replicas = meeting, replica, meeting.replicas

    def meet(self, mine: Any, joint: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
        return self.meeting.meet(self.replica, mine, joint)


def current_peers() -> Optional[Peers]:
    """The peers of this thread's replica; None where no replica runs."""
    return getattr(_local, "peers", None)


@contextlib.contextmanager
def peers_scope(peers: Optional[Peers]) -> Iterator[None]:
    """Sets them for this thread."""
    outer = current_peers()
    _local.peers = peers
    try:
        yield
    finally:
        _local.peers = outer
