# SPDX-License-Identifier: Apache-2.0
"""weights-differ and buffers-differ: ranks hold different models, since when, and why where that can be seen."""
from __future__ import annotations

import bisect
from typing import Dict, List, Optional, Tuple

from ..findings import Finding
from ..logs import Rank, Run
from . import wrapping

_INITIAL = """for tensor in [*model.parameters(), *model.buffers()]:
    torch.distributed.broadcast(tensor.data, src=0)   # before the first step; DistributedDataParallel does it itself"""
_BUFFERS = """model = DistributedDataParallel(model)   # without broadcast_buffers=False: it sends rank 0's in each step
# or reduce the buffer where it is updated: torch.distributed.all_reduce(value); value /= world_size"""

_SKIP = """skips = torch.tensor(float(skip))   # this rank's wish
torch.distributed.all_reduce(skips)   # on every rank, in every step: all leave the step out, or none
if skips == 0:
    optimizer.step()"""
_LOADED = """checkpoint = torch.load(path, map_location="cpu")   # on every rank
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])"""
_ALIKE = """# build the optimiser and its schedule from the same numbers on all ranks; or give all ranks those of rank 0:
numbers = [optimizer.state_dict()["param_groups"]]
torch.distributed.broadcast_object_list(numbers, src=0)   # before the first step
for group, of_rank_0 in zip(optimizer.param_groups, numbers[0]):
    group.update({**of_rank_0, "params": group["params"]})"""

Table = Dict[int, Dict[Tuple[int, int], Dict[str, int]]]  # root -> (pass, backward passes until then) -> name -> hash


def tables(rank: Rank, kind: str) -> Table:
    names: Dict[int, List[str]] = {}
    table: Table = {}
    joins = [each["t"] for each in rank.of("join")]  # after the first one ranks have made other numbers of steps
    for each in rank.of(kind):
        if len(joins) > 1 and each["t"] > joins[1]:
            break
        if "names" in each:
            names[each["root"]] = each["names"]
        table.setdefault(each["root"], {})[(each["n"], each["b"])] = dict(zip(names.get(each["root"], []), each["h"]))
    return table


def difference(one: Table, two: Table) -> Optional[Tuple[int, int, List[str], int, bool]]:
    """(root, pass, tensors, how many there are, whether it begins so) of the first difference that stays."""
    for root in sorted(set(one) & set(two)):
        common = sorted(set(one[root]) & set(two[root]))
        common = [n for n in common if set(one[root][n]) == set(two[root][n])]
        apart = [n for n in common if one[root][n] != two[root][n]]
        # Programs that average weights now and then are equal again after it.
        if apart and apart[-1] == common[-1] and (len(apart) > 1 or len(common) < 3):
            first = apart[0]
            if any(n > first and n not in apart for n in common):
                continue
            names = [name for name, value in one[root][first].items() if two[root][first][name] != value]
            return root, first[0], names, len(one[root][first]), first == common[0] and first[0] == 0
    return None


def _why(run: Run, other: Rank, root: int, initial: bool) -> Tuple[str, str, str]:
    """(the reason, where, the fix)."""
    first = run.ranks[0]
    around = [each for each in first.of("forward") if each["around"]]
    if around:
        place = next((each["where"][0] for each in around if each["where"]), "")
        return "the forward pass goes around DistributedDataParallel, which then averages nothing", place, wrapping.fix(run)
    place = next((each["where"] for _, each in run.of("ddp")), "")
    if initial:
        return "the ranks begin with different weights", place or _made_at(first), _INITIAL
    settings = [[(e["opt"], e["n"], e["settings"]) for e in rank.of("gradients")] for rank in (first, other)]
    for mine, theirs in zip(*settings):
        if mine[:2] == theirs[:2] and mine[2] != theirs[2]:
            where = next((e["where"] for e in first.of("optimizer") if e["opt"] == mine[0]), "")
            parts = [f"{key} {value} and {theirs[2][g].get(key)}" for g, group in enumerate(mine[2])
                     for key, value in group.items() if g < len(theirs[2]) and theirs[2][g].get(key) != value]  # fmt: skip
            return (f"the optimisers are not set alike ({'; '.join(parts[:2])})", where,
                    _ALIKE)  # fmt: skip
    if _states_part(first, other):
        return ("gradients are equal, and what the optimisers keep of earlier steps (momentum) is not: perhaps a checkpoint that one "
                "rank loaded", _made_at(first), _LOADED)  # fmt: skip
    skipped = _skipped(first, other)
    if skipped:
        return skipped, _made_at(first), _SKIP
    hashes = [{(e["opt"], e["n"]): e["h"] for e in rank.of("gradients")} for rank in (first, other)]
    if any(hashes[0][key] != hashes[1][key] for key in set(hashes[0]) & set(hashes[1])):
        why = "" if wrapping.is_wrapped(run, root) else ", and nothing wraps the model in DistributedDataParallel"
        why = f": {wrapping.NEVER_SYNCS}" if wrapping.never_syncs(run) else why
        return f"the optimiser is given different gradients on the ranks{why}", place or _made_at(first), wrapping.fix(run, root)
    return "gradients are equal: something else writes to the weights on one rank", place, \
        "lockstep.divergence_watch(model)   # an error in the step after which they differ"


