# SPDX-License-Identifier: Apache-2.0
"""Each layer against its definition, written out over points one by one or as torch's dense layer."""
import itertools

import numpy as np
import pytest
import torch

import MinkowskiEngine as ME


def rows_by_point(x):
    return {tuple(point): row for point, row in zip(x.C.tolist(), x.F)}


def offsets(size, axes):
    """A kernel's offsets, the first axis fastest."""
    low = -(size - 1) // 2 if size % 2 else 0
    one = range(low, low + size)
    return [tuple(reversed(each)) for each in itertools.product(one, repeat=axes)]


def convolve_by_hand(x, kernel, out_points, scale, size, dilation=1):
    """y[u] = sum over i of x[u + i] kernel[i]."""
    rows, axes = rows_by_point(x), x.D
    results = []
    for point in out_points:
        total = torch.zeros(kernel.size(-1), dtype=kernel.dtype)
        for k, offset in enumerate(offsets(size, axes)):
            at = (point[0], *(p + o * scale * dilation for p, o in zip(point[1:], offset)))
            if at in rows:
                total = total + rows[at] @ kernel.reshape(-1, *kernel.shape[-2:])[k]
        results.append(total)
    return torch.stack(results)


def make(cloud, channels=3, stride=1, **kwargs):
    points = cloud(**kwargs)
    points[:, 1:] *= stride
    features = torch.rand(len(points), channels, dtype=torch.float64)
    return ME.SparseTensor(features, points, tensor_stride=stride)


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize("size, stride, dilation", [(1, 1, 1), (2, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (1, 2, 1)])
def test_convolution(cloud, axes, size, stride, dilation):
    x = make(cloud, axes=axes, points=30, low=-3, high=4)
    conv = ME.MinkowskiConvolution(3, 5, size, stride, dilation, bias=True, dimension=axes).double()
    y = conv(x)
    by_hand = convolve_by_hand(x, conv.kernel, y.C.tolist(), 1, size, dilation)
    assert torch.allclose(y.F, by_hand + conv.bias)
    assert y.tensor_stride == [stride] * axes
    coarse = {(b, *(p // stride * stride for p in point)) for b, *point in x.C.tolist()}
    assert {tuple(point) for point in y.C.tolist()} == coarse
    if stride == 1:
        assert torch.equal(y.C, x.C)


def test_convolution_of_strided_input_scales_its_offsets(cloud):
    x = make(cloud, stride=2)
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=3).double()
    y = conv(x)
    assert torch.allclose(y.F, convolve_by_hand(x, conv.kernel, y.C.tolist(), 2, 3))


def test_transposed_convolution_comes_back_to_the_coordinates_of_its_origin(cloud):
    x = make(cloud)
    down = ME.MinkowskiConvolution(3, 4, kernel_size=2, stride=2, dimension=3).double()
    up = ME.MinkowskiConvolutionTranspose(4, 5, kernel_size=2, stride=2, dimension=3).double()
    coarse = down(x)
    y = up(coarse)
    assert y.coordinate_map_key == x.coordinate_map_key and torch.equal(y.C, x.C)
    rows, numbers = rows_by_point(coarse), offsets(2, 3)
    for point, row in zip(y.C.tolist(), y.F):
        origin = [point[0], *(p // 2 * 2 for p in point[1:])]
        k = numbers.index(tuple(p - o for p, o in zip(point[1:], origin[1:])))
        assert torch.allclose(row, rows[tuple(origin)] @ up.kernel[k])


def test_transposed_layers_meet_at_the_same_finer_coordinates(cloud):
    x = make(cloud)
    coarse = ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=3)(x)
    pruned = ME.MinkowskiPruning()(coarse, torch.arange(len(coarse)) % 3 > 0)
    up = ME.MinkowskiConvolutionTranspose(3, 2, kernel_size=2, stride=2, dimension=3).double()
    unpool = ME.MinkowskiPoolingTranspose(kernel_size=2, stride=2, dimension=3)
    assert up(pruned).coordinate_map_key == unpool(pruned).coordinate_map_key == x.coordinate_map_key
    # Nothing finer is there: the first layer makes it, the others find it.
    seed = make(cloud, stride=4, points=6)
    generative = ME.MinkowskiGenerativeConvolutionTranspose(3, 2, kernel_size=3, stride=2, dimension=3).double()
    made = generative(seed)
    assert ME.cat(up(seed), unpool(seed), made).coordinate_map_key == made.coordinate_map_key
    assert torch.allclose(unpool(seed).F, unpool_by_hand(seed, made.C.tolist()))
    some = made.C[::2]
    assert torch.allclose(unpool(seed, some).F, unpool_by_hand(seed, some.tolist()))
    assert torch.allclose(up(seed, some).F, up(seed).F[::2])


def unpool_by_hand(x, out_points):
    """Unpooling of size and stride 2: each point of x at the corners of its block, zero elsewhere."""
    step = x.tensor_stride[0] // 2
    taken = {
        (b, *(p + o * step for p, o in zip(point, offset))): row
        for (b, *point), row in rows_by_point(x).items()
        for offset in offsets(2, x.D)
    }
    return torch.stack([taken.get(tuple(point), torch.zeros_like(x.F[0])) for point in out_points])


def test_points_off_the_grid_of_the_tensor_stride_keep_their_place(cloud):
    points = cloud(axes=2, points=12)
    with pytest.warns(UserWarning, match="multiples"):
        x = ME.SparseTensor(torch.rand(len(points), 3, dtype=torch.float64), points, tensor_stride=4)
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=2).double()
    assert torch.allclose(conv(x).F, convolve_by_hand(x, conv.kernel, points.tolist(), 4, 3))
    up = ME.MinkowskiConvolutionTranspose(3, 4, kernel_size=3, stride=2, dimension=2).double()
    y, rows = up(x), rows_by_point(x)
    reached = {(b, *(p + 2 * o for p, o in zip(point, offset))) for b, *point in rows for offset in offsets(3, 2)}
    assert {tuple(point) for point in y.C.tolist()} == reached


def test_generative_convolution_makes_all_coordinates(cloud):
    x = make(cloud, stride=2, points=10)
    up = ME.MinkowskiGenerativeConvolutionTranspose(3, 2, kernel_size=2, stride=2, dimension=3).double()
    y = up(x)
    assert len(y) == 8 * len(x) and y.tensor_stride == [1, 1, 1]
    down = ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=3)
    assert {tuple(p) for p in down(y).C.tolist()} == {tuple(p) for p in x.C.tolist()}


def test_convolution_at_given_coordinates(cloud):
    x, points = make(cloud), cloud(seed=9, points=15)
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=3).double()
    wanted = convolve_by_hand(x, conv.kernel, points.tolist(), 1, 3)
    at_tensor = conv(x, points)
    assert torch.equal(at_tensor.C, points) and torch.allclose(at_tensor.F, wanted)
    assert torch.equal(conv(x, at_tensor.coordinate_map_key).F, at_tensor.F)
    other = ME.SparseTensor(torch.zeros(len(points), 1), points)
    elsewhere = conv(x, coordinates=other)
    assert torch.equal(elsewhere.F, at_tensor.F) and elsewhere.coordinate_manager is x.coordinate_manager
    one = ME.MinkowskiConvolution(3, 4, kernel_size=1, dimension=3).double()
    by_hand = convolve_by_hand(x, one.kernel, points.tolist(), 1, 1)
    assert torch.allclose(one(x, coordinates=points).F, by_hand)


def test_expanding_convolution_covers_what_inputs_reach(cloud):
    x = make(cloud, points=8)
    conv = ME.MinkowskiConvolution(3, 2, kernel_size=3, expand_coordinates=True, dimension=3).double()
    reached = {(b, *(p - o for p, o in zip(point, offset))) for b, *point in x.C.tolist() for offset in offsets(3, 3)}
    y = conv(x)
    assert {tuple(point) for point in y.C.tolist()} == reached
    assert torch.allclose(y.F, convolve_by_hand(x, conv.kernel, y.C.tolist(), 1, 3))


def test_layers_share_a_kernel_generator(cloud):
    x, kernel = make(cloud, points=8), ME.KernelGenerator(kernel_size=3, dimension=3)
    for expand in (False, True, False):
        conv = ME.MinkowskiConvolution(3, 2, kernel_generator=kernel, expand_coordinates=expand, dimension=3).double()
        assert (len(conv(x)) > len(x)) == expand
    maps = x.coordinate_manager.kernel_map(x.coordinate_map_key, x.coordinate_map_key, kernel_size=3, region_type=1)
    assert max(maps) < 7 and torch.equal(maps[0][0], maps[0][1])  # a cross, its centre first


def test_hypercross_and_custom_kernels(cloud):
    x = make(cloud, axes=2)
    cross = ME.KernelGenerator(kernel_size=3, region_type=ME.RegionType.HYPER_CROSS, dimension=2)
    same = torch.IntTensor([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])  # the centre, then +, - of each axis
    custom = ME.KernelGenerator(region_type=ME.RegionType.CUSTOM, region_offsets=same, kernel_size=1, dimension=2)
    assert cross.kernel_volume == custom.kernel_volume == 5
    a = ME.MinkowskiConvolution(3, 4, kernel_generator=cross, dimension=2).double()
    b = ME.MinkowskiConvolution(3, 4, kernel_generator=custom, dimension=2).double()
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(x).F, b(x).F)
    rows = rows_by_point(x)
    for point, got in zip(x.C.tolist(), b(x).F):
        at = [(point[0], *(p + o for p, o in zip(point[1:], offset))) for offset in same.tolist()]
        wanted = sum(rows[p] @ b.kernel[k] for k, p in enumerate(at) if p in rows)
        assert torch.allclose(got, wanted)
    pool = ME.MinkowskiMaxPooling(kernel_size=1, kernel_generator=custom, dimension=2)
    wanted = [
        torch.stack([rows[(b, p + i, q + j)] for i, j in same.tolist() if (b, p + i, q + j) in rows]).amax(0)
        for b, p, q in x.C.tolist()
    ]
    assert torch.equal(pool(x).F, torch.stack(wanted))


