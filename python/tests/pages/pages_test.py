# SPDX-License-Identifier: Apache-2.0
"""The pages' blocks of Python run, a page's in their order; clients of services are stand-ins that note what they get."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
FENCE = re.compile(r"(<!-- file: \S+ -->\n)?^```python\n(.*?)^```", re.M | re.S)
PAGES = [page for page in [ROOT / "README.md", ROOT / "python" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
         if any(not shown for shown, _ in FENCE.findall(page.read_text()))]
SENT = [
    (1, {"train/epoch": 0.5, "train/loss": 2.5, "train/seconds": 0.1, "train/devices": 2}),
    (2, {"test/epoch": 1.0, "test/loss": 2.0, "test/accuracy": 0.25, "test/seconds": 0.2}),
]


# Packages that a page may need: its test is skipped where they are not installed.
GUESTS = re.compile(r"^(?:import|from) (accelerate|lightning)\b", re.M)


def run(page):
    names = {}
    for guest in GUESTS.findall(page.read_text()):
        pytest.importorskip(guest, reason=f"{guest} is not installed")
    for shown, block in FENCE.findall(page.read_text()):
        if not shown:  # a block with a file is that file's, which has a test of its own
            exec(compile(block, str(page), "exec"), names)  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_blocks_run(page, services):
    run(page)


def test_what_a_run_measured_is_sent_with_its_steps(services):
    run(ROOT / "docs" / "use" / "logging.md")
    assert services == {"wandb": SENT, "mlflow": SENT}
