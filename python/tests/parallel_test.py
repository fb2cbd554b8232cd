# SPDX-License-Identifier: Apache-2.0
"""Replicas in threads and in processes against one replica on the joined batch."""
import copy

import pytest
import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel does: here once, not for a second in each forked process
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from support import processes

import lockstep
import MinkowskiEngine as ME
from lockstep import parallel


def make_net(sync=True, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(
        ME.MinkowskiConvolution(3, 6, kernel_size=3, dimension=2),
        ME.MinkowskiBatchNorm(6),
        ME.MinkowskiReLU(inplace=True),
        ME.MinkowskiConvolution(6, 8, kernel_size=2, stride=2, dimension=2),
        ME.MinkowskiBatchNorm(8),
        ME.MinkowskiReLU(),
        ME.MinkowskiGlobalSumPooling(),
        ME.MinkowskiLinear(8, 2),
    ).double()
    return ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(net) if sync else net


def clouds(sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = []
    for size in sizes:
        points = torch.randint(0, 9, (size, 2), generator=generator)
        points = torch.unique(points, dim=0)
        made.append((points, torch.rand(len(points), 3, generator=generator, dtype=torch.float64)))
    return made


def tensor_of(part):
    return ME.SparseTensor(torch.cat([f for _, f in part]), ME.utils.batched_coordinates([p for p, _ in part]))


def joint_step(data):
    net = make_net(sync=False)
    out = net(tensor_of(data)).F
    out.square().mean().backward()
    return net, out.detach()


def gradients_and_buffers(net):
    return {**{name: param.grad for name, param in net.named_parameters()}, **dict(net.named_buffers())}


def assert_same(got, wanted):
    wanted = gradients_and_buffers(wanted)
    assert set(got) == set(wanted)
    for name, value in got.items():
        assert torch.allclose(value, wanted[name], rtol=1e-9, atol=1e-12), name


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_threads_give_what_one_replica_gives_on_the_joined_batch(replicas):
    data = clouds([40, 25, 33, 18, 30, 21])
    wanted, outputs = joint_step(data)
    net, devices = make_net(), ["cpu"] * replicas
    size = len(data) // replicas
    inputs = [tensor_of(data[r * size : (r + 1) * size]) for r in range(replicas)]
    # As users of MinkowskiEngine write it for several GPUs.
    copies = parallel.replicate(net, devices)
    results = parallel.parallel_apply(copies, inputs, devices=devices)
    losses = parallel.parallel_apply([lambda y: y.F.square().mean()] * replicas, results, devices=devices)
    loss = parallel.gather(losses, "cpu", dim=0).mean()
    loss.backward()
    assert torch.allclose(torch.cat([y.F for y in results]), outputs)
    assert_same(gradients_and_buffers(net), wanted)


def test_threads_give_the_same_bits_each_time():
    data = clouds([40, 25, 33, 18])
    runs = []
    for _ in range(3):
        net = make_net()
        inputs = [tensor_of([part]) for part in data]
        results = parallel.parallel_apply(parallel.replicate(net, ["cpu"] * 4), inputs)
        parallel.gather([y.F.square().sum() for y in results], "cpu").mean().backward()
        runs.append([*(param.grad for param in net.parameters()), *net.buffers()])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other))


def test_replicas_own_their_buffers_and_share_weights():
    net = make_net(sync=False)
    first, second = parallel.replicate(net, ["cpu", "cpu"])
    assert first[1].bn.running_mean is net[1].bn.running_mean
    assert second[1].bn.running_mean is not net[1].bn.running_mean
    assert second[0].kernel.data_ptr() == net[0].kernel.data_ptr()
    assert not isinstance(second[0].kernel, nn.Parameter) and second[0].kernel.requires_grad
    assert not parallel.replicate(net, ["cpu"], detach=True)[0][0].kernel.requires_grad


def test_errors_of_replicas_reach_the_caller():
    net, data = make_net(), clouds([20, 20])
    wrong = ME.SparseTensor(torch.rand(2, 5).double(), torch.IntTensor([[0, 1, 1], [0, 2, 2]]))
    for inputs in ([tensor_of(data[:1]), wrong], [wrong, tensor_of(data[:1])]):
        with pytest.raises(ValueError, match="channels"):
            parallel.parallel_apply(parallel.replicate(net, ["cpu", "cpu"]), inputs)
    # A replica that leaves a layer out leaves nobody waiting.
    with pytest.raises(RuntimeError, match="same layers"):
        parallel.parallel_apply([net, net[0]], [tensor_of(data[:1]), tensor_of(data[1:])])
    with pytest.raises(ValueError, match="as many of each"):
        parallel.parallel_apply([net], [])


def test_modes_and_threads_of_the_caller():
    before = torch.get_num_threads()

    def look(x):
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_num_threads()

    assert parallel.parallel_apply([look, look], [1, 2]) == [(True, False, 1)] * 2
    with torch.no_grad(), torch.autocast("cpu"):
        assert parallel.parallel_apply([look, look], [1, 2]) == [(False, True, 1)] * 2
    assert torch.get_num_threads() == before
    named = parallel.parallel_apply([lambda a, b=0: a + b] * 2, [(1,), [2]], [{"b": 3}, {}])
    assert named == [4, 2]


def test_scatter_and_gather():
    x, y = torch.arange(10.0).view(5, 2), {"a": torch.arange(5)}
    parts = parallel.scatter((x, y, "same"), ["cpu"] * 3)
    assert [len(part[0]) for part in parts] == [2, 2, 1] and parts[1][2] == "same"
    joined = parallel.gather([part[:2] for part in parts], "cpu")
    assert torch.equal(joined[0], x) and torch.equal(joined[1]["a"], y["a"])