@pytest.mark.parametrize("size, stride", [(1, 1), (3, 1), (2, 2)])
def test_groups_are_convolutions_of_their_own_channels(cloud, size, stride):
    x = make(cloud, channels=6)
    conv = ME.MinkowskiConvolution(6, 4, size, stride, bias=True, dimension=3, groups=2).double()
    assert conv.kernel.shape[-2:] == (3, 4) and "groups=2" in repr(conv)
    y = conv(x)
    parts = [convolve_by_hand(x._like(x.F[:, at]), conv.kernel[..., to], y.C.tolist(), 1, size)
             for at, to in ((slice(0, 3), slice(0, 2)), (slice(3, 6), slice(2, 4)))]
    assert torch.allclose(y.F, torch.cat(parts, 1) + conv.bias)
    with pytest.raises(AssertionError, match="divides"):
        ME.MinkowskiConvolution(6, 4, size, dimension=3, groups=4)


def test_channelwise_convolution(cloud):
    x = make(cloud)
    conv = ME.MinkowskiChannelwiseConvolution(3, kernel_size=3, bias=True, dimension=3).double()
    assert conv.kernel.shape == (27, 3) and conv.bias.shape == (1, 3)
    by_hand = convolve_by_hand(x, torch.diag_embed(conv.kernel), x.C.tolist(), 1, 3)
    assert torch.allclose(conv(x).F, by_hand + conv.bias)


