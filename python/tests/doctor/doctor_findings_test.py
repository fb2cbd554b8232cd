# SPDX-License-Identifier: Apache-2.0
"""Programs with one fault each, and healthy ones that look like them: what the doctor says of each."""
import os
import pathlib
import subprocess
import sys

import pytest

from lockstep.doctor import command, logs, rules

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
sys.path.insert(0, str(PROGRAMS))
import healthy  # noqa: E402
import rescue  # noqa: E402

# program:variant -> the codes above a note
EXPECTED = {
    "data:healthy": set(),
    "data:no-sampler": {"duplicate-examples"},
    "data:blind": {"duplicate-examples"},
    "data:overlapping": {"duplicate-examples"},
    "data:stream-blind-rank": {"duplicate-examples"},
    "data:stream-blind-worker": {"duplicate-examples"},
    "data:own-sampler": set(),
    "data:divided": set(),
    "data:stream": set(),
    "data:padded": set(),
    "data:no-set-epoch": {"set-epoch-missing"},
    "data:fixed-order": {"set-epoch-missing"},
    "data:worker-alike": {"worker-seeds"},
    "data:held": {"worker-seeds"},
    "data:worker-apart": set(),
    "data:by-index": set(),
    "models:batch-norm": {"unsynchronised-batch-norm"},
    "models:layer-norm": set(),
    "models:joint-norm": set(),
    "models:frozen-norm": set(),
    "models:center-alone": {"buffers-differ"},
    "models:center-together": set(),
    "models:dropout": {"same-random-stream"},
    "models:dropout-apart": set(),
    "models:unused": {"unused-parameters"},
    "models:needless-search": {"unused-parameters"},
    "models:unused-frozen": set(),
    "models:not-wrapped": {"weights-differ", "gradients-not-averaged"},
    "models:around": {"weights-differ", "gradients-not-averaged"},
    "models:late-parameter": {"weights-differ", "gradients-not-averaged"},
    "models:manual": set(),
    "models:manual-initial": {"weights-differ"},
    "models:manual-partial": {"weights-differ", "gradients-not-averaged"},
    "models:manual-sum": {"gradients-not-averaged"},
    "models:manual-scaled-loss": set(),
    "models:optimizer-apart": {"weights-differ"},
    "models:touched": {"weights-differ"},
    "models:accumulation": set(),
    "models:clipped": set(),
    "models:weights-averaged": set(),
    "models:uneven-shares": {"mean-of-means"},
    "figures:merged": set(),
    "figures:gathered": set(),
    "figures:to-one": set(),
    "figures:frechet-merged": set(),
    "figures:local-accuracy": {"rank-local-metric"},
    "figures:beside": {"rank-local-metric"},
    "figures:rank-0-part": {"rank-local-metric"},
    "figures:plateau": {"rank-local-metric"},
    "figures:stops": {"rank-local-metric"},
    "figures:frechet-alone": {"rank-local-metric"},
    "figures:frechet-averaged": {"rank-local-metric"},
    "figures:averaged-means": {"mean-of-means"},
    **{f"healthy:{variant}": set() for variant in healthy.VARIANTS},
}
# The stories of docs/use/rescue.md; two need the command, and are in doctor_command_test.py.
STORIES = {1: {"duplicate-examples"}, 2: {"rank-local-metric"}, 3: {"unsynchronised-batch-norm"}, 4: None, 5: {"waits-for-data"},
           6: {"rank-local-metric"}, 7: {"set-epoch-missing"}, 8: {"weights-differ", "gradients-not-averaged"},
           9: {"same-random-stream"}, 10: None}  # fmt: skip
EXPECTED.update({f"rescue:{number}-before": codes for number, codes in STORIES.items() if codes})
EXPECTED.update({f"rescue:{number}-after": set() for number in STORIES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The logs of all programs."""
    made = tmp_path_factory.mktemp("logs")
    environment = command.environment(str(made / "launcher"))
    done = subprocess.run([sys.executable, "-B", str(PROGRAMS / "several.py"), str(made), *EXPECTED], env=environment,
                          capture_output=True, text=True, timeout=230, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def judged(folder, name):
    run = logs.read(str(folder / name.replace(":", "-")))
    assert run.world == 2 and not run.broken
    return rules.judge(run)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_said_above_a_note(folder, name):
    found = judged(folder, name)
    assert "not-judged" not in {each.code for each in found}
    assert {each.code for each in found if each.severity != "note"} == EXPECTED[name]
    for each in found:
        assert each.fix and len(each.fix.splitlines()) <= 5
        assert each.severity == "note" or (each.evidence and each.cost and each.ranks and os.path.basename(each.where))


def test_each_story_of_the_page_has_its_code():
    _, found = rescue.stories()
    assert len(found) == len(STORIES) == 10 and all(set(blocks) == {"before", "after"} for _, blocks in found)


@pytest.mark.parametrize(
    "name, code, said",
    [
        ("models:touched", "weights-differ", "'last.bias'"),
        ("models:touched", "weights-differ", "something else writes to the weights"),
        ("models:around", "weights-differ", "goes around DistributedDataParallel"),
        ("models:manual-initial", "weights-differ", "begin with different weights"),
        ("models:optimizer-apart", "weights-differ", "lr 0.02 and 0.04"),
        ("models:late-parameter", "gradients-not-averaged", "late.weight"),
        ("models:manual-partial", "gradients-not-averaged", "first.bias, last.bias"),
        ("models:manual-sum", "gradients-not-averaged", "2.000 times the mean"),
        ("models:batch-norm", "unsynchronised-batch-norm", "('norm' channel"),
        ("models:uneven-shares", "mean-of-means", "8, 16 examples"),
        ("figures:beside", "rank-local-metric", "is right / seen of rank 0"),
        ("figures:rank-0-part", "rank-local-metric", "rank 0 alone evaluates 30 of 60 examples"),
        ("figures:plateau", "rank-local-metric", "ReduceLROnPlateau at figures.py:"),
        ("figures:averaged-means", "mean-of-means", "over 40, 20 examples"),
        ("data:padded", "padded-examples", "twice"),
        ("data:blind", "duplicate-examples", "8 of 8 batches"),
        ("data:worker-alike", "worker-seeds", "numpy.random: workers 0 and 1"),
    ],
)
def test_the_evidence_names_the_cause(folder, name, code, said):
    lines = [line for each in judged(folder, name) if each.code == code for line in each.evidence]
    assert any(said in line for line in lines), lines
