# SPDX-License-Identifier: Apache-2.0
"""What lockstep gives users of DistributedDataParallel, over 1, 2 and 3 processes."""
import math

import processes
import pytest
import torch
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

import lockstep
from lockstep import metrics, tree
from lockstep.sampler import share

WORLDS = [1, 2, 3]


# ---- the tree and the hook ---------------------------------------------------------------------------------------------


def test_tree_order():
    joined = [tree.merge([str(i) for i in range(n)], lambda a, b: f"({a}{b})") for n in (1, 2, 3, 5, 6)]
    assert joined == ["0", "(01)", "((01)2)", "(((01)(23))4)", "(((01)(23))(45))"]
    assert tree.block_nodes(6, 1, 5) == [(1, 2), (2, 4), (4, 5)]
    assert [list(share(7, r, 3)) for r in range(3)] == [[0, 1, 2], [3, 4], [5, 6]]
    values = [torch.randn(5) for _ in range(6)]
    assert torch.equal(tree.sum_tensors(values), ((values[0] + values[1]) + (values[2] + values[3])) + (values[4] + values[5]))


def make_model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 40), nn.ReLU(), nn.Linear(40, 3))
    return net.to(memory_format=torch.channels_last)


def inputs_of(replica):
    return torch.randn(4 + replica, 2, 8, 8, generator=torch.Generator().manual_seed(replica))


def _train(rank, world, replicas, steps=2):
    # A small bucket: several are under way at once.
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    turns = lockstep.Replicas(model, replicas)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(steps):
        for r in turns:
            model(inputs_of(r)).square().mean().backward()
        grads = [param.grad.clone() for param in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
    return grads, model.module.state_dict()


@pytest.mark.parametrize("replicas", [3, 6])
def test_the_placement_of_replicas_changes_no_bit(replicas):
    results = [processes.run(world, _train, replicas) for world in WORLDS]
    grads, state = results[0][0]
    assert sum(grad.abs().sum() for grad in grads) > 0
    for ranks in results:
        for other_grads, other in ranks:
            assert all(torch.equal(a, b) for a, b in zip(grads, other_grads))
            assert all(torch.equal(state[name], other[name]) for name in state)


def test_the_mean_is_that_of_all_replicas():
    grads, _ = processes.run(2, _train, 5, 1)[0]
    net = make_model()
    (sum(net(inputs_of(r)).square().mean() for r in range(5)) / 5).backward()
    for got, param in zip(grads, net.parameters()):
        assert torch.allclose(got, param.grad, rtol=1e-4, atol=1e-6)


def _plain_hook(rank, world):
    model = DistributedDataParallel(make_model())
    model.register_comm_hook(None, lockstep.canonical_hook)
    model(inputs_of(rank)).square().mean().backward()
    return [param.grad for param in model.parameters()]


@pytest.mark.parametrize("world", WORLDS)
def test_the_hook_alone_takes_each_process_for_a_replica(world):
    wanted, _ = processes.run(1, _train, world, 1)[0]
    for grads in processes.run(world, _plain_hook):
        assert all(torch.equal(a, b) for a, b in zip(grads, wanted))


def _misuse(rank, world):
    model = DistributedDataParallel(make_model())
    with pytest.raises(ValueError, match="one each at least"):
        lockstep.Replicas(model, 1)
    turns = lockstep.Replicas(model, 2 * world)
    model(inputs_of(0)).sum().backward  # noqa: B018  no backward pass, so no gradients
    next(iter(turns))
    model.zero_grad()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    with pytest.raises(ValueError, match="zero_grad"):
        next(iter(turns))
    return True


def test_wrong_use_of_replicas_is_refused():
    assert all(processes.run(2, _misuse))


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
        for step, batch in enumerate(alone):
            parts = [batches[step] for batches in given]
            assert sum(parts, []) == batch
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
        orders = sum(_epoch([alone])[0], [])
        for sampler in (*samplers, alone):
            for _ in range(4):
                sampler.advance()
            assert sampler.epoch == epoch + 1
        assert sum(_epoch([alone])[0], []) != orders


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
    assert seen == sum(_epoch([sampler])[0], []) and sampler.state_dict()["position"] == 0


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
    mean, accuracy, top2 = metrics.Mean(), metrics.Accuracy(), metrics.TopK(2)
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


# ---- the watch ---------------------------------------------------------------------------------------------------------


def _diverge(rank, world, rotten):
    model = make_model()
    watch = lockstep.divergence_watch(model, every=2)
    for step in range(6):
        if rotten and step == 3 and rank == world - 1:
            with torch.no_grad():
                model[3].weight.view(-1)[7] = model[3].weight.view(-1)[7].nextafter(torch.tensor(9.0))
        try:
            model(inputs_of(0))
        except lockstep.DivergenceError as error:
            watch.remove()
            model(inputs_of(0))
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