@pytest.mark.parametrize("layer, reduce", [("Sum", torch.sum), ("Avg", torch.mean), ("Max", torch.amax)])
@pytest.mark.parametrize("size, stride", [(2, 2), (3, 1), (3, 2)])
def test_local_pooling(cloud, layer, reduce, size, stride):
    x = make(cloud)
    y = getattr(ME, f"Minkowski{layer}Pooling")(kernel_size=size, stride=stride, dimension=3)(x)
    rows = rows_by_point(x)
    for point, row in zip(y.C.tolist(), y.F):
        at = [(point[0], *(p + o for p, o in zip(point[1:], offset))) for offset in offsets(size, 3)]
        met = [rows[p] for p in at if p in rows]
        assert torch.allclose(row, reduce(torch.stack(met), 0)) if met else (row == 0).all()


@pytest.mark.parametrize("size", [2, 3, [3, 2, 1]])
def test_pooling_whose_size_is_its_stride_takes_each_input_once(cloud, size):
    x = make(cloud, points=60)
    y = ME.MinkowskiSumPooling(kernel_size=size, stride=size, dimension=3)(x)
    steps = torch.tensor([1, *(size if isinstance(size, list) else [size] * 3)])
    blocks = torch.floor(x.C / steps) * steps
    wanted = torch.stack([x.F[(blocks == point).all(1)].sum(0) for point in y.C])
    assert torch.allclose(y.F, wanted) and torch.allclose(y.F.sum(0), x.F.sum(0))
    back = ME.MinkowskiPoolingTranspose(kernel_size=size, stride=size, dimension=3)(y)
    rows = rows_by_point(y)
    assert torch.equal(back.F, torch.stack([rows[tuple(block)] for block in blocks.int().tolist()]))