@pytest.mark.parametrize("replicas", [1, 2, 3, 6])
def test_sparse_tensors_are_cut_by_batch_entries_and_joined_again(replicas):
    data = clouds([20, 12, 15, 0, 9])  # one entry without points, and with six replicas one without entries
    x = tensor_of(data)
    x.F.requires_grad_()
    shares = parallel.scatter({"x": x, "n": 7}, ["cpu"] * replicas)
    sizes = [len(part["x"].decomposed_features) for part in shares]
    assert sum(sizes) == 5 and max(sizes) - min(sizes) <= 1 and all(part["n"] == 7 for part in shares)
    assert len({id(part["x"].coordinate_manager) for part in shares}) == replicas
    joined = parallel.gather([part["x"] for part in shares], "cpu")
    assert torch.equal(joined.F, x.F) and torch.equal(joined.C, x.C)
    joined.F.square().sum().backward()
    assert torch.equal(x.F.grad, 2 * x.F)


def test_sync_batch_norm_of_one_replica_is_a_batch_norm():
    x = torch.rand(6, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    ours, dense = lockstep.SyncBatchNorm(4).double(), nn.BatchNorm2d(4).double()
    with torch.no_grad():
        for layer in (ours, dense):
            layer.weight.copy_(torch.arange(4) + 1)
            layer.bias.copy_(torch.arange(4))
    for train in (True, False):
        a, b = ours.train(train)(x), dense.train(train)(x)
        assert torch.allclose(a, b)
        grads = [torch.autograd.grad(y.pow(3).sum(), (x, layer.weight)) for y, layer in ((a, ours), (b, dense))]
        assert all(torch.allclose(p, q) for p, q in zip(*grads))
    assert torch.allclose(ours.running_var, dense.running_var)
    with pytest.raises(ValueError):
        ours(torch.rand(3, 5))


def test_converting_keeps_parameters_and_buffers():
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Sequential(nn.BatchNorm1d(4, momentum=None)))
    params, state = list(net.parameters()), copy.deepcopy(net.state_dict())
    net.eval()
    converted = lockstep.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(converted[1], lockstep.SyncBatchNorm) and converted[2][0].momentum is None
    assert all(a is b for a, b in zip(params, converted.parameters())) and not converted[1].training
    assert list(converted.state_dict()) == list(state)
    sparse = make_net()
    assert isinstance(sparse[1], ME.MinkowskiSyncBatchNorm) and isinstance(sparse[1].bn, lockstep.SyncBatchNorm)
    copy.deepcopy(sparse).load_state_dict(make_net(sync=False).state_dict())
    alone = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(ME.MinkowskiBatchNorm(3))
    assert isinstance(alone, ME.MinkowskiSyncBatchNorm)


# ---- processes ---------------------------------------------------------------------------------------------------------

# The examples of each rank: uneven, and one without any.
SHARES = {1: [[40, 25, 33, 18]], 2: [[40, 25, 33], [18]], 3: [[40, 25], [], [33, 18]]}
SIZES = [40, 25, 33, 18]


def _share(rank, world):
    data, begin = clouds(SIZES), sum(len(share) for share in SHARES[world][:rank])
    return data[begin : begin + len(SHARES[world][rank])]


def _dense_norm(rank, world):
    share = torch.cat([features for _, features in _share(rank, world)] or [torch.zeros(0, 3).double()])
    share = share.requires_grad_()
    norm = lockstep.SyncBatchNorm(3).double()
    out = norm(share)
    out.pow(3).sum().backward()
    return out.detach(), share.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var


@pytest.mark.parametrize("world", [1, 2, 3])
def test_sync_batch_norm_over_processes_takes_uneven_and_empty_shares(world):
    x = torch.cat([features for _, features in clouds(SIZES)]).requires_grad_()
    dense = nn.BatchNorm1d(3).double()
    out = dense(x)
    out.pow(3).sum().backward()
    results = processes.run(world, _dense_norm)
    outs, grads, weights, biases, means, variances = zip(*results)
    assert torch.allclose(torch.cat(outs), out) and torch.allclose(torch.cat(grads), x.grad)
    assert torch.allclose(sum(weights), dense.weight.grad) and torch.allclose(sum(biases), dense.bias.grad)
    for mean, variance in zip(means, variances):
        assert torch.equal(mean, means[0]) and torch.equal(variance, variances[0])
        assert torch.allclose(mean, dense.running_mean) and torch.allclose(variance, dense.running_var)


def _ddp_step(rank, world, threads):
    net, data = make_net(), clouds([40, 25, 33, 18])
    size = len(data) // world
    mine = data[rank * size : (rank + 1) * size]
    if threads == 1:
        model = DistributedDataParallel(net, broadcast_buffers=False)
        model(tensor_of(mine)).F.square().mean().backward()
    else:
        part = len(mine) // threads
        inputs = [tensor_of(mine[r * part : (r + 1) * part]) for r in range(threads)]
        results = parallel.parallel_apply(parallel.replicate(net, ["cpu"] * threads), inputs)
        torch.cat([y.F for y in results]).square().mean().backward()
        for param in net.parameters():
            torch.distributed.all_reduce(param.grad)
            param.grad /= world
    return gradients_and_buffers(net)


@pytest.mark.parametrize("world, threads", [(1, 1), (2, 1), (2, 2)])
def test_sparse_networks_over_processes_and_threads(world, threads):
    wanted, _ = joint_step(clouds([40, 25, 33, 18]))
    for got in processes.run(world, _ddp_step, threads):
        assert_same(got, wanted)
