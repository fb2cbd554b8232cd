# SPDX-License-Identifier: Apache-2.0
"""A run: its ranks, their events, and the passes over loaders that they made."""
from __future__ import annotations

import array
import collections
import dataclasses
import functools
import json
import pathlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

Event = Dict[str, Any]


@dataclasses.dataclass
class Loader:
    """A rank's loader; `key` names it on all ranks."""

    number: int
    key: str
    about: Event


@dataclasses.dataclass
class Step:
    """One of a rank's steps, and where its time went, without what others had the cores for."""

    number: int
    begun: float
    seconds: float
    spans: Dict[str, float]  # of the parts that are watched
    clock: float  # what the clock says, with what others had the cores for

    @property
    def rest(self) -> float:
        """What went by in the program's own lines."""
        return self.seconds - sum(self.spans.values())


@dataclasses.dataclass
class Pass:
    """An iteration over a loader."""

    loader: Loader
    number: int
    begun: float
    where: str
    held: Dict[str, float] = dataclasses.field(default_factory=dict)  # the program's variables when it began
    batches: List[Event] = dataclasses.field(default_factory=list)
    ids: List[List[int]] = dataclasses.field(default_factory=list)
    ended: bool = False
    end: float = float("inf")
    backwards: int = 0

    @property
    def trains(self) -> bool:
        return self.backwards > 0

    def all_ids(self) -> List[int]:
        """Of the batches that were handed out."""
        return [each for batch in self.ids[: len(self.batches) or None] for each in batch]

    def rows(self) -> List[int]:
        return [row for batch in self.batches for row in batch["rows"]]


class Rank:
    def __init__(self, number: int, hello: Event, events: Sequence[Event]) -> None:
        self.number, self.hello = number, hello
        self.events = list(events)
        self._by_kind: Dict[str, List[Event]] = collections.defaultdict(list)
        for each in events:
            self._by_kind[each["e"]].append(each)
        self.workers: List[List[Event]] = []  # fetches of each loader worker

    def of(self, kind: str) -> List[Event]:
        return self._by_kind.get(kind, [])

    @property
    def steps(self) -> int:
        return max((each["s"] for each in self.of("step")), default=0)

    @functools.cached_property
    def made_steps(self) -> List[Step]:
        """From the second one on: the first has no beginning that was seen."""
        last: Optional[Event] = None
        spans: Dict[str, float] = collections.defaultdict(float)
        made: List[Step] = []
        for each in self.of("step"):
            for kind, seconds in (each.get("spans") or {}).items():
                spans[kind] += seconds
            if each["n"] == each["s"]:  # of the optimiser that makes most
                if last is not None:
                    took, queued = each["t"] - last["t"], each["queued"] - last["queued"]
                    made.append(Step(each["s"], last["t"], max(took - queued, 1e-6), dict(spans), took))
                last, spans = each, collections.defaultdict(float)
        return made

    @functools.cached_property
    def loaders(self) -> Dict[int, Loader]:
        found: Dict[int, Loader] = {}
        seen: Dict[str, int] = collections.Counter()
        for about in self.of("loader"):
            key = f"{about['where']} {about['dataset']} {'/'.join(about['samplers'][:1])}"
            found[about["loader"]] = Loader(about["loader"], f"{key} #{seen[key]}", about)
            seen[key] += 1
        return found

    @functools.cached_property
    def passes(self) -> Dict[Tuple[str, int], Pass]:
        """By the loader's key and the number of the pass."""
        made: Dict[Tuple[int, int], Pass] = {}
        backwards = [each["t"] for each in self.of("backward")]
        for each in self.events:
            kind = each["e"]
            if kind == "pass" and each["loader"] in self.loaders:
                loader = self.loaders[each["loader"]]
                made[(loader.number, each["n"])] = Pass(loader, each["n"], each["t"], each["where"], each["held"])
                earlier = made.get((loader.number, each["n"] - 1))
                if earlier is not None and not earlier.ended:
                    earlier.end = min(earlier.end, each["t"])
            run = made.get((each.get("loader", -1), each.get("n", -1))) if kind in ("index", "batch", "passend") else None
            if run is None:
                continue
            if kind == "index":
                run.ids.append(each["ids"])
            elif kind == "batch":
                run.batches.append(each)
            else:
                run.ended, run.end = True, each["t"]
        drawn = [(each["t"], each["loader"]) for each in self.events if each["e"] in ("pass", "batch")]
        for run in made.values():
            first, end = (run.batches[0]["t"], run.end) if run.batches else (float("inf"), run.end)
            if run.batches and not run.ended:  # left before its end: with its last batch, until another loader gives one
                last = run.batches[-1]["t"]
                end = min([end, *(t for t, loader in drawn if t > last and loader != run.loader.number)])
            run.backwards = sum(first <= t <= end for t in backwards)
        return {(run.loader.key, run.number): run for run in made.values()}