def test_pooling_transpose_averages_what_reaches_a_point(cloud):
    x = make(cloud)
    coarse = ME.MinkowskiAvgPooling(kernel_size=2, stride=2, dimension=3)(x)
    y = ME.MinkowskiPoolingTranspose(kernel_size=2, stride=2, dimension=3)(coarse)
    rows = rows_by_point(coarse)
    wanted = torch.stack([rows[(b, *(p // 2 * 2 for p in point))] for b, *point in y.C.tolist()])
    assert torch.equal(y.C, x.C) and torch.allclose(y.F, wanted)


@pytest.mark.parametrize("layer, reduce", [("Sum", torch.sum), ("Avg", torch.mean), ("Max", torch.amax)])
def test_global_pooling_and_broadcast(cloud, layer, reduce):
    x = make(cloud, batches=3)
    pooled = getattr(ME, f"MinkowskiGlobal{layer}Pooling")()(x)
    assert pooled.C.tolist() == [[b, 0, 0, 0] for b in range(3)]
    wanted = torch.stack([reduce(part, 0) for part in x.decomposed_features])
    assert torch.allclose(pooled.F, wanted)
    spread = wanted[x.C[:, 0].long()]
    assert torch.allclose(ME.MinkowskiBroadcast()(x, pooled).F, spread)
    assert torch.allclose(ME.MinkowskiBroadcastAddition()(x, pooled).F, x.F + spread)
    assert torch.allclose(ME.MinkowskiBroadcastMultiplication()(x, pooled).F, x.F * spread)
    both = ME.MinkowskiBroadcastConcatenation()(x, pooled)
    assert torch.allclose(both.F, torch.cat([x.F, spread], 1))


def test_norms(cloud):
    x = make(cloud, points=60)
    bn, dense = ME.MinkowskiBatchNorm(3).double(), torch.nn.BatchNorm1d(3).double()
    for _ in range(2):
        assert torch.allclose(bn(x).F, dense(x.F))
    assert torch.allclose(bn.bn.running_mean, dense.running_mean)
    assert torch.allclose(bn.bn.running_var, dense.running_var)
    assert torch.allclose(bn.eval()(x).F, dense.eval()(x.F))
    wanted = torch.zeros_like(x.F)
    for rows in x.decomposition_permutations:
        part = x.F[rows]
        wanted[rows] = (part - part.mean(0)) / part.var(0, unbiased=False).sqrt()
    for norm in (ME.MinkowskiInstanceNorm(3), ME.MinkowskiStableInstanceNorm(3)):
        assert torch.allclose(norm.double()(x).F, wanted, atol=1e-4)


def test_pruning_union_and_interpolation(cloud):
    x = make(cloud)
    keep = torch.rand(len(x)) < 0.5
    pruned = ME.MinkowskiPruning()(x, keep)
    assert torch.equal(pruned.C, x.C[keep]) and torch.equal(pruned.F, x.F[keep])
    assert len(ME.MinkowskiPruning()(x, torch.zeros(len(x), dtype=torch.bool))) == 0
    points = cloud(seed=4)
    other = ME.SparseTensor(
        torch.rand(len(points), 3, dtype=torch.float64), points, coordinate_manager=x.coordinate_manager
    )
    union = rows_by_point(ME.MinkowskiUnion()(x, other))
    a, b, zero = rows_by_point(x), rows_by_point(other), torch.zeros(3, dtype=torch.float64)
    assert set(union) == set(a) | set(b)
    assert all(torch.allclose(row, a.get(p, zero) + b.get(p, zero)) for p, row in union.items())
    at = torch.cat([x.C[:20, :1], x.C[:20, 1:] + torch.rand(20, 3)], 1).double()
    got = ME.MinkowskiInterpolation()(x, at)
    for point, row in zip(at.tolist(), got):
        wanted = torch.zeros(3, dtype=torch.float64)
        for corner in itertools.product((0, 1), repeat=3):
            low = [int(p // 1) for p in point[1:]]
            shares = [p - q for p, q in zip(point[1:], low)]
            weight = 1.0
            for bit, share in zip(corner, shares):
                weight *= share if bit else 1 - share
            wanted += weight * a.get((int(point[0]), *(q + c for q, c in zip(low, corner))), zero)
        assert torch.allclose(row, wanted)
    assert torch.equal(x.features_at_coordinates(at), got)
    maps = ME.MinkowskiInterpolation(return_kernel_map=True, return_weights=True)(x, at)
    assert len(maps) == 3 and len(maps[1]) == 2 and len(maps[1][0]) == len(maps[2])


def test_interpolation_at_points_of_integers():
    tensor = ME.SparseTensor(torch.tensor([[4.0], [8.0]]), torch.tensor([[0, 0], [0, 2]]).int(), tensor_stride=2)
    assert ME.MinkowskiInterpolation()(tensor, torch.tensor([[0, 1]])).item() == 6


def test_broadcasts_want_one_manager():
    pool = ME.MinkowskiGlobalAvgPooling()
    a, b = (ME.SparseTensor(torch.ones(2, 1), torch.tensor([[0, 1], [batch, 1]]).int()) for batch in (1, 2))
    pool(a)
    for layer in (ME.MinkowskiBroadcast(), ME.MinkowskiBroadcastAddition(), ME.MinkowskiBroadcastConcatenation()):
        with pytest.raises(AssertionError, match="coordinate manager"):
            layer(a, pool(b))


def test_layers_under_two_names_are_converted_as_one():
    net = torch.nn.Module()
    net.a = net.b = ME.MinkowskiBatchNorm(4)
    net.c = torch.nn.Sequential(net.a, ME.MinkowskiReLU())
    net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(net.a, ME.MinkowskiSyncBatchNorm) and net.b is net.a and net.c[0] is net.a


def test_small_things_of_minkowski_engine(cloud):
    assert ME.MinkowskiConvolution(3, 5, kernel_size=3, dimension=3).kernel_shape == (27, 3, 5)
    with pytest.raises(AssertionError, match="expected 1 or more"):
        ME.MinkowskiConvolution(0, 5, kernel_size=3, dimension=3)
    tensor = ME.SparseTensor(torch.tensor([[4.0], [8.0]]), torch.tensor([[0, 0], [0, 2]]).int())
    assert ME.MinkowskiPruning()(tensor, np.array([False, True])).F.tolist() == [[8.0]]


def test_pointwise_layers_linear_and_joins(cloud):
    x = make(cloud)
    for layer, dense in ((ME.MinkowskiReLU(), torch.relu), (ME.MinkowskiSigmoid(), torch.sigmoid)):
        y = layer(x - 0.5)
        assert torch.equal(y.F, dense(x.F - 0.5)) and y.coordinate_map_key == x.coordinate_map_key
    linear = ME.MinkowskiLinear(3, 4).double()
    assert torch.equal(linear(x).F, linear.linear(x.F))
    y = x * 2
    assert torch.equal(ME.cat(x, y).F, torch.cat([x.F, y.F], 1)) and torch.equal(ME.cat([x, y]).F, ME.cat(x, y).F)
    assert torch.allclose(ME.sum(x, y, x).F, x.F * 4)
    assert torch.allclose(ME.mean(x, y).F, x.F * 1.5)
    assert torch.allclose(ME.var(x, y).F, torch.stack([x.F, y.F]).var(0, unbiased=False))
    stack = ME.MinkowskiStackCat(ME.MinkowskiReLU(), ME.MinkowskiSigmoid())
    assert stack(x).shape == (len(x), 6)


def test_wrong_inputs_are_refused(cloud):
    x = make(cloud)
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=3).double()
    with pytest.raises(AssertionError):
        conv(x.F)
    with pytest.raises(AssertionError):
        ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=2).double()(x)
    with pytest.raises(AssertionError):
        ME.MinkowskiConvolution(3, 4, kernel_size=3)
    with pytest.raises(ValueError, match="channels"):  # the engine's own message
        ME.MinkowskiConvolution(5, 4, kernel_size=3, dimension=3).double()(x)
    with pytest.raises(RuntimeError, match="expected"):  # the same error for code that expects the other type
        ME.MinkowskiConvolution(5, 4, kernel_size=3, dimension=3).double()(x)
    with pytest.raises(AssertionError):
        ME.cat(x, make(cloud))
