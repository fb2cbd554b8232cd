# SPDX-License-Identifier: Apache-2.0
"""worker-seeds and same-random-stream: random numbers that should differ between workers, ranks and epochs, and do not."""
from __future__ import annotations

import collections
from typing import Dict, List, Tuple

from ..findings import Finding
from ..logs import Run

_SEED_WORKER = """def seed_worker(worker):   # torch.initial_seed() is another one in each worker and each epoch
    seed = (torch.initial_seed() + 1000003 * rank) % 2**32
    {seeds}
loader = DataLoader(..., worker_init_fn=seed_worker)"""
_SEEDS = "random.seed(seed); numpy.random.seed(seed); torch.manual_seed(seed)"
_HELD = {  # the class of a generator -> how the worker's copy of the data set gets one of its own
    "Random": "{name} = random.Random(seed)",
    "RandomState": "{name} = numpy.random.RandomState(seed)",
    "numpy.Generator": "{name} = numpy.random.default_rng(seed)",
    "torch.Generator": "{name} = torch.Generator().manual_seed(seed)",
}
_OF_DATASET = "torch.utils.data.get_worker_info()"
_MAIN = {"random": "random.seed(seed + rank)", "numpy.random": "numpy.random.seed(seed + rank)",
         "torch": "torch.manual_seed(seed + rank)"}  # fmt: skip
_ONCE = "   # once, after the model was made: not in each epoch"
_MASK_FIX = """torch.manual_seed(seed)              # the same weights on all ranks
model = DistributedDataParallel(Net())
torch.manual_seed(seed + 1 + rank)   # after that other masks on each"""

Key = Tuple[int, int, int, int]  # rank, loader, pass, worker


def _drawn(run: Run) -> Dict[str, Dict[Key, List[int]]]:
    """For each generator and each stream of fetches, the states before those that drew from it."""
    found: Dict[str, Dict[Key, List[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for rank in run.ranks:
        for fetches in [rank.of("fetch"), *rank.workers]:
            for each in fetches:
                for name, state in each["drawn"].items():
                    found[name][(rank.number, each["loader"], each["n"], each["worker"])].append(state)
    return found


def _same(one: List[int], two: List[int]) -> bool:
    count = min(len(one), len(two))
    return count >= 2 and sum(a == b for a, b in zip(one, two)) >= 0.8 * count and len(set(one[:count])) > 1


def _kinds(run: Run) -> Dict[str, str]:
    """The classes of the generators that data sets hold, by name."""
    fetches = [each for rank in run.ranks for some in [rank.of("fetch"), *rank.workers] for each in some]
    return {name: kind for each in fetches for name, kind in (each.get("kinds") or {}).items()}


def _fix(name: str, worker: int, kinds: Dict[str, str]) -> str:
    """For what draws from the generator `name` in a worker, or (-1) in the program's own process."""
    held = _HELD.get(kinds.get(name, ""), "")
    if worker < 0:
        return held.format(name=name).replace("seed)", "seed + rank)") + _ONCE if held else _MAIN.get(name, _MAIN["random"]) + _ONCE
    return _SEED_WORKER.format(seeds=held.format(name=f"{_OF_DATASET}.{name}") if held else _SEEDS)


def judge_workers(run: Run) -> List[Finding]:
    found: Dict[str, List[str]] = collections.defaultdict(list)
    ranks = set()
    loaders = {(rank.number, number): loader for rank in run.ranks for number, loader in rank.loaders.items()}
    where, soft, fix = "", True, ""
    for name, streams in _drawn(run).items():
        keys = sorted(streams)
        for number, first in enumerate(keys):
            for second in keys[number + 1 :]:
                differs = [a != b for a, b in zip(first, second)]
                if sum(differs) != 1 or differs[1] or not _same(streams[first], streams[second]):
                    continue
                loader = loaders.get(first[:2])
                about = loader.about if loader is not None else None
                if about is not None:
                    where = where or about["where"]
                soft = soft and about is not None and about["iterable"]
                ranks |= {first[0], second[0]}
                fix = fix or _fix(name, first[3], _kinds(run))
                worker = f"worker {first[3]}" if first[3] >= 0 else "the main process"
                if differs[0]:
                    found["ranks"].append(f"{name}: {worker} of ranks {first[0]} and {second[0]}, epoch {first[2]}")
                elif differs[3]:
                    found["workers"].append(f"{name}: workers {first[3]} and {second[3]} of rank {first[0]}, epoch {first[2]}")
                else:
                    found["epochs"].append(f"{name}: {worker} of rank {first[0]}, epochs {first[2]} and {second[2]}")
    if not found:
        return []
    who = " and ".join(sorted(found))
    evidence = [f"same states of the generator before each example batch: {lines[0]}" for lines in found.values()]
    rests = ("The data set is iterable: where it draws one order on all ranks and then takes its part of it, that is right. "
             "To be sure, look at what it draws for.") if soft else ""  # fmt: skip
    return [Finding("worker-seeds", "note" if soft else "warning",
                    f"Different {who} draw the same random numbers for their examples.", evidence, sorted(ranks), where,
                    "Augmentation varies less than it seems: the same crops and noise come again.", fix,
                    rests)]  # fmt: skip


def judge_masks(run: Run) -> List[Finding]:
    if run.world < 2:
        return []
    first = run.ranks[0]
    drops = [name for each in first.of("root") for name in each["drops"]]
    where = next((each["where"] for each in first.of("root") if each["drops"] or not drops), "")
    one = {(e["root"], e["n"]): e["before"] for e in first.of("random") if e["drawn"]}
    same_ranks, steps = [], 0
    for other in run.ranks[1:]:
        two = {(e["root"], e["n"]): e["before"] for e in other.of("random") if e["drawn"]}
        common = sorted(set(one) & set(two))
        equal = [key for key in common if one[key] == two[key]]
        if len(common) >= 2 and len(equal) >= 0.8 * len(common):
            same_ranks.append(other.number)
            steps = len(equal)
    if not same_ranks:
        return []
    what = f"dropout ({', '.join(drops[:3])})" if drops else "the forward pass"
    return [Finding("same-random-stream", "warning", f"All ranks draw the same random numbers in {what}.",
                    [f"in all {steps} steps that were looked at, the generators of ranks {first.number} and {same_ranks[0]} "
                     "were in the same state before the forward pass, and it drew from them"],
                    [first.number, *same_ranks], where,
                    "Masks repeat between the ranks' shares of a batch: fewer different masks a step than on one device.",
                    _MASK_FIX)]  # fmt: skip
