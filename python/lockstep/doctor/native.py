# SPDX-License-Identifier: Apache-2.0
"""Programs that use Lockstep's C++ library: what its own means say of them, as findings.

`lockstep train` keeps a ledger of the examples (--check-data), LOCKSTEP_DEBUG=1 compares the ranks' calls, a program that
calls watch_divergence compares weights: each says what is wrong in its error. LOCKSTEP_TRACE writes timelines. With
--ranks, two placements are compared: by `lockstep verify` where the program is `lockstep train`, else by what is printed.
"""
from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .findings import Finding

_ORDER = "// leave the split to the library: change the order of examples alone (lockstep::data::Order)"
_WATCH = """// every replica goes through the same rule, and nothing else writes to weights; find the step with
me.watch_divergence(optimizer, 1);   // an error in the step after which they differ"""
_SAME = """// every rank makes the same calls in the same order: move the call out of what only some ranks do
// (if (group.rank() == 0) ...), and give it the same shape everywhere"""
_BITS = """// draw from lockstep::RandomScope or lockstep::uniform(key, index), never from a generator of your own;
// no time, thread number, address or order of arrival may reach the result (docs: troubleshooting)"""
# What the library's errors say: (pattern, code, sentence, cost, fix)
_MEANS: Tuple[Tuple[str, str, str, str, str], ...] = (
    (r"(\d+) of (\d+) examples were used.*were used more than once.*", "duplicate-examples",
     "An epoch uses examples more than once.", "They weigh more than others.", _ORDER),
    (r"(\d+) of (\d+) examples were used.*were missed.*", "missing-examples", "An epoch leaves examples out.",
     "They are not learned from in this epoch.", _ORDER),
    (r"watch_divergence.*differs from .* after step.*", "weights-differ", "Replicas hold different weights.",
     "The replicas train different models.", _WATCH),
    (r"replicas have set different rules.*|processes have set different rules.*", "weights-differ",
     "Replicas step with different rules.", "The replicas train different models.", _WATCH),
    (r"ranks called different operations.*", "mismatched-collectives", "Ranks make different calls at the same time.",
     "The ranks wait for each other until the time-out.", _SAME),
    (r"replicas have passed different (options|parameters).*", "mismatched-collectives",
     "Replicas make the same call with different arguments.", "It is an error at once.", _SAME),
)  # fmt: skip
_TIMES = re.compile(r"second|\bms\b|\d s\b|/s\b|time|took|port|pid", re.I)
_NUMBER = re.compile(r"-?\d+\.\d+")


def is_native(words: Sequence[str]) -> bool:
    """Whether the command is the `lockstep` program: its train, or its run with a program of the user's."""
    return any(os.path.basename(word) == "lockstep" for word in words[:1])


def with_ledger(words: Sequence[str]) -> List[str]:
    made = list(words)
    for number, word in enumerate(made[:-1]):
        if os.path.basename(word) == "lockstep" and made[number + 1] == "train" and "--check-data" not in made:
            return [*made, "--check-data"]
    return made


