# SPDX-License-Identifier: Apache-2.0
"""The base of networks."""
from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch.nn as nn


class MinkowskiNetwork(nn.Module, ABC):
    """A network over points of D axes, whose `forward` the user writes."""

    def __init__(self, D: int) -> None:
        super().__init__()
        self.D = D

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The network."""

    def init(self, x: Any) -> None:
        """Makes the coordinates of all layers by one pass; the result is not kept."""
        self(x)