@dataclasses.dataclass
class Run:
    ranks: List[Rank]
    broken: List[Event] = dataclasses.field(default_factory=list)
    ended: str = ""

    @property
    def world(self) -> int:
        return len(self.ranks)

    @functools.cached_property
    def is_divided(self) -> bool:
        """Whether each rank has a part of the model of its own, as in a pipeline: ranks send to each other, and nothing
        brings gradients or weights together."""
        merges = any("reduce" in call["kind"] or "gather" in call["kind"] for _, call in self.of("call") if call["elements"] > 16)
        return bool(self.of("p2p")) and not merges and not self.of("ddp")

    def of(self, kind: str) -> List[Tuple[int, Event]]:
        return [(rank.number, each) for rank in self.ranks for each in rank.of(kind)]

    def shared_passes(self) -> List[Dict[int, Pass]]:
        """The passes that two or more ranks made, each as rank -> pass."""
        found: Dict[Tuple[str, int], Dict[int, Pass]] = {}
        for rank in self.ranks:
            for key, run in rank.passes.items():
                found.setdefault(key, {})[rank.number] = run
        return [each for each in found.values() if len(each) > 1]


def _read_file(path: pathlib.Path) -> List[Event]:
    events = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # the last line of a process that was ended
            continue
        if isinstance(event, dict) and "e" in event:
            if isinstance(event.get("rows"), str):  # hashes of examples
                event["rows"] = array.array("q", bytes.fromhex(event["rows"])).tolist()
            events.append(event)
    return events


_ACTIVE = ("step", "backward", "forward", "group", "call", "infer", "batch")


def _rank_of(hello: Event, events: Sequence[Event]) -> Optional[int]:
    groups = [each for each in events if each["e"] == "group"]
    if groups:
        return groups[-1]["rank"]
    return max(hello["rank"], 0) if any(each["e"] in _ACTIVE for each in events) else None


def read(folder: str) -> Run:
    """All logs of a folder. Processes that neither trained nor talked to others are left out."""
    ranks: Dict[int, Rank] = {}
    pids: Dict[Tuple[str, int], int] = {}
    workers, broken = [], []
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        events = _read_file(path)
        if not events or events[0]["e"] != "hello":
            continue
        hello, events = events[0], events[1:]
        broken += [each for each in events if each["e"] == "broken"]
        number = _rank_of(hello, events)
        if number is None:
            workers.append((hello, events))
        elif number not in ranks or len(ranks[number].events) < len(events):
            ranks[number] = Rank(number, hello, events)
            pids[(hello["host"], hello["pid"])] = number
    for hello, events in workers:
        owner = pids.get((hello["host"], hello["ppid"]))
        fetches = [each for each in events if each["e"] == "fetch"]
        if owner is not None and fetches:
            ranks[owner].workers.append(fetches)
    return Run([ranks[number] for number in sorted(ranks)], broken)
