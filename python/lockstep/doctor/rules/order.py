# SPDX-License-Identifier: Apache-2.0
"""set-epoch-missing: the same shuffled order in every epoch."""
from __future__ import annotations

import os
import re
from typing import Dict, Iterator, List, Tuple

from ..findings import Finding
from ..logs import Pass, Rank, Run
from ..sources import source

_SET_EPOCH = """for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)   # before the loop over the loader
    for batch in loader: ..."""
_BY_HAND = """generator = torch.Generator().manual_seed(seed + epoch)   # an order an epoch, the same on all ranks
order = torch.randperm(len(dataset), generator=generator)[rank::world_size]"""
_OWN = """# in the sampler's __iter__: an order an epoch, the same on all ranks
generator = torch.Generator().manual_seed(seed + self.epoch)
order = torch.randperm(size, generator=generator).tolist()[rank::world_size]
self.epoch += 1"""


def _epochs(rank: Rank) -> Iterator[Tuple[Pass, Pass]]:
    """Training passes that follow each other, over one loader or over loaders that one line makes anew each epoch."""
    by_place: Dict[str, List[Pass]] = {}
    for one in sorted(rank.passes.values(), key=lambda each: each.begun):
        if one.trains:
            by_place.setdefault(one.loader.key.rsplit(" #", 1)[0], []).append(one)
    for passes in by_place.values():
        for one, two in zip(passes, passes[1:]):
            if one.batches[-1]["t"] <= two.begun:
                yield one, two


_SHUFFLES = re.compile(r"perm|shuffl", re.I)


def _period(batches: List[frozenset]) -> int:
    """After how many batches the same ones come again, in the same order, at least once; 0 where they do not."""
    for period in range(3, len(batches) // 2 + 1):
        if batches[:period] == batches[period : 2 * period] and len(set(batches[:period])) == period:
            return period
    return 0


def _without_loader(run: Run, rank: Rank) -> List[Finding]:
    """Programs that cut batches by hand, of an order that they shuffle."""
    for root in {each["root"] for each in rank.of("forward")}:
        passes = [each for each in rank.of("forward") if each["root"] == root]
        period = _period([frozenset(each["rows"]) for each in passes])
        places = [place for each in passes[:1] for place in each["where"]]
        shuffled = [found for found in (source.line_in_file(place, _SHUFFLES) for place in places) if found]
        if period and shuffled:
            return [Finding(
                "set-epoch-missing", "warning", "Every epoch has the same order, though it is shuffled.",
                [f"rank {rank.number}: the model's inputs of steps 0 to {period - 1} come again in the same order in steps {period} "
                 f"to {2 * period - 1}; {os.path.basename(shuffled[0])} shuffles"],
                [each.number for each in run.ranks], shuffled[0],
                "Each batch holds the same examples in every epoch: the gradient noise that shuffling gives is lost.",
                _BY_HAND, "That this line makes the order. To be sure, print it in two epochs.")]  # fmt: skip
    return []


def judge(run: Run) -> List[Finding]:
    if not any(one.trains for rank in run.ranks for one in rank.passes.values()):
        return next((found for found in (_without_loader(run, rank) for rank in run.ranks) if found), [])
    for rank in run.ranks:
        for one, two in _epochs(rank):
            length = min(len(one.batches), len(two.batches))
            first = [each for ids in one.ids[:length] for each in ids]
            second = [each for ids in two.ids[:length] for each in ids]
            if len(first) < 6 or first != second or first == sorted(first):
                continue
            about = one.loader.about
            of_torch = any("DistributedSampler" in name for name in about["samplers"])
            return [Finding(
                "set-epoch-missing", "warning", "Every epoch has the same order, though it is shuffled.",
                [f"rank {rank.number}: two epochs that follow each other begin with the same {len(first)} indices "
                 f"{first[:6]}...; sampler: {', '.join(about['samplers'])}"],
                [each.number for each in run.ranks], about["where"],
                "Each batch holds the same examples in every epoch: the gradient noise that shuffling gives is lost.",
                _SET_EPOCH if of_torch else _OWN)]  # fmt: skip
    return []