def _states_part(one: Rank, two: Rank) -> bool:
    """Whether the states of an optimiser differ between ranks before any gradient that was looked at does."""
    theirs = {(each["opt"], each["n"]): each for each in two.of("gradients")}
    for mine in one.of("gradients"):
        other = theirs.get((mine["opt"], mine["n"]))
        if other is not None and mine["b"] == other["b"]:
            if mine["state"] != other["state"]:
                return True
            if mine["h"] != other["h"]:
                return False
    return False


def _skipped(one: Rank, two: Rank) -> str:
    """Whether a rank left out a step of an optimiser between the same backward passes; empty where none did."""
    made = []
    for rank in (one, two):
        marks = [each["t"] for each in rank.of("backward")]
        made.append({(each["opt"], bisect.bisect(marks, each["t"])) for each in rank.of("step")})
    count = min(len(rank.of("backward")) for rank in (one, two))
    apart = sorted((number, opt) for opt, number in made[0] ^ made[1] if 0 < number < count)
    if not apart:
        return ""
    number, opt = apart[0]
    who, not_who = (one, two) if (opt, number) in made[0] else (two, one)
    return f"after backward pass {number - 1} rank {who.number} makes a step of its optimiser and rank {not_who.number} does not"


def _made_at(rank: Rank) -> str:
    return next((each["where"] for each in rank.of("optimizer")), "")


def _step_of(rank: Rank, kind: str, root: int, number: int) -> int:
    return next((each["s"] for each in rank.of(kind) if each["root"] == root and each["n"] == number), number)


def judge(run: Run) -> List[Finding]:
    if run.world < 2 or run.is_divided:
        return []
    found: List[Finding] = []
    first = run.ranks[0]
    for kind, code in (("weights", "weights-differ"), ("buffers", "buffers-differ")):
        mine = tables(first, kind)
        for other in run.ranks[1:]:
            apart = difference(mine, tables(other, kind))
            if apart is None:
                continue
            root, number, names, count, initial = apart
            step = _step_of(first, kind, root, number)
            evidence = [f"before step {step} of the model of {_class(first, root)}: {len(names)} of {count} tensors differ "
                        f"between ranks {first.number} and {other.number}, the first is '{names[0]}'"]  # fmt: skip
            if kind == "weights":
                reason, where, fix = _why(run, other, root, initial)
                evidence.append(f"why: {reason}")
                cost = "The ranks train different models; what is saved is one of them, trained on its part alone."
            else:
                where = next((each["where"] for _, each in run.of("ddp")), "") or _made_at(first)
                cost, fix = "Evaluation depends on the rank, and a checkpoint keeps the buffers of one.", _BUFFERS
            found.append(Finding(code, "error" if kind == "weights" else "warning",
                                 f"Ranks hold different {kind} from {'the beginning' if initial else f'step {step}'} on.",
                                 evidence, [first.number, other.number], where, cost, fix))  # fmt: skip
            break
    return found


def _class(rank: Rank, root: int) -> str:
    return next((each["cls"] for each in rank.of("root") if each["root"] == root), "?")
