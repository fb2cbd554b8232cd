# SPDX-License-Identifier: Apache-2.0
"""The doctor's command line."""
from __future__ import annotations

import argparse
import dataclasses
from typing import List, Optional, Sequence

DEFAULT_STEPS = 200
DEFAULT_EPOCHS = 2


@dataclasses.dataclass
class Options:
    command: List[str]
    steps: Optional[int] = None  # None: two epochs or 200 steps, what comes first; 0: the program's own end
    json: str = ""
    html: str = ""
    keep: str = ""
    runs: int = 1
    ranks: Sequence[int] = ()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.doctor",
        description="Runs a multi-device training, watches every rank from inside, and prints what is wrong with it.",
        epilog="Exit code 0: nothing found (notes may be printed); 1: findings; 2: the program could not be run.",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="end the program after N steps; 0: at its own end; "
                        f"default: after {DEFAULT_EPOCHS} epochs or {DEFAULT_STEPS} steps, what comes first")  # fmt: skip
    parser.add_argument("--json", default="", metavar="FILE", help="write the findings there ('-': to standard output)")
    parser.add_argument("--html", default="", metavar="FILE", help="write a page with the ranks' timeline, the curves and the findings")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="run it N times and compare every operation")
    parser.add_argument("--ranks", default="", metavar="N,M", help="run it with other numbers of ranks too, and compare the losses and the pace")
    parser.add_argument("--keep", default="", metavar="FOLDER", help="keep the logs of the ranks in this folder")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command that starts the program")
    return parser


def parse(arguments: Sequence[str]) -> Options:
    parser = _parser()
    given = parser.parse_args(arguments)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no program: expected -- and the command that starts it")
    if given.steps is not None and given.steps < 0:
        parser.error(f"--steps is {given.steps}, expected 0 or more")
    if given.runs < 1:
        parser.error(f"--runs is {given.runs}, expected 1 or more")
    try:
        ranks = [int(number) for number in given.ranks.split(",") if given.ranks]
    except ValueError:
        ranks = [0]
    if any(number < 1 for number in ranks):
        parser.error(f"--ranks is {given.ranks}, expected numbers such as 1,2")
    return Options(command, given.steps, given.json, given.html, given.keep, given.runs, ranks)
