# SPDX-License-Identifier: Apache-2.0
"""Programs with one fault each, and healthy ones that look like them: what the doctor says of each."""
import importlib.util
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
    "optimizing:averaged": set(),
    "optimizing:averaged-in-small-batches": set(),
    "optimizing:summed": {"gradients-not-averaged"},
    "optimizing:averaged-afterwards": set(),
    "optimizing:summed-afterwards": {"gradients-not-averaged"},
    "optimizing:partly-averaged": {"weights-differ", "gradients-not-averaged"},
    "optimizing:clipped": set(),
    "optimizing:counted": set(),
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
    "strangers:told-one-replica": {"duplicate-examples"},
    "strangers:told-right": set(),
    "strangers:told-four-replicas": {"missing-examples"},
    "strangers:split-apart": {"duplicate-examples"},
    "strangers:hand-overlap": {"duplicate-examples"},
    "strangers:hand-drawn": set(),
    "strangers:hand-same-order": {"set-epoch-missing"},
    "strangers:persistent": set(),
    "strangers:persistent-no-epoch": {"set-epoch-missing"},
    "strangers:turned-alike": {"worker-seeds"},
    "strangers:same-noise": {"same-random-stream"},
    "strangers:own-noise": set(),
    "strangers:norm-of-sorted-parts": {"unsynchronised-batch-norm"},
    "strangers:norm-kept-apart": {"buffers-differ"},
    "strangers:in-evaluation-mode": set(),
    "strangers:skipped-step": {"weights-differ"},
    "strangers:stale-average": {"weights-differ", "gradients-not-averaged"},
    "strangers:thawed-later": {"weights-differ", "gradients-not-averaged"},
    "strangers:closure": set(),
    "strangers:distilled": set(),
    "strangers:evaluates-padded": {"padded-examples"},
    "strangers:gathers-padded": {"padded-examples"},
    "strangers:gathers-and-cuts": set(),
    "strangers:evaluates-less": {"missing-examples"},
    "strangers:evaluates-whole": set(),
    "strangers:many-threads": {"oversubscribed-threads"},
    "strangers:threads-of-one": {"oversubscribed-threads"},
    "calls:healthy": set(),
    "calls:own-groups": set(),
    "calls:objects": set(),
    "calls:long-backward": set(),
    "calls:long-compiler": set(),
    "calls:saves-slowly": set(),
    "calls:other-order": {"mismatched-collectives"},
    "calls:other-operation": {"mismatched-collectives"},
    "calls:other-shape": {"mismatched-collectives"},
    "calls:barrier-of-one": {"mismatched-collectives"},
    "calls:fewer-steps": {"uneven-steps"},
    "calls:stops-early": {"uneven-steps"},
    "calls:silent-names": set(),
}
EXPECTED.update({f"users:{name}": codes for name, codes in {
    "never-synchronised": {"weights-differ", "gradients-not-averaged"},
    "gan-with-images-shown": set(),
    "judge-not-wrapped": {"weights-differ", "gradients-not-averaged"},
    "joined-each-epoch": set(),
    "tokens-of-one-rank": {"mean-of-means"},
    "tokens-of-all": set(),
    "skipped-batch": {"uneven-steps"},
    "loaded-on-one": {"weights-differ"},
    "divided-twice": {"gradients-not-averaged"},
    "summed-again": {"gradients-not-averaged"},
    "divided-by-small-batches": set(),
    "hook-that-sums": {"gradients-not-averaged"},
    "written-to-a-table": {"rank-local-metric"},
    "kept-and-dumped": {"rank-local-metric"},
    "predicts-its-part": set(),
    "waits-for-a-message": {"mismatched-collectives"},
}.items()})  # fmt: skip
# What is a note, and nothing above one.
NOTES = {"plain": {"learning-rate-not-scaled"}, "of-arguments": {"learning-rate-not-scaled"}, "scaled-above": set(),
         "warmed-up": set(), "divided-batch": set()}  # fmt: skip
