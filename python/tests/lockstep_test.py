# SPDX-License-Identifier: Apache-2.0
"""Sampler, metrics and watch of lockstep, over 1, 2 and 3 processes."""
import copy
import math
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
from support import processes

import lockstep
from lockstep import metrics

WORLDS = [1, 2, 3]


# ---- the sampler -------------------------------------------------------------------------------------------------------


def _epoch(samplers):
    """What each process's sampler gives out in an epoch."""
    return [[list(batch) for batch in sampler] for sampler in samplers]


def make_samplers(world, size=23, **options):
    options.setdefault("batch_size", 6)
    return [lockstep.ExactSampler(size, rank=r, processes=world, **options) for r in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_each_example_once_whatever_the_number_of_processes(world):
    samplers = make_samplers(world, seed=3)
    alone = make_samplers(1, seed=3)[0]
    for epoch in range(2):
        given = _epoch(samplers)
        assert {len(batches) for batches in given} == {4} == {len(sampler) for sampler in samplers}
        assert sorted(i for batches in given for batch in batches for i in batch) == list(range(23))
        orders = []
        for step, batch in enumerate(alone):
            parts = [batches[step] for batches in given]
            assert sum(parts, []) == batch
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
            orders += batch
        for sampler in (*samplers, alone):
            for _ in range(4):
                sampler.advance()
            assert sampler.epoch == epoch + 1
        assert sum(_epoch([alone])[0], []) != orders
        alone.set_epoch(epoch + 1)


def test_a_plain_loop_goes_through_another_order_each_epoch():
    plain, told = make_samplers(2, seed=4)[1], make_samplers(2, seed=4)[1]
    for epoch in range(3):
        told.set_epoch(epoch)
        assert _epoch([plain]) == _epoch([told]) and plain.epoch == epoch
    next(iter(plain))  # a loop that was left is begun again
    told.set_epoch(3)
    assert _epoch([plain]) == _epoch([told]) and plain.epoch == 3


def test_resuming_on_another_number_of_processes():
    two, three = make_samplers(2, seed=1), make_samplers(3, seed=1)
    full = _epoch(make_samplers(1, seed=1))[0]
    for sampler in two:
        for _, _ in zip(range(2), sampler):
            sampler.advance()
    for sampler in three:
        sampler.load_state_dict(two[0].state_dict())
    rest = _epoch(three)
    assert [sum((batches[i] for batches in rest), []) for i in range(2)] == full[2:]
    assert len(three[0]) == 2
    with pytest.raises(ValueError, match="expected"):
        make_samplers(1, size=9)[0].load_state_dict(two[0].state_dict())


def _draw(rank, world, state, steps):
    sampler, drawn = lockstep.ExactSampler(23, batch_size=6, seed=1), []
    if state is not None:
        sampler.load_state_dict(state)
    for _, batch in zip(range(steps), sampler):
        drawn.append(batch)
        sampler.advance()
    return drawn, sampler.state_dict()


@pytest.mark.parametrize("world", WORLDS)
def test_processes_draw_one_epoch_and_others_go_on(world):
    begun = processes.run(world, _draw, None, 2)
    ended = processes.run(world % 3 + 1, _draw, begun[-1][1], 2)
    drawn = [sum((batches[step] for batches, _ in ranks), []) for ranks in (begun, ended) for step in range(2)]
    assert drawn == _epoch(make_samplers(1, seed=1))[0]
    assert all(state["epoch"] == 1 and state["position"] == 0 for _, state in ended)


def test_orders_of_ones_own():
    ids = [4, 4, 0, 2, 1]
    assert sum(_epoch(make_samplers(1, size=5, order=ids))[0], []) == ids
    assert sum(_epoch(make_samplers(1, size=5, shuffle=False))[0], []) == list(range(5))
    weighted = lockstep.Order.weighted([0.0, 1.0, 0.0], seed=1, count=9)
    assert sum(_epoch(make_samplers(1, size=3, order=weighted))[0], []) == [1] * 9
    grouped = lockstep.Order.grouped([0, 1, 0, 1], seed=2)
    first = sum(_epoch(make_samplers(1, size=4, order=grouped))[0], [])
    assert grouped.exactly_once() and {first[0] % 2, first[1] % 2} in ({0}, {1})
    assert len(make_samplers(1, drop_last=True)[0]) == 3
    for wrong in ({"order": [9]}, {"batch_size": 0}, {"order": lockstep.Order.sequential(4)}):
        with pytest.raises(ValueError):
            make_samplers(1, size=5, **wrong)


def test_a_loader_with_workers():
    data = torch.arange(23).float()
    sampler = make_samplers(1, seed=5)[0]
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=1)
    seen = [int(i) for batch in loader for i in batch]
    assert seen == sum(_epoch(make_samplers(1, seed=5))[0], []) and sampler.state_dict()["position"] == 0


