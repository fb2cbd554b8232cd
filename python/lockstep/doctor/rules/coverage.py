# SPDX-License-Identifier: Apache-2.0
"""missing-examples and padded-examples: an epoch that leaves examples out, or repeats some to fill up."""
from __future__ import annotations

import collections
from typing import Dict, List

from ..findings import Finding
from ..logs import Pass, Run
from ..sources import source

_EXACT = """# each example once an epoch, on any number of ranks; {whole} examples of all ranks together are a batch
sampler = lockstep.ExactSampler(dataset, batch_size={whole})
loader = DataLoader(dataset, batch_sampler=sampler)"""
_EVALUATE = """mine = torch.utils.data.Subset(dataset, range(rank, len(dataset), world_size))   # no padding, none left out
loader = DataLoader(mine, batch_size={batch})
# a rank may have an example more: evaluate model.module, which waits for no other rank in its forward pass, and merge
# sums, not tensors of examples: lockstep.metrics.Accuracy().all_merge(), or all_reduce of [correct, seen]"""
_CUT = """# once the parts of all ranks are gathered whole, put them into the sampler's order, and cut its repeats off:
every = torch.stack(parts, 1).flatten(0, 1)[:len(dataset)]   # parts: a tensor of each rank, as all_gather gives them"""
_ACCELERATE = "predicted, wanted = accelerator.gather_for_metrics((predicted, wanted))   # instead of gather: cuts repeats off"


def _is_dealt_to_more(by_rank: Dict[int, List[int]], size: int, world: int) -> bool:
    """Whether each rank was given the part that it would have among more ranks: a sampler that was told a wrong number."""
    for ranks in range(world + 1, 4 * world + 1):
        if all(size // ranks <= len(ids) <= -(-size // ranks) for ids in by_rank.values()):
            return True
    return False


def _cut_off(run: Run, passes: Dict[int, Pass]) -> str:
    """Where the program seems to cut repeats off after gathering the ranks' results; empty where it does not."""
    one, rank = passes[min(passes)], next(each for each in run.ranks if each.number == min(passes))
    first = one.batches[0]["t"] if one.batches else one.begun
    until = min((each["t"] for each in rank.of("backward") if each["t"] > first), default=float("inf"))
    for call in rank.of("call"):
        if first <= call["t"] < until and "gather" in call["kind"]:
            place = "gather_for_metrics" if call["cut"] else ""
            for where in call["where"]:
                place = place or source.cut_after(where, "object" in call["kind"])
            if place:
                return place
    return ""


def _gathers(run: Run, passes: Dict[int, Pass]) -> bool:
    """Whether ranks gather tensors of examples after a pass, or in it."""
    one, rank = passes[min(passes)], next(each for each in run.ranks if each.number == min(passes))
    until = min((each["t"] for each in rank.of("backward") if each["t"] > one.begun), default=float("inf"))
    calls = [each for each in rank.of("call") if one.begun <= each["t"] < until]
    return any(each["kind"].startswith("all_gather") and "object" not in each["kind"] and each["elements"] > 4 for each in calls)


def _fix(run: Run, passes: Dict[int, Pass], trains: bool, repeats: bool) -> str:
    about = next(iter(passes.values())).loader.about
    batch = about["batch"] or max((len(ids) for one in passes.values() for ids in one.ids), default=1)
    if trains:
        return _EXACT.format(whole=batch * run.world)
    if repeats and any("Shard" in name for name in about["samplers"]):
        return _ACCELERATE
    return _CUT if repeats and _gathers(run, passes) else _EVALUATE.format(batch=batch)


def _one(run: Run, passes: Dict[int, Pass], missed: List[frozenset]) -> List[Finding]:
    world, one = run.world, next(iter(passes.values()))
    about = one.loader.about
    size = about["size"]
    alike = all(p.loader.about["print"] == about["print"] for p in passes.values())
    if about["iterable"] or size <= 0 or not alike or not all(p.ended and p.ids for p in passes.values()):
        return []
    by_rank = {rank: p.all_ids() for rank, p in passes.items()}
    if any(len(ids) - len(set(ids)) > 0.02 * len(ids) + world for ids in by_rank.values()):
        return []  # drawn with replacement
    counts = collections.Counter(each for ids in by_rank.values() for each in ids)
    trains = any(p.trains for p in passes.values())
    if world > 1 and (len(passes) < world or any(len(set(ids)) == size for ids in by_rank.values())):
        return []  # a rank went through the whole set, or one worked alone
    found = []
    missing = size - len(counts)
    batch = max((len(ids) for p in passes.values() for ids in p.ids), default=1)
    ranks, what = sorted(passes), "training" if trains else "evaluation"
    if missing > 0:
        gone = frozenset(range(size)) - frozenset(counts)
        tail = missing < world * batch and (missing < 0.2 * size)
        rotates = any(gone != other for other in missed) and not _is_dealt_to_more(by_rank, size, world)
        missed.append(gone)
        bad = not trains or not (tail or rotates)
        found.append(Finding(
            "missing-examples", "warning" if bad else "note",
            f"An epoch of {what} leaves out {missing} of {size} examples.",
            [f"pass {one.number}: the ranks were given {len(counts)} different indices of {size}, "
             f"for example not {sorted(gone)[:4]}"], ranks, about["where"],
            f"{missing / size:.1%} of the data " + ("is not learned from in this epoch." if trains else
                                                     "does not count in the figure: it may be off by as much."),
            _fix(run, passes, trains, False)))  # fmt: skip
    again = sum(count - 1 for count in counts.values() if count > 1)
    cut = _cut_off(run, passes) if again and not trains else ""
    if 0 < again <= max(world * batch, world) and again < 0.5 * size:
        twice = sorted(each for each, count in counts.items() if count > 1)
        found.append(Finding(
            "padded-examples", "note" if trains or cut else "warning",
            f"An epoch of {what} repeats {again} of {size} examples to fill up.",
            [f"pass {one.number}: {sum(counts.values())} indices were given out, {len(counts)} different ones; "
             f"twice: {twice[:6]}"], ranks, about["where"],
            f"Repeated examples weigh twice: {again / size:.2%} of " +
            ("an epoch." if trains else f"the set, so a figure over it can be off by up to {again / size:.2%}."),
            _fix(run, passes, trains, True),
            f"That the repeats weigh at all: {cut} seems to cut them off after gathering." if cut else ""))  # fmt: skip
    return found


def judge(run: Run) -> List[Finding]:
    by_key: Dict[tuple, Dict[int, Pass]] = {}
    for rank in run.ranks:
        for key, one in rank.passes.items():
            by_key.setdefault(key, {})[rank.number] = one
    found: List[Finding] = []
    missed: Dict[str, List[frozenset]] = collections.defaultdict(list)
    # A pass says most where an earlier one is known to compare with, so the last comes first.
    results: Dict[tuple, List[Finding]] = {}
    for key in sorted(by_key, key=lambda k: (k[0], k[1])):
        passes = by_key[key]
        if len(passes) in (run.world, 1):
            results[key] = _one(run, passes, missed[key[0]])
    for loader in {key[0] for key in results}:
        last = max((key for key in results if key[0] == loader), key=lambda key: key[1])
        kinds = {each.code: each for each in results[last]}
        found += kinds.values()
    return found
