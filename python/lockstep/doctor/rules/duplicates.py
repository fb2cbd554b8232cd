# SPDX-License-Identifier: Apache-2.0
"""duplicate-examples: ranks, or workers of a rank, train on the same examples."""
from __future__ import annotations

import collections
from typing import Any, Dict, List, Sequence, Set, Tuple

from ..findings import Finding
from ..logs import Pass, Rank, Run

_LOADER_FIX = """sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size={batch}, sampler=sampler)
for epoch in range(epochs):
    sampler.set_epoch(epoch)"""
_TOLD_FIX = """# without num_replicas and rank, the sampler takes them from the process group:
sampler = DistributedSampler(dataset, shuffle=True)"""
_SPLIT_FIX = """# all ranks hold one and the same data set before the sampler divides it: split it with one seed
split = torch.Generator().manual_seed(seed)   # without the rank
dataset, held_out = torch.utils.data.random_split(whole, sizes, generator=split)"""
_OWN_FIX = """# take every world_size-th of one order that all ranks know:
indices = order[rank::world_size]"""
_ITERABLE_FIX = """info = torch.utils.data.get_worker_info()
workers, worker = (info.num_workers, info.id) if info else (1, 0)
number, of = rank * workers + worker, world_size * workers
examples = itertools.islice(examples, number, None, of)   # in the data set's __iter__"""
_DRAWN_FIX = """indices = order[rank::world_size]   # of one order that all ranks know
# or, where each rank draws examples by itself: generator = torch.Generator().manual_seed(seed + rank)"""


def _same_steps(first: Sequence[frozenset], second: Sequence[frozenset]) -> Tuple[int, int]:
    """How many of the steps have the same content on both ranks, of how many."""
    pairs = [(a, b) for a, b in zip(first, second) if a and b]
    return sum(a == b for a, b in pairs), len(pairs)


def _of_batches(run: Pass) -> List[frozenset]:
    return [frozenset(batch["rows"]) for batch in run.batches]


def _is_random(run: Run, rank: int, one: Pass) -> bool:
    """Whether making an example draws random numbers, so that one index has many contents."""
    for each in run.ranks:
        if each.number == rank:
            fetches = [f for f in each.of("fetch") if f["loader"] == one.loader.number]
            fetches += [f for worker in each.workers for f in worker if f["loader"] == one.loader.number]
            return any(f["drawn"] for f in fetches)
    return False


def _fix(about: Dict[str, Any], same_data: bool) -> str:
    if about["iterable"]:
        return _ITERABLE_FIX
    if "RandomSampler" in about["samplers"]:
        return _LOADER_FIX.format(batch=about["batch"] or "...")
    if any("DistributedSampler" in name for name in about["samplers"]):
        return _TOLD_FIX if same_data else _SPLIT_FIX
    return _OWN_FIX


def _pass_finding(run: Run, passes: Dict[int, Pass]) -> List[Finding]:
    ranks = sorted(passes)
    first, one = ranks[0], passes[ranks[0]]
    about = one.loader.about
    same_data = all(p.loader.about["print"] == about["print"] for p in passes.values()) and not about["iterable"]
    fix = _fix(about, same_data)
    for other in ranks[1:]:
        two = passes[other]
        pair = dict(ranks=[first, other], where=about["where"], fix=fix)
        cost = "Each of these examples counts twice in the mean gradient, and an epoch covers less of the data."
        equal, steps = _same_steps(_of_batches(one), _of_batches(two))
        different = len({row for batch in one.batches for row in batch["rows"]})
        if different > 1 and equal >= 0.9 * steps and (steps > 1 or equal == 1 and different >= 4):
            return [Finding("duplicate-examples", "error",
                            f"Ranks {first} and {other} train on the same examples in the same steps.",
                            [f"{equal} of {steps} batches of epoch {one.number} have the same contents on both ranks"],
                            cost=f"The ranks' gradients are equal: {len(ranks)} ranks learn what one would.",
                            **pair)]  # type: ignore[arg-type]  # fmt: skip
        ids, ids2 = one.all_ids(), two.all_ids()
        drawn_again = len(ids) - len(set(ids)) > 0.02 * len(ids) if ids else False
        if drawn_again:
            continue
        if same_data and ids and ids2:
            tail = set(one.ids[len(one.batches) - 1] if one.ended else []) | set(two.ids[len(two.batches) - 1] if two.ended else [])
            common = (set(ids) & set(ids2)) - tail
            whole = max(1, min(len(set(ids)), len(set(ids2))))
            rows, rows2 = set(one.rows()), set(two.rows())
            seen = len(rows & rows2)
            if len(common) > 0.02 * whole and len(common) > 1:
                if not seen and not _is_random(run, first, one):
                    continue  # the same numbers, other examples: the data set itself was divided
                evidence = [f"{len(common)} of {whole} indices of epoch {one.number} were given to both ranks"]
                if seen:
                    evidence.append(f"{seen} examples had the same contents on both")
                rests = "" if seen else ("That both ranks' data sets hold the same examples: their attributes are equal, and "
                                         "contents differ because making an example draws random numbers. To be sure, "
                                         "print an example of each rank without augmentation.")  # fmt: skip
                return [Finding("duplicate-examples", "error",
                                f"Ranks {first} and {other} train on the same examples in one epoch.", evidence,
                                cost=cost, rests_on=rests, **pair)]  # type: ignore[arg-type]  # fmt: skip
            continue
        head, head2 = set(one.rows()), set(two.rows())
        if not head or not head2:
            continue
        own = 1 - len(head) / len(one.rows())
        if one.ended and two.ended and len(one.batches) > 1:
            head -= set(one.batches[-1]["rows"]) | set(two.batches[-1]["rows"])
        share = len(head & head2) / max(1, min(len(head), len(head2)))
        if own < 0.2 and share > 0.05 + 3 * own and len(head & head2) > 2:
            return [Finding("duplicate-examples", "error",
                            f"Ranks {first} and {other} train on the same examples in one epoch.",
                            [f"{share:.0%} of the examples of epoch {one.number} have the same contents on both ranks; "
                             f"within a rank {own:.1%} do"], cost=cost, **pair)]  # type: ignore[arg-type]  # fmt: skip
    return []