# ---- metrics -----------------------------------------------------------------------------------------------------------


def examples(n=50):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(n, 4, generator=generator)
    return scores, torch.randint(0, 4, (n,), generator=generator), torch.randn(n, 3, generator=generator)


def parts_of(rank, world):
    """Uneven, and with three processes one without any."""
    bounds = {1: [0, 50], 2: [0, 37, 50], 3: [0, 20, 20, 50]}[world]
    return slice(bounds[rank], bounds[rank + 1])


def _measure(rank, world):
    scores, targets, features = (each[parts_of(rank, world)] for each in examples())
    mean, accuracy, top2 = metrics.Mean(), metrics.Accuracy(), metrics.TopKAccuracy(2)
    matrix, iou, distance = metrics.ConfusionMatrix(4), metrics.MeanIoU(4), metrics.FrechetDistance(3)
    for score in scores:
        mean.add(float(score[0]))
    for metric in (accuracy, top2, matrix, iou):
        metric.add(scores, targets)
    distance.add_real(features)
    distance.add_fake(features.abs())
    every = (mean, accuracy, top2, matrix, iou, distance)
    return [metric.all_merge().value() for metric in every], matrix.matrix


@pytest.mark.parametrize("world", WORLDS)
def test_metrics_are_those_of_all_processes(world):
    scores, targets, features = examples()
    predicted = scores.argmax(1)
    counts = torch.zeros(4, 4, dtype=torch.long)
    for target, prediction in zip(targets, predicted):
        counts[target, prediction] += 1
    union = counts.sum(0) + counts.sum(1) - counts.diag()
    a, b = features.double(), features.abs().double()
    product = torch.cov(a.T) @ torch.cov(b.T)
    root = torch.linalg.eigvals(product).real.clamp(min=0).sqrt().sum()
    frechet = (a.mean(0) - b.mean(0)).square().sum() + torch.cov(a.T).trace() + torch.cov(b.T).trace() - 2 * root
    top2 = (scores.topk(2).indices == targets[:, None]).any(1).double().mean()
    accuracy = (predicted == targets).double().mean()
    wanted = [scores[:, 0].double().mean(), accuracy, top2, accuracy, (counts.diag() / union).double().mean(), frechet]
    results = processes.run(world, _measure)
    for values, matrix in results:
        assert values == results[0][0]  # the same bits on all processes
        assert values == pytest.approx([float(each) for each in wanted], rel=1e-6)
        assert torch.equal(matrix, counts)


