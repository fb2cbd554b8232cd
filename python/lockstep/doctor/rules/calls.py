# SPDX-License-Identifier: Apache-2.0
"""mismatched-collectives and uneven-steps: ranks that make different calls, or different numbers of steps."""
from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Tuple

from ..findings import Finding
from ..logs import Rank, Run

_MATCH = """# every rank of a group makes the same calls in the same order: move the collective out of what only
# some ranks do (if rank == 0: ...), and give it the same shape everywhere"""
_JOIN = """with model.join():   # where the loop has no collective of its own
    for batch in loader: ..."""
_EVEN = """# as many steps on all ranks: parts of one size of the whole data set (or lockstep.ExactSampler, without dropping any)
loader = DataLoader(dataset, batch_size={batch}, sampler=DistributedSampler(dataset, drop_last=True))
# or, where ranks must hold parts of other sizes, and the loop has no collective of its own:
#   with model.join():
#       for batch in loader: ..."""
_TOGETHER = """stops = torch.tensor(float(stop))   # this rank's wish
torch.distributed.all_reduce(stops)   # on every rank, where it is decided: all leave the loop, or none
if stops > 0:
    break"""
_SKIP = """skips = torch.tensor(float(skip))   # this rank's wish to leave the batch out
torch.distributed.all_reduce(skips)   # on every rank, for every batch: all leave it out, or none
if skips > 0:
    continue"""


def _calls(rank: Rank) -> Dict[str, List[dict]]:
    found: Dict[str, List[dict]] = {}
    for each in rank.of("call"):
        found.setdefault(each["group"], []).append(each)
    return found


def _short(places: Sequence[str]) -> str:
    if not places:
        return "a library"
    path, line = places[0].rsplit(":", 1)
    return f"{os.path.basename(path)}:{line}"


def _say(call: dict) -> str:
    shape = "".join(f" {each}" for each in call["shape"][:2])
    return f"{call['kind']}{shape} at {_short(call['where'])}"


_FREE = ("all_gather", "all_to_all", "gather_object", "all_gather_object", "scatter", "gather")  # ranks' shapes may differ


def _differ(one: dict, two: dict) -> bool:
    if one["kind"] != two["kind"]:
        return True
    if one["kind"].startswith(_FREE) or "object" in one["kind"]:
        return False
    return one["shape"] != two["shape"] or one["dtype"] != two["dtype"] or one["op"] != two["op"]


def _mismatch(run: Run) -> Optional[Finding]:
    every = [_calls(rank) for rank in run.ranks]
    for group in sorted({key for calls in every for key in calls}, key=lambda key: key != "world"):
        members = range(run.world) if group == "world" else [int(n) for n in group.split(",") if n.isdigit()]
        lists = [(run.ranks[m].number, every[m].get(group, [])) for m in members if m < run.world]
        for (rank, mine), (other, theirs) in ((lists[0], each) for each in lists[1:]):
            for number, (one, two) in enumerate(zip(mine, theirs)):
                if _differ(one, two):
                    return Finding(
                        "mismatched-collectives", "error", f"Ranks {rank} and {other} make different calls at the same time.",
                        [f"call {number} of group {group}: rank {rank}: {_say(one)}", f"rank {other}: {_say(two)}"],
                        [rank, other], one["where"][0] if one["where"] else "",
                        "The ranks wait for each other until the group's time-out, or take each other's data for their own.",
                        _MATCH)  # fmt: skip
    return None


def _left_over(run: Run) -> Optional[Finding]:
    """Of a program that went to its own end: calls that one rank made more than another."""
    if run.ended not in ("", "by itself") and not run.ended.startswith("process"):
        return None
    for group in sorted({each["group"] for _, each in run.of("call")}):
        members = [rank for rank in run.ranks if group == "world" or str(rank.number) in group.split(",")]
        calls = {rank.number: [each for each in rank.of("call") if each["group"] == group] for rank in members}
        few, many = (pick(members, key=lambda rank: len(calls[rank.number])) for pick in (min, max)) if len(members) > 1 else (None, None)
        if few is None or many is None or len(calls[few.number]) == len(calls[many.number]) or few.of("raised"):
            continue
        extra = calls[many.number][len(calls[few.number])]
        return Finding(
            "mismatched-collectives", "error", f"Rank {many.number} makes a call that rank {few.number} does not make.",
            [f"group {group}: {len(calls[many.number])} calls of rank {many.number}, {len(calls[few.number])} of rank {few.number}",
             f"the first that is left over: {_say(extra)}"], [few.number, many.number], extra["where"][0] if extra["where"] else "",
            "The ranks take each other's data for their own, or the program ends with an error.", _MATCH,
            "" if few.of("exit") or few.of("destroyed") else f"That nothing ended rank {few.number} from outside.")  # fmt: skip
    return None


