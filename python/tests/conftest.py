# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest
import torch


@pytest.fixture(scope="session")
def golden_folder():
    return pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


@pytest.fixture(scope="session")
def golden(golden_folder):
    """What MinkowskiEngine 0.5.4 made of a batch, with weights that follow a formula."""
    return torch.load(golden_folder / "minkunet14a.pt")


@pytest.fixture
def cloud():
    """cloud(points, axes=3, batches=2, low=-5, high=5, seed=0): different coordinates, int32 [N, 1 + D]."""

    def make(points=40, axes=3, batches=2, low=-5, high=5, seed=0):
        generator = torch.Generator().manual_seed(seed)
        batch = torch.randint(0, batches, (points, 1), generator=generator)
        spatial = torch.randint(low, high, (points, axes), generator=generator)
        rows = torch.unique(torch.cat([batch, spatial], 1), dim=0).int()
        return rows[torch.randperm(len(rows), generator=generator)]

    return make