def _between_workers(rank: Rank) -> List[Finding]:
    """Workers of an iterable data set that each go through all of it."""
    for one in rank.passes.values():
        about = one.loader.about
        if not (about["iterable"] and about["workers"] > 1 and one.trains):
            continue
        counts = collections.Counter(one.rows())
        again = sum(count - 1 for count in counts.values())
        total = sum(counts.values())
        batches = [frozenset(batch["rows"]) for batch in one.batches]
        within = sum(len(batch["rows"]) - len(set(batch["rows"])) for batch in one.batches)
        if total and again - within > 0.3 * total and len(counts) > 3 and len(set(batches)) < len(batches):
            return [Finding("duplicate-examples", "error",
                            f"The loader workers of rank {rank.number} all read the same examples.",
                            [f"epoch {one.number}: {total} examples from {about['workers']} workers, "
                             f"{len(counts)} different ones"], [rank.number], about["where"],
                            f"An epoch holds each example {total / len(counts):.1f} times.", _ITERABLE_FIX)]  # fmt: skip
    return []


def _until_one_repeats(batches: Dict[int, frozenset]) -> Tuple[Set[int], int]:
    """The examples of the steps before the first that repeats one, and how many steps these are: an epoch at most, where
    there is no loader to tell."""
    seen: Set[int] = set()
    for count, number in enumerate(sorted(batches)):
        if seen & batches[number]:
            return seen, count
        seen |= batches[number]
    return seen, len(batches)


def _without_loaders(run: Run) -> List[Finding]:
    """Programs that cut batches by hand: what the model's inputs were."""
    if any(p.trains for rank in run.ranks for p in rank.passes.values()):
        return []
    for rank in run.ranks[1:]:
        first = run.ranks[0]
        for root in {each["root"] for each in first.of("forward")}:
            one, two = ({e["n"]: frozenset(e["rows"]) for e in r.of("forward") if e["root"] == root} for r in (first, rank))
            steps = sorted(set(one) & set(two))
            equal, count = _same_steps([one[n] for n in steps], [two[n] for n in steps])
            where = next((e["where"][0] for e in first.of("forward") if e["root"] == root and e["where"]), "")
            rows, rows2 = set().union(*one.values()), set().union(*two.values())
            pair = dict(ranks=[first.number, rank.number], where=where)
            if len(rows) > 1 and count > 1 and equal >= 0.9 * count:
                return [Finding("duplicate-examples", "error",
                                f"Ranks {first.number} and {rank.number} train on the same examples in the same steps.",
                                [f"the model's inputs are equal in {equal} of {count} steps"],
                                cost=f"The ranks' gradients are equal: {run.world} ranks learn what one would.",
                                fix=_DRAWN_FIX,
                                **pair)]  # type: ignore[arg-type]  # fmt: skip
            (rows, count), (rows2, count2) = _until_one_repeats(one), _until_one_repeats(two)
            share = len(rows & rows2) / max(1, min(len(rows), len(rows2)))
            # Batches that are drawn each by itself repeat examples after few steps, and ranks then share few.
            if len(rows) > 8 and (share > 0.5 or share > 0.25 and min(count, count2) > 4):
                return [Finding("duplicate-examples", "error",
                                f"Ranks {first.number} and {rank.number} train on the same examples.",
                                [f"{share:.0%} of the model's inputs came on both ranks before one came twice on a rank"],
                                cost="An epoch covers less of the data than it seems.", fix=_OWN_FIX,
                                **pair)]  # type: ignore[arg-type]  # fmt: skip
    return []


def judge(run: Run) -> List[Finding]:
    found: List[Finding] = []
    for rank in run.ranks:
        found += _between_workers(rank)
    if run.world > 1:
        done = set()
        for passes in run.shared_passes():
            trained = {rank: each for rank, each in passes.items() if each.trains}
            if len(trained) > 1:
                key = next(iter(trained.values())).loader.key
                if key not in done:
                    new = _pass_finding(run, trained)
                    found += new
                    done |= {key} if new else set()
        found += _without_loaders(run)
    return found[:3]