def test_metrics_orders_and_samplers_are_pickled_and_copied():
    scores, targets = torch.randn(9, 4), torch.randint(4, (9,))
    made = [metrics.Accuracy(), metrics.TopKAccuracy(2, ignore=1), metrics.ConfusionMatrix(4, ignore=2), metrics.MeanIoU(4)]
    for each in made:
        each.add(scores, targets)
    mean, distance = metrics.Mean(), metrics.FrechetDistance(4)
    mean.add(0.3, 2)
    distance.add_real(scores)
    distance.add_fake(scores + 1)
    for each in [*made, mean, distance]:
        for again in (pickle.loads(pickle.dumps(each)), copy.copy(each), copy.deepcopy(each)):
            assert type(again) is type(each) and again.value() == each.value()
    again = pickle.loads(pickle.dumps(made[2]))
    again.add(scores, targets)
    assert again.state().sum() == 2 * made[2].state().sum()  # what is ignored is so in the copy too, which counts by itself
    orders = [lockstep.Order.shuffled(9, seed=2), lockstep.Order.sequential(9), lockstep.Order.weighted([1.0, 2.0] * 4 + [0.5], seed=1),
              lockstep.Order.grouped([0, 1, 0, 1, 0, 1, 1, 0, 0], seed=2, run=2), lockstep.Order.of(9, [3, 1, 4, 1, 5])]  # fmt: skip
    for order in orders:
        sampler = lockstep.ExactSampler(9, batch_size=2, order=order, rank=0, processes=1)
        sampler.advance()
        state, copies = sampler.state_dict(), (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler))
        batches = list(sampler)
        for again in copies:
            assert again.state_dict() == state and list(again) == batches
        assert repr(copy.copy(order)) == repr(order)


def test_metrics_that_have_seen_nothing():
    assert math.isnan(metrics.Accuracy().value()) and math.isnan(metrics.FrechetDistance(2).value())
    accuracy = metrics.Accuracy()
    accuracy.add(torch.eye(3), torch.arange(3))
    accuracy.merge(torch.stack([accuracy.state(), metrics.Accuracy().state()]))
    assert accuracy.value() == 1 and accuracy.examples == 3
    accuracy.clear()
    assert math.isnan(accuracy.value())
    with pytest.raises(ValueError):
        accuracy.merge(torch.zeros(2, 7))


# The interpreter's lock changes hands only where a thread gives it up, so the group's thread still wants it, to let go of the
# tensors, when the last line is done. What is destroyed after that gives the lock up for a while.
ENDS_WITH_A_COLLECTIVE = """
import sys
import time
import torch
import torch.distributed as dist
from lockstep import groups

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.2)

last = Last()
sys.setswitchinterval(60)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
group, mine, everyone = dist.group.WORLD, torch.ones(1), torch.zeros(1)
groups.lend(mine, everyone)
work = dist.all_gather([everyone], mine, async_op=True)
del work, mine, everyone
sum(range(5_000_000))  # by when it is done
"""


def test_a_program_may_end_with_a_collective(tmp_path):
    command = [sys.executable, "-B", "-c", ENDS_WITH_A_COLLECTIVE, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- the watch ---------------------------------------------------------------------------------------------------------


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 3))


def _diverge(rank, world, rotten):
    model = make_model()
    watch = lockstep.divergence_watch(model, every=2)
    for step in range(6):
        if rotten and step == 3 and rank == world - 1:
            with torch.no_grad():
                model[3].weight.view(-1)[7] = model[3].weight.view(-1)[7].nextafter(torch.tensor(9.0))
        try:
            model(torch.ones(2, 5))
        except lockstep.DivergenceError as error:
            watch.remove()
            model(torch.ones(2, 5))
            return step, error.tensors, error.ranks, str(error)
    watch.check()
    return None


@pytest.mark.parametrize("world", WORLDS)
def test_the_watch_sees_one_bit(world):
    assert processes.run(world, _diverge, False) == [None] * world
    for result in processes.run(world, _diverge, True):
        if world == 1:
            assert result is None
            continue
        step, tensors, ranks, message = result
        assert step == 3 and tensors == ["3.weight"] and ranks == {"3.weight": [world - 1]}
        assert "'3.weight'" in message


# ---- torch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    ["batch_norm AutogradCPU", "batch_norm CPU", "convolution BackendSelect", "avg_pool2d BackendSelect",
     "bernoulli_.float BackendSelect", "native_dropout BackendSelect"],
)
def test_torchs_own_operations_are_left_as_they_are(operation):
    name, key = operation.split()
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::" + name, key)