def run(words: Sequence[str], folder: str, ranks: int = 0) -> Tuple[Optional[int], str, str]:
    """(exit code, what it printed, why it could not be started). Its output goes on to ours."""
    more = {"LOCKSTEP_TRACE": os.path.join(folder, f"trace{ranks or ''}.json"), "LOCKSTEP_DEBUG": "1"}
    try:
        process = subprocess.Popen(words, env={**os.environ, **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace")  # fmt: skip
    except OSError as error:
        return None, "", f"{words[0]}: {error.strerror}"
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
        return process.wait(), "".join(said), ""
    except BaseException:
        process.kill()
        process.wait()
        raise


def of_errors(text: str) -> List[Finding]:
    found: Dict[str, Finding] = {}
    for line in text.splitlines():
        for pattern, code, summary, cost, fix in _MEANS:
            match = re.search(pattern, line)
            if match and code not in found and "each once" not in line:
                found[code] = Finding(code, "error", summary, [match.group(0).strip()], [], "", cost, fix)
    return list(found.values())


def _traces(folder: str) -> Dict[int, List[Dict[str, Any]]]:
    """Rank -> its spans."""
    found: Dict[int, List[Dict[str, Any]]] = {}
    for path in sorted(pathlib.Path(folder).glob("trace*.json")):
        try:
            spans = [each for each in json.loads(path.read_text())["traceEvents"] if each.get("ph") == "X"]
        except (OSError, ValueError, KeyError):
            continue
        for each in spans:
            found.setdefault(each["pid"], []).append(each)
    return found


def _by_step(spans: Sequence[Dict[str, Any]]) -> Dict[int, Dict[str, float]]:
    """Step -> seconds of each kind of span within it, of the replica that has most."""
    steps: Dict[Tuple[int, int], Dict[str, float]] = collections.defaultdict(lambda: collections.defaultdict(float))
    frames = [each for each in spans if each["name"] == "step"]
    for frame in frames:
        key, end = (frame["args"]["number"], frame["tid"]), frame["ts"] + frame["dur"]
        steps[key]["step"] = frame["dur"] * 1e-6
        for each in spans:
            if each["tid"] == frame["tid"] and each["name"] in ("exposed", "data") and frame["ts"] <= each["ts"] < end:
                steps[key][each["name"]] += each["dur"] * 1e-6
    found: Dict[int, Dict[str, float]] = {}
    for (number, _), parts in steps.items():
        mine = found.setdefault(number, collections.defaultdict(float))
        for name, seconds in parts.items():
            mine[name] = max(mine[name], seconds)
    return found


def of_traces(folder: str, long: float = 0.010, large: float = 0.4) -> List[Finding]:
    """What costs time, by the ranks' timelines."""
    ranks = {rank: _by_step(spans) for rank, spans in _traces(folder).items()}
    ranks = {rank: steps for rank, steps in ranks.items() if len(steps) > 3}
    if not ranks:
        return []
    common = sorted(set.intersection(*(set(steps) for steps in ranks.values())))[1:]
    if len(common) < 3:
        return []
    step = statistics.median(max(steps[n]["step"] for steps in ranks.values()) for n in common)
    found: List[Finding] = []

    def add(code: str, seconds: float, summary: str, who: Sequence[int], fix: str) -> None:
        share = seconds / step
        if seconds > long and share > large / 2:
            found.append(Finding(
                code, "warning" if share > large else "note", summary.format(f"{share:.0%}"),
                [f"medians over {len(common)} steps of {len(ranks)} ranks' traces: {1000 * seconds:.0f} ms of a step of "
                 f"{1000 * step:.0f} ms"], list(who), "", f"Without it steps would be up to {1 / max(0.02, 1 - share):.1f} "
                "times as fast.", fix))  # fmt: skip

    waits = statistics.median(max(steps[n]["data"] for steps in ranks.values()) for n in common)
    add("waits-for-data", waits, "{} of a step goes by in waiting for the loader.", sorted(ranks), "lockstep train ... --workers 4")
    if len(ranks) > 1:
        exposed = {rank: [steps[n]["exposed"] for n in common] for rank, steps in ranks.items()}
        columns = list(zip(*exposed.values()))
        least = statistics.median(min(column) for column in columns)
        waited = statistics.median(statistics.fmean(column) - min(column) for column in columns)
        slowest = min(exposed, key=lambda rank: statistics.median(exposed[rank]))
        add("communication-exposed", least, "{} of a step goes by in communication that no computing hides.", sorted(ranks),
            "lockstep train ... --accumulate 4   # or larger batches, or --devices threads in fewer processes")  # fmt: skip
        add("imbalance", waited, f"Ranks wait for rank {slowest}, for {{}} of a step.", [slowest],
            "lockstep train ... --blocks 5,3   # fewer replicas for the slower process, with the same bits")  # fmt: skip
    return found


def _figures(text: str) -> List[str]:
    """The lines with figures that do not tell of time, without the launcher's '[0] '."""
    lines = [re.sub(r"^\[\d+\] ", "", line) for line in text.splitlines()]
    return [re.sub(r"\(\S+ s\)", "", line) for line in lines if _NUMBER.search(line) and not _TIMES.search(re.sub(r"\(\S+ s\)", "", line))]


def of_placements(texts: Dict[int, str]) -> List[Finding]:
    """What a program prints on one number of ranks and on another: the library gives the same bits on any."""
    (few, one), (many, two) = sorted(texts.items())[0], sorted(texts.items())[-1]
    for first, second in zip(_figures(one), _figures(two)):
        if _NUMBER.findall(first) != _NUMBER.findall(second):
            return [Finding(
                "depends-on-ranks", "warning", f"The program computes other figures on {few} and on {many} ranks.",
                [f"{few} ranks: '{first.strip()[:100]}'", f"{many} ranks: '{second.strip()[:100]}'"], [], "",
                "What is learned depends on the machine; the library itself gives the same bits on any placement.", _BITS,
                "That this line's figures are of the training. To be sure, compare the hashes of the weights.")]  # fmt: skip
    return []


def verify_words(words: Sequence[str], ranks: Sequence[int]) -> Optional[List[str]]:
    """`lockstep verify` of what `lockstep train` trains, on these numbers of processes; none for other programs."""
    for number, word in enumerate(words[:-1]):
        if os.path.basename(word) == "lockstep" and words[number + 1] == "train":
            given, kept, skip = list(words[number + 2 :]), [], False
            for each in given:  # what verify decides itself
                if skip:
                    skip = False
                elif each.split("=")[0] in ("--out", "--devices", "--blocks", "--save-every", "--resume"):
                    skip = "=" not in each
                elif each not in ("--check-data", "--overwrite"):
                    kept.append(each)
            return [word, "verify", *kept, "--placements", ";".join("1" if n == 1 else f"{n}x1" for n in sorted(ranks))]
    return None


def of_verify(text: str) -> List[Finding]:
    apart = [line.strip() for line in text.splitlines() if "differs from" in line]
    if not apart:
        return []
    return [Finding("depends-on-ranks", "warning", "The same recipe ends in other weights on another placement.", apart[:4], [], "",
                    "What is learned depends on the machine, and results of one cannot be repeated on another.", _BITS)]  # fmt: skip
