# SPDX-License-Identifier: Apache-2.0
"""set-epoch-missing: the same shuffled order in every epoch."""
from __future__ import annotations

from typing import Dict, Iterator, List, Tuple

from ..findings import Finding
from ..logs import Pass, Rank, Run

_SET_EPOCH = """for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)   # before the loop over the loader
    for batch in loader: ..."""
_OWN = "generator.manual_seed(seed + epoch)   # in the sampler: an order an epoch, the same on all ranks"


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


def judge(run: Run) -> List[Finding]:
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
