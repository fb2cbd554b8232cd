# SPDX-License-Identifier: Apache-2.0
"""nondeterministic-operation: where two runs of one seed part. Operations are compared in the order in which they ran;
the first one whose result differs is to blame if it took the same, else what came to it from outside of torch."""
from __future__ import annotations

import dataclasses
from typing import Iterator, List, Optional, Tuple

from ..findings import Finding
from ..logs import Rank, Run
from ..sources import source

_ALGORITHM = """torch.use_deterministic_algorithms(True)   # torch's deterministic algorithm, or an error where there is none
# on GPUs also, in the environment: CUBLAS_WORKSPACE_CONFIG=:4096:8"""
_OUTSIDE = """# seed what the layer takes from outside of torch, once, before the model is made:
random.seed(seed); numpy.random.seed(seed); generator = numpy.random.default_rng(seed)
# never the time, os.urandom, id(), or the order of a set (PYTHONHASHSEED=0 fixes that of strings)"""
_SEED = "random.seed(seed); numpy.random.seed(seed); torch.manual_seed(seed)   # before the model and the loaders are made"


@dataclasses.dataclass
class Operation:
    number: int
    name: str
    module: str
    node: str  # of the graph, where it runs backwards
    taken: int
    given: int
    random: bool
    where: str
    step: int

    @property
    def direction(self) -> str:
        return "backwards" if self.node else "forwards"


def _operations(rank: Rank) -> Iterator[Operation]:
    number = 0
    for event in rank.of("ops"):
        for name, module, node, taken, given, is_random, where, step in event["rows"]:
            yield Operation(number, name, module, node, taken, given, bool(is_random), where, step)
            number += 1


def _parting(one: Rank, two: Rank) -> Optional[Tuple[str, Operation, Operation]]:
    """The first operation at which two runs of a rank part, and how."""
    for first, second in zip(_operations(one), _operations(two)):
        if first.name != second.name:
            return "other operations", first, second
        if first.given != second.given:
            if first.taken == second.taken:
                return "operation", first, second
            return ("generator" if first.random else "outside"), first, second
    return None


def _last_place(rank: Rank, at: Operation) -> str:
    if at.where:
        return at.where
    return next((each.where for each in _operations(rank) if each.module == at.module and each.where), "")


def _differ_at_first(one: Rank, two: Rank) -> bool:
    """Whether the runs begin with different weights."""
    first, second = (next(iter(rank.of("weights")), None) for rank in (one, two))
    return bool(first and second and first["h"] != second["h"])


def _unseeded(rank: Rank, what: str, where: str) -> Finding:
    return Finding(
        "nondeterministic-operation", "note", f"The runs cannot be compared: {what}.", [f"rank {rank.number}, before step 0"],
        [rank.number], where, "No run can be repeated, and a fault that one shows may not come again.", _SEED)  # fmt: skip


def _finding(how: str, one: Rank, two: Rank, at: Operation, other: Operation, runs: int) -> Finding:
    place = _last_place(one, at)
    module = f"'{at.module}'" if at.module else "no module"
    of = f"the backward pass of {module} ({at.node})" if at.node else module
    evidence = [f"step {at.step}, rank {one.number}, operation {at.number}: {at.name} in {of}, at {source.short([place])}"]
    rests = ""
    if how == "operation":
        summary = f"The operation {at.name} gives other results for the same inputs."
        evidence.append(f"what it took has the same hash in both runs ({at.taken:x}), what it gave has not "
                        f"({at.given:x} and {other.given:x})")  # fmt: skip
        fix = _ALGORITHM
        if at.name.startswith(("from_", "_to_copy", "copy_", "lift_fresh")):
            fix = _OUTSIDE
    elif how == "generator":
        summary = "A generator of random numbers is in another state in each run."
        evidence.append(f"{at.name} draws from it; all operations before gave the same results")
        fix = _OUTSIDE if at.step or at.number else _SEED
    elif how == "outside":
        summary = "Something from outside of torch's operations differs from run to run."
        evidence.append("all operations before gave the same results, and this one took something else: numbers of Python's "
                        "or numpy's, the time, or memory that nothing has written")  # fmt: skip
        fix, rests = _OUTSIDE, "That the same program was run twice. To be sure, look at what this line makes tensors of."
    else:
        summary = "The runs take different ways through the program."
        evidence.append(f"one calls {at.name}, the other {other.name}, after the same results until then")
        fix, rests = _OUTSIDE, "The order of operations in one thread."
    return Finding(
        "nondeterministic-operation", "warning", summary, evidence, [one.number], place,
        f"From step {at.step} on {runs} runs of one seed differ: results cannot be repeated, nor changes be compared.", fix,
        rests)  # fmt: skip


def judge(runs: List[Run]) -> List[Finding]:
    """The findings of two or more runs of one command."""
    found: List[Tuple[int, int, Finding]] = []
    for again in runs[1:]:
        for one, two in zip(runs[0].ranks, again.ranks):
            if _differ_at_first(one, two):
                where = next((each["where"] for each in one.of("optimizer")), "")
                return [_unseeded(one, "they begin with different weights, since nothing seeds torch", where)]
            parting = _parting(one, two)
            if parting is not None:
                how, at, other = parting
                if how == "generator" and at.step == 0 and not at.module:
                    return [_unseeded(one, f"{at.name} draws from a generator that nothing seeds", at.where)]
                found.append((at.step, at.number, _finding(how, one, two, at, other, len(runs))))
    found.sort(key=lambda each: each[:2])
    return [found[0][2]] if found else []
