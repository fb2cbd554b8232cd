# SPDX-License-Identifier: Apache-2.0
"""The runs of one judgement: the program as it is, again with the same seed (--runs), on other numbers of ranks (--ranks)."""
from __future__ import annotations

import dataclasses
import os
import re
from typing import Dict, List, Optional, Sequence, Tuple

from . import command, compare, logs, native, options, rules
from .findings import Finding, in_order

PLACEHOLDER = "{ranks}"
_OPTIONS = re.compile(r"^(--nproc[-_]per[-_]node|--num[-_]processes)(=.*)?$")
_LAUNCHERS = ("mpirun", "mpiexec", "srun", "prun", "lockstep")


@dataclasses.dataclass
class Judged:
    run: logs.Run
    outcome: command.Outcome
    findings: List[Finding]
    lines: List[str] = dataclasses.field(default_factory=list)  # what is said beside the findings
    problem: str = ""
    words: Sequence[str] = ()  # the command that was judged
    is_native: bool = False  # of Lockstep's C++ library


def with_ranks(words: Sequence[str], ranks: int) -> Optional[List[str]]:
    """The command for another number of ranks; none where it says nothing of their number."""
    made, changed = list(words), False
    for number, word in enumerate(made):
        found = _OPTIONS.match(word)
        if found and found.group(2):
            made[number], changed = f"{found.group(1)}={ranks}", True
        elif found and number + 1 < len(made):
            made[number + 1], changed = str(ranks), True
        elif word in ("-n", "-np", "--ntasks", "--processes") and os.path.basename(made[0]) in _LAUNCHERS and not changed:
            made[number + 1], changed = str(ranks), True
        elif PLACEHOLDER in word:
            made[number], changed = word.replace(PLACEHOLDER, str(ranks)), True
    return made if changed else None


def asked_ranks(words: Sequence[str]) -> int:
    """How many ranks a command asks for on this host; 0 where it does not say."""
    for number, word in enumerate(words):
        found = _OPTIONS.match(word)
        launched = word in ("-n", "-np", "--ntasks", "--processes") and os.path.basename(words[0]) in _LAUNCHERS
        value = found.group(2)[1:] if found and found.group(2) else "".join(words[number + 1 : number + 2]) if found or launched else ""
        if value.isdigit():
            return int(value)
    return 0


class Trials:
    def __init__(self, given: options.Options, folder: str) -> None:
        self.given, self.folder, self.made = given, folder, 0

    def run(self, words: Sequence[str], more: Optional[Dict[str, str]] = None) -> Tuple[logs.Run, command.Outcome]:
        """One run more. The first one's logs lie in the folder itself, others' in folders in it."""
        folder = self.folder if self.made == 0 else os.path.join(self.folder, f"run-{self.made + 1}")
        self.made += 1
        os.makedirs(folder, exist_ok=True)
        outcome = command.run(words, folder, self.given.steps, more)
        run = logs.read(folder)
        run.ended = outcome.ended
        return run, outcome

    def judge(self) -> Judged:
        given, words = self.given, self.given.command
        if native.is_native(words):
            return self._native()
        if given.ranks:
            # The program is judged on the largest number: most faults need two ranks.
            found = with_ranks(words, max(given.ranks))
            if found is None:
                problem = f"the command does not say how many ranks it starts: write {PLACEHOLDER} where it should"
                return Judged(logs.Run([]), command.Outcome(), [], problem=problem)
            words = found
        more = {"LOCKSTEP_DOCTOR_TRACE": "1"} if given.runs > 1 else {}
        run, outcome = self.run(words, more)
        judged = Judged(run, outcome, rules.judge(run), words=words)
        for devices in sorted({each["devices"] for _, each in run.of("data_parallel")}):
            judged.lines.append(f"nn.DataParallel divides batches over {devices} devices" + (
                "; what happens in its threads was watched only where batch norms are concerned." if devices > 1 else
                ": what would happen between several was not to be seen."))  # fmt: skip
        if outcome.ended == "hang" or not run.ranks:
            judged.findings = in_order(judged.findings)
            return judged
        again = [run] + [self.run(words, more)[0] for _ in range(given.runs - 1)]
        if given.runs > 1:
            judged.findings += compare.runs.judge(again)
        for ranks in sorted(set(given.ranks) - {max(given.ranks, default=0)}):
            self._on(ranks, judged)
        judged.findings = in_order(judged.findings)
        return judged

    def _native(self) -> Judged:
        """A program of the C++ library, which runs to its own end."""
        words, ranks = native.with_ledger(self.given.command), sorted(set(self.given.ranks))
        if ranks and with_ranks(words, 1) is None and native.verify_words(words, ranks) is None:
            problem = f"the command does not say how many ranks it starts: write {PLACEHOLDER} where it should"
            return Judged(logs.Run([]), command.Outcome(), [], problem=problem)
        code, text, error = native.run(with_ranks(words, ranks[-1]) or words if ranks else words, self.folder)
        found = native.of_errors(text) + native.of_traces(self.folder)
        verify = native.verify_words(words, ranks) if ranks else None
        if code == 0 and verify is not None:
            found += native.of_verify(native.run(verify, self.folder, ranks[-1])[1])
        elif code == 0 and ranks:
            others = {n: native.run(with_ranks(words, n) or words, self.folder, n)[1] for n in ranks[:-1]}
            found += native.of_placements({**others, ranks[-1]: text}) if others else []
        judged = Judged(logs.Run([]), command.Outcome(code=code, error=error), in_order(found), is_native=True)
        judged.lines.append("a program of Lockstep's library was judged by its own means: "
                            "its errors, its ledger and its traces" + (", and two placements." if ranks else "."))  # fmt: skip
        return judged

    def _on(self, ranks: int, judged: Judged) -> None:
        """The same on another number of ranks; with the loaders' batches made larger where a rank's batch is fixed."""
        words = with_ranks(self.given.command, ranks)
        assert words is not None
        other, _ = self.run(words)
        batches = compare.ranks.global_batch(judged.run), compare.ranks.global_batch(other)
        if other.ranks and batches[0] != batches[1] and 0 not in batches:
            other, _ = self.run(words, {"LOCKSTEP_DOCTOR_BATCH": str(batches[0] / batches[1])})
        judged.findings += compare.ranks.judge(judged.run, other, judged.findings)
        pace = compare.ranks.speedup(judged.run, other)
        if pace is not None:
            judged.lines.append(f"{judged.run.world} ranks train {pace[0]:.1f} examples a second, {other.world}: {pace[1]:.1f} "
                                f"({pace[0] / pace[1]:.2f} times as fast).")  # fmt: skip
