# SPDX-License-Identifier: Apache-2.0
"""set-epoch-missing: the same shuffled order in every epoch."""
from __future__ import annotations

from typing import List

from ..findings import Finding
from ..logs import Run

_SET_EPOCH = """for epoch in range(epochs):
    loader.sampler.set_epoch(epoch)   # before the loop over the loader
    for batch in loader: ..."""
_OWN = "generator.manual_seed(seed + epoch)   # in the sampler: an order an epoch, the same on all ranks"


def judge(run: Run) -> List[Finding]:
    for rank in run.ranks:
        for (key, number), one in rank.passes.items():
            two = rank.passes.get((key, number + 1))
            if two is None or not (one.trains and two.trains):
                continue
            length = min(len(one.batches), len(two.batches))
            first = [each for ids in one.ids[:length] for each in ids]
            second = [each for ids in two.ids[:length] for each in ids]
            if len(first) < 6 or first != second or first == sorted(first):
                continue
            about = one.loader.about
            of_torch = any("DistributedSampler" in name for name in about["samplers"])
            return [Finding(
                "set-epoch-missing", "warning", "Every epoch has the same order, though it is shuffled.",
                [f"rank {rank.number}: epochs {number} and {number + 1} begin with the same {len(first)} indices "
                 f"{first[:6]}...; sampler: {', '.join(about['samplers'])}"],
                [each.number for each in run.ranks], about["where"],
                "Each batch holds the same examples in every epoch: the gradient noise that shuffling gives is lost.",
                _SET_EPOCH if of_torch else _OWN)]  # fmt: skip
    return []
