# SPDX-License-Identifier: Apache-2.0
"""The canonical tree as a communication hook: the placement of replicas changes no bit."""
import pytest
import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel does: here once, not for a second in each forked process
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from support import processes

import lockstep
from lockstep import canonical, tree
from lockstep.sampler import share

WORLDS = [1, 2, 3]


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


@pytest.mark.parametrize("replicas", [6])
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
    model = DistributedDataParallel(make_model(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, lockstep.canonical_hook)
    model(inputs_of(rank)).square().mean().backward()
    assert not canonical._states  # or the group would outlive destroy_process_group()
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