def _last(rank: Rank) -> Tuple[str, List[str]]:
    """What a rank does at the end of its log."""
    ended, raised = False, False
    for each in reversed(rank.events):
        kind = each["e"]
        if kind in ("exit", "destroyed"):
            ended = True
        elif kind == "raised":
            raised = True
        elif kind in ("call", "enter"):
            return f"{'failed' if ended or raised else 'waits'} in {each['kind']}", each["where"]
        elif kind == "called" and each["left"]:
            return "waits in wait() or later", _place_of(rank, each)
        elif kind in ("called", "leave", "step", "batch", "forward", "passend"):
            return "raised an error" if raised else "has ended" if ended else "computes", []
    return "has ended" if ended else "does nothing", []


def _place_of(rank: Rank, called: dict) -> List[str]:
    """Where a call that was left was made."""
    return next((each["where"] for each in rank.of("call") if (each["group"], each["i"]) == (called["group"], called["i"])), [])


def _left_loops(rank: Rank) -> int:
    """The passes over loaders that a rank has gone through."""
    return len(rank.of("passend"))


def _leaves_early(rank: Rank) -> bool:
    """Whether a rank left its last loop over a loader before the end of it."""
    last = max((one for one in rank.passes.values() if one.trains), key=lambda one: one.begun, default=None)
    return last is not None and not last.ended


def _skips(run: Run) -> bool:
    """Whether a rank went through a whole epoch with fewer backward passes for its batches than another one."""
    for passes in run.shared_passes():
        if len({len(one.batches) - one.backwards for one in passes.values() if one.ended and one.trains}) > 1:
            return True
    return False


def _even(run: Run) -> str:
    about = next((one.loader.about for rank in run.ranks for one in rank.passes.values() if one.trains), None)
    if about is not None and about["iterable"]:
        return _JOIN
    return _EVEN.format(batch=about["batch"] if about is not None and about["batch"] else "...")


def _stuck(run: Run) -> Optional[Finding]:
    """Ranks that wait where the others do not come."""
    ends = {rank.number: _last(rank) for rank in run.ranks}
    waiting = [number for number, (what, _) in ends.items() if what.startswith(("waits", "failed"))]
    if run.ended != "hang" and not (waiting and any(what == "has ended" for what, _ in ends.values())):
        return None
    if any(what == "raised an error" for what, _ in ends.values()):
        return None  # the others wait for it, and its own message says why
    steps = {rank.number: rank.steps or len(rank.of("backward")) for rank in run.ranks}
    gone = [rank for rank in run.ranks if ends[rank.number][0] == "has ended"]
    passes = {rank.number: f" in {len(rank.of('backward'))} backward passes" if _skips(run) else "" for rank in run.ranks}
    lines = [f"rank {n}: {steps[n]} steps made{passes[n]}, {what}" + (f" at {_short(places)}" if places else "")
             for n, (what, places) in ends.items()]  # fmt: skip
    where = next((places[0] for _, places in ends.values() if places), "")
    if len(set(steps.values())) > 1 or len({_left_loops(rank) for rank in run.ranks}) > 1 or any(
            what == "has ended" for what, _ in ends.values()):  # fmt: skip
        return Finding("uneven-steps", "error", "Ranks make different numbers of steps, and wait for each other.",
                       lines, sorted(ends), where, "The program hangs until the group's time-out, or ends with an error.",
                       _SKIP if _skips(run) else _TOGETHER if any(map(_leaves_early, gone)) else _even(run))  # fmt: skip
    return Finding("mismatched-collectives", "error", "Ranks wait in different calls.", lines, sorted(ends), where,
                   "The program hangs until the group's time-out, or ends with an error.", _MATCH)  # fmt: skip


def _uneven(run: Run) -> Optional[Finding]:
    """Epochs of different lengths, whether or not they made the program hang."""
    if run.of("join"):
        return None
    for passes in run.shared_passes():
        if not all(each.ended and each.trains for each in passes.values()):
            continue
        counts = {rank: len(each.batches) for rank, each in passes.items()}
        if len(set(counts.values())) > 1:
            one = next(iter(passes.values()))
            lines = [f"epoch {one.number}: " + ", ".join(f"rank {r} {c} batches" for r, c in counts.items())]
            return Finding("uneven-steps", "error", "Ranks make different numbers of steps in an epoch.", lines,
                           sorted(counts), one.loader.about["where"],
                           "A rank waits in its collective for ranks that have left the loop.", _even(run))  # fmt: skip
    return None


def judge(run: Run) -> List[Finding]:
    if run.world < 2:
        return []
    uneven = _uneven(run)
    mismatch = _mismatch(run) or (None if uneven else _stuck(run) or _left_over(run))
    return [each for each in (uneven, mismatch) if each is not None]