EXPECTED.update({f"optimizing:{name}": set() for name in NOTES})
# The stories of docs/use/rescue.md; the fourth needs two runs, and is in doctor_trials_test.py.
STORIES = {1: {"duplicate-examples"}, 2: {"rank-local-metric"}, 3: {"unsynchronised-batch-norm"}, 4: None, 5: {"waits-for-data"},
           6: {"rank-local-metric"}, 7: {"set-epoch-missing"}, 8: {"weights-differ", "gradients-not-averaged"},
           9: {"same-random-stream"}, 10: {"uneven-steps"}}  # fmt: skip
EXPECTED.update({f"rescue:{number}-before": codes for number, codes in STORIES.items() if codes})
EXPECTED.update({f"rescue:{number}-after": set() for number in STORIES})
TRAINERS = {
    "lightning-healthy": set(),
    "lightning-accumulated": set(),
    "lightning-by-hand": set(),
    "lightning-metric": set(),
    "lightning-local": {"rank-local-metric"},
    "lightning-no-sampler": {"duplicate-examples"},
    "lightning-dropout": {"same-random-stream"},
    "lightning-unused": {"unused-parameters"},
    "accelerate-healthy": set(),
    "accelerate-accumulated": set(),
    "accelerate-local": {"rank-local-metric", "padded-examples"},
    "accelerate-with-repeats": {"padded-examples"},
    "accelerate-loader-alone": {"duplicate-examples"},
    "accelerate-model-alone": {"weights-differ", "gradients-not-averaged"},
}
HAS_TRAINERS = all(importlib.util.find_spec(name) for name in ("lightning", "accelerate", "torchmetrics"))
# A busy machine makes notes of these warnings, so that here codes count, of whatever severity; and it can add such a note to any
# program, so that the other tests don't look at these codes' notes.
SPEED = {
    "decodes": {"waits-for-data"},
    "collates": {"waits-for-data"},
    "workers-collate": set(),
    "network": {"communication-exposed"},
    "network-by-hand": {"communication-exposed"},
    "small-batch": {"batch-too-small"},
    "small-batch-by-hand": {"batch-too-small"},
    "hidden-network": set(),
    "slower-rank": {"imbalance"},
    "works-alone": {"imbalance"},
    "computes": set(),
    "own-lines": {"slow-python"},
    "small-operations": {"slow-python"},
}
OF_TIME = set.union(*SPEED.values())
# Each code with a program that has it plainly, one that has it in disguise, and one that looks like it and is healthy.
CODES = {
    "duplicate-examples": ("data:no-sampler", "strangers:split-apart", "data:divided"),
    "missing-examples": ("strangers:told-four-replicas", "strangers:evaluates-less", "strangers:told-right"),
    "padded-examples": ("strangers:evaluates-padded", "strangers:gathers-padded", "strangers:gathers-and-cuts"),
    "set-epoch-missing": ("data:no-set-epoch", "strangers:hand-same-order", "healthy:in-order"),
    "worker-seeds": ("data:worker-alike", "data:held", "data:worker-apart"),
    "same-random-stream": ("models:dropout", "strangers:same-noise", "strangers:own-noise"),
    "unsynchronised-batch-norm": ("models:batch-norm", "strangers:norm-of-sorted-parts", "models:joint-norm"),
    "weights-differ": ("models:not-wrapped", "strangers:skipped-step", "models:weights-averaged"),
    "buffers-differ": ("models:center-alone", "strangers:norm-kept-apart", "models:center-together"),
    "gradients-not-averaged": ("models:manual-sum", "models:late-parameter", "models:manual-scaled-loss"),
    "mean-of-means": ("models:uneven-shares", "figures:averaged-means", "healthy:weighed-shares"),
    "rank-local-metric": ("figures:local-accuracy", "figures:frechet-averaged", "figures:merged"),
    "learning-rate-not-scaled": ("optimizing:plain", "optimizing:of-arguments", "optimizing:scaled-above"),
    "uneven-steps": ("calls:fewer-steps", "calls:stops-early", "healthy:uneven-joined"),
    "mismatched-collectives": ("calls:barrier-of-one", "calls:other-operation", "calls:own-groups"),
    "unused-parameters": ("models:unused", "models:needless-search", "models:unused-frozen"),
    "oversubscribed-threads": ("strangers:many-threads", "strangers:threads-of-one", "strangers:told-right"),
    "waits-for-data": ("speed:decodes", "speed:collates", "speed:workers-collate"),
    "communication-exposed": ("speed:network", "speed:network-by-hand", "speed:hidden-network"),
    "batch-too-small": ("speed:small-batch", "speed:small-batch-by-hand", "speed:computes"),
    "imbalance": ("speed:slower-rank", "speed:works-alone", "speed:computes"),
    "slow-python": ("speed:own-lines", "speed:small-operations", "speed:computes"),
}
ALL = [*EXPECTED, *(f"speed:{name}" for name in SPEED), *(f"trainers:{name}" for name in TRAINERS if HAS_TRAINERS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The logs of all programs."""
    made = tmp_path_factory.mktemp("logs")
    environment = command.environment(str(made / "launcher"))
    done = subprocess.run([sys.executable, "-B", str(PROGRAMS / "several.py"), str(made), *ALL], env=environment,
                          capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def judged(folder, name):
    logged = folder / name.replace(":", "-")
    run = logs.read(str(logged))
    run.ended = (logged / "ended").read_text()
    assert run.world == 2 and not run.broken
    found = rules.judge(run)
    assert "not-judged" not in {each.code for each in found}
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_said_above_a_note(folder, name):
    found = judged(folder, name)
    assert {each.code for each in found if each.severity != "note"} == EXPECTED[name]
    for each in found:
        assert each.fix and len(each.fix.splitlines()) <= 5
        assert each.severity == "note" or (each.evidence and each.cost and each.ranks and os.path.basename(each.where))


@pytest.mark.skipif(not HAS_TRAINERS, reason="Lightning, Accelerate or torchmetrics is not installed")
@pytest.mark.parametrize("name", TRAINERS)
def test_programs_of_lightning_and_accelerate(folder, name):
    assert {each.code for each in judged(folder, f"trainers:{name}") if each.severity != "note"} == TRAINERS[name]


@pytest.mark.parametrize("name", SPEED)
def test_what_costs_time(folder, name):
    found = judged(folder, f"speed:{name}")
    said = {each.code for each in found if each.code in OF_TIME}
    assert SPEED[name] <= said if SPEED[name] else not {each.code for each in found if each.severity != "note"}, said


@pytest.mark.parametrize("name", NOTES)
def test_what_is_a_note(folder, name):
    assert {each.code for each in judged(folder, f"optimizing:{name}")} - OF_TIME == NOTES[name]


@pytest.mark.parametrize("code", CODES)
def test_each_code_has_a_plain_program_a_disguised_and_a_healthy_one(code):
    codes = {**EXPECTED, **{f"{module}:{name}": found for module, some in (("speed", SPEED), ("optimizing", NOTES))
                            for name, found in some.items()}}  # fmt: skip
    assert [code in codes[name] for name in CODES[code]] == [True, True, False]


def test_a_name_server_that_does_not_answer_is_a_note(folder):
    (found,) = [each for each in judged(folder, "calls:silent-names") if each.code == "slow-names"]
    assert found.severity == "note" and found.ranks == [0, 1] and "the name of 127.0.0.1 takes" in found.evidence[0]


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
        ("optimizing:summed", "gradients-not-averaged", "2.000 times the mean"),
        ("users:never-synchronised", "gradients-not-averaged", "run within no_sync()"),
        ("users:judge-not-wrapped", "weights-differ", "nothing wraps the model"),
        ("users:skipped-batch", "uneven-steps", "in 6 backward passes"),
        ("users:loaded-on-one", "weights-differ", "perhaps a checkpoint that one rank loaded"),
        ("users:written-to-a-table", "rank-local-metric", "seems to write it: users.py:"),
        ("users:waits-for-a-message", "mismatched-collectives", "waits in recv at users.py:"),
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
