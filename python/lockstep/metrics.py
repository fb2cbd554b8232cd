# SPDX-License-Identifier: Apache-2.0
"""Figures over examples that each process sees a part of.

    accuracy = lockstep.metrics.Accuracy()
    for inputs, targets in my_part:
        accuracy.add(net(inputs), targets)
    accuracy.all_merge()          # now that of all processes, the same bits on each
    print(accuracy.value())

What a metric has seen is a row of float64, state(), that merges: counts add up, moments merge by Chan's formula, both in
the canonical tree's order over ranks. So the figure is that of all examples, never a mean of means. A process that has
seen nothing takes part.
"""
from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist

from . import _C, groups
from ._C import Accuracy, ConfusionMatrix, FeatureMoments, Mean, MeanIoU, Metric, TopKAccuracy, frechet_distance

__all__ = [
    "Accuracy",
    "ConfusionMatrix",
    "FeatureMoments",
    "FrechetDistance",
    "Mean",
    "MeanIoU",
    "Metric",
    "TopKAccuracy",
    "frechet_distance",
]


def _all_merge(self: Metric, group: Optional[dist.ProcessGroup] = None) -> Metric:
    """Becomes what all processes of the group have seen together, and returns itself. All of them call it."""
    self.merge(groups.all_gather(self.state(), group))
    return self


_C.Metric.all_merge = _all_merge  # type: ignore[method-assign]


class FrechetDistance:
    """The squared Frechet distance between two sets of feature vectors [n, d], as of the FID of images.

    add_real and add_fake take batches; all_merge() makes it that of all processes; value() is NaN below two examples a
    side.
    """

    def __init__(self, features: int) -> None:
        self.real, self.fake = FeatureMoments(features), FeatureMoments(features)

    def add_real(self, features: torch.Tensor) -> None:
        self.real.add(features)

    def add_fake(self, features: torch.Tensor) -> None:
        self.fake.add(features)

    def all_merge(self, group: Optional[dist.ProcessGroup] = None) -> "FrechetDistance":
        self.real.all_merge(group)
        self.fake.all_merge(group)
        return self

    def clear(self) -> None:
        self.real.clear()
        self.fake.clear()

    def value(self) -> float:
        if min(self.real.count, self.fake.count) < 2:
            return float("nan")
        return frechet_distance(self.real, self.fake)
