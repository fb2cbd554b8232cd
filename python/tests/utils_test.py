# SPDX-License-Identifier: Apache-2.0
"""Quantisation, collation, initialisation, gradient checks, summaries, functional layers, spmm, blocks."""
import logging
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import MinkowskiEngine as ME
from MinkowskiEngine.modules.resnet_block import BasicBlock, Bottleneck
from MinkowskiEngine.modules.senet_block import SEBasicBlock, SEBottleneck, SELayer


@pytest.mark.parametrize("numpy", [False, True])
def test_sparse_quantize(numpy):
    torch.manual_seed(0)
    points, features = torch.randn(80, 3), torch.rand(80, 2)
    labels = torch.randint(0, 3, (80,))
    given = [each.numpy() if numpy else each for each in (points, features, labels)]
    voxels = torch.floor(points / 0.5).int()
    coordinates, kept, merged, index, inverse = ME.utils.sparse_quantize(
        *given, ignore_label=-7, return_index=True, return_inverse=True, quantization_size=0.5
    )
    coordinates, kept, merged, index, inverse = (torch.as_tensor(e) for e in (coordinates, kept, merged, index, inverse))
    assert torch.equal(voxels[index], coordinates) and torch.equal(coordinates[inverse], voxels)
    assert torch.equal(features[index], kept)
    for point, label in zip(coordinates, merged):
        mine = labels[(voxels == point).all(1)]
        assert label == (mine[0] if (mine == mine[0]).all() else -7)
    first = [int((voxels == point).all(1).nonzero()[0]) for point in coordinates]
    assert index.tolist() == first == sorted(first)
    column = ME.utils.sparse_quantize(given[0], labels=given[2][:, None], ignore_label=-7, quantization_size=0.5)[1]
    assert torch.equal(torch.as_tensor(column), merged)
    alone = ME.utils.sparse_quantize(given[0], quantization_size=[0.5, 0.5, 0.5])
    assert isinstance(alone, torch.Tensor) and torch.equal(alone, coordinates)
    maps = ME.utils.sparse_quantize(given[0], return_maps_only=True, quantization_size=0.5)
    assert torch.equal(torch.as_tensor(maps), index)
    pair = ME.utils.sparse_quantize(given[0], given[1], quantization_size=0.5)
    assert len(pair) == 2 and torch.equal(torch.as_tensor(pair[1]), kept)
    with pytest.raises(AssertionError):
        ME.utils.sparse_quantize(given[0], return_inverse=True)
    with pytest.raises(ValueError):
        ME.utils.sparse_quantize(given[0], device="meta")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1e300, 2.0**31])
def test_coordinates_that_int32_does_not_hold(wrong):
    points = torch.rand(6, 3, dtype=torch.float64)
    points[4, 1] = wrong
    attempts = [
        lambda: ME.utils.sparse_quantize(points, quantization_size=0.5),
        lambda: ME.utils.sparse_quantize(points.numpy()),
        lambda: ME.utils.batched_coordinates([points]),
        lambda: ME.utils.sparse_collate([points.numpy()], [torch.rand(6, 1)]),
        lambda: ME.SparseTensor(torch.rand(6, 1), torch.nn.functional.pad(points, (1, 0))),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="expected them in int32"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            attempt()


@pytest.mark.parametrize("size", [0, -0.5, math.nan, math.inf, [0.5, 0.5, 0.0], torch.tensor([1.0, -1.0, 1.0])])
def test_a_quantization_size_above_0(size):
    with pytest.raises(ValueError, match="quantization_size is .* expected it above 0"):
        ME.utils.sparse_quantize(torch.rand(6, 3), quantization_size=size)


@pytest.mark.parametrize("make", [
    lambda labels: torch.tensor(labels, dtype=torch.uint8),
    lambda labels: np.array(labels, dtype=np.uint8),
    lambda labels: np.array(labels),
    lambda labels: labels,
])
def test_conflicting_labels_of_types_that_do_not_hold_the_ignored_one(make):
    points = torch.tensor([[0.1, 0, 0], [0.2, 0, 0], [1.5, 0, 0], [2, 2, 2]])
    labels = make([1, 2, 3, 4])
    points = points.numpy() if isinstance(labels, np.ndarray) else points
    _, merged = ME.utils.sparse_quantize(points, labels=labels, quantization_size=1.0)
    assert merged.tolist() == [-100, 3, 4]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.uint16, torch.uint32])
def test_coordinates_of_all_integer_types(dtype):
    coordinates = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 1]])
    assert torch.equal(ME.SparseTensor(torch.rand(2, 1), coordinates.to(dtype)).C, coordinates.int())


def test_sizes_without_axes():
    points = torch.tensor([[0.15, 0.25], [0.35, 0.45]], dtype=torch.float64)
    for size in (torch.tensor(0.1), np.array(0.1)):
        assert ME.utils.sparse_quantize(points, quantization_size=size).tolist() == [[1, 2], [3, 4]]
    assert ME.utils.ravel_hash_vec(np.zeros((0, 3), dtype=np.int32)).shape == (0,)


def test_strides_above_0():
    for wrong in ({"stride": 0}, {"stride": [1, -2, 1]}, {"dilation": 0}):
        with pytest.raises(AssertionError, match=f"{next(iter(wrong))} is .* expected it above 0"):
            ME.MinkowskiConvolution(1, 1, kernel_size=3, dimension=3, **wrong)
    with pytest.raises(AssertionError, match="tensor_stride is .* expected it above 0"):
        ME.SparseTensor(torch.rand(2, 1), torch.tensor([[0, 1, 1, 1], [0, 2, 2, 2]]).int(), tensor_stride=0)


def test_hashes_and_unique_maps():
    rows = np.random.default_rng(0).integers(-5, 5, (200, 3))
    hashed = ME.utils.ravel_hash_vec(rows)
    assert hashed.dtype == np.uint64 and len(np.unique(hashed)) == len(np.unique(rows, axis=0))
    for row, got in zip(rows.tolist(), ME.utils.fnv_hash_vec(rows).tolist()):
        wanted = 14695981039346656037
        for value in row:
            wanted = (wanted * 1099511628211 % 2**64) ^ (value % 2**64)
        assert got == wanted
    coordinates = torch.IntTensor([[0, 0], [0, 0], [0, 1], [0, 2]])
    unique, inverse = ME.utils.unique_coordinate_map(coordinates)
    assert unique.tolist() == [0, 2, 3] and torch.equal(coordinates[unique][inverse], coordinates)


def test_collation(caplog):
    clouds = [torch.randn(n, 3) * 4 for n in (5, 3, 4)]
    features = [torch.rand(len(cloud), 2) for cloud in clouds]
    labels = [torch.full((len(cloud),), b) for b, cloud in enumerate(clouds)]
    joined = ME.utils.batched_coordinates(clouds)
    assert joined.dtype == torch.int32 and joined[:, 0].tolist() == [0] * 5 + [1] * 3 + [2] * 4
    assert torch.equal(joined[:, 1:], torch.floor(torch.cat(clouds)).int())
    real = ME.utils.batched_coordinates([cloud.numpy() for cloud in clouds], dtype=torch.float32)
    assert torch.equal(real[:, 1:], torch.cat(clouds))
    coordinates, rows, marks = ME.utils.sparse_collate(clouds, features, labels)
    assert torch.equal(coordinates, joined) and torch.equal(rows, torch.cat(features))
    assert torch.equal(marks, torch.cat(labels)) and len(ME.utils.sparse_collate(clouds, features)) == 2
    data = list(zip(clouds, features, labels))
    assert all(torch.equal(a, b) for a, b in zip(ME.utils.batch_sparse_collate(data), (coordinates, rows, marks)))
    assert len(ME.utils.SparseCollation()(data)[0]) == 12
    with caplog.at_level(logging.WARNING):
        assert len(ME.utils.SparseCollation(limit_numpoints=9)(data)[0]) == 8
    assert "Truncating" in caplog.text
    assert ME.utils.sparse_collate(clouds, features, ["a", "b", "c"])[2] == ["a", "b", "c"]
    with pytest.raises(AssertionError):
        ME.utils.batched_coordinates([clouds[0], torch.rand(2, 2)])
    with pytest.raises(AssertionError):
        ME.utils.batched_coordinates(clouds, dtype=torch.float64)


def sparse_batch(data):
    coordinates, rows, _ = ME.utils.batch_sparse_collate(data)
    return ME.SparseTensor(rows, coordinates)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_hand_over_sparse_tensors(start):
    data = [(torch.randint(0, 9, (6, 3)), torch.rand(6, 2), torch.tensor([i])) for i in range(4)]
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=1, collate_fn=sparse_batch, multiprocessing_context=start
    )
    conv = ME.MinkowskiConvolution(2, 3, kernel_size=3, stride=2, dimension=3)
    for batch, x in enumerate(loader):
        here = sparse_batch(data[2 * batch : 2 * batch + 2])
        assert torch.equal(x.C, here.C) and torch.equal(conv(x).F, conv(here).F)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_collation_in_workers(start):
    data = [(torch.randint(0, 9, (4 + i, 3)), torch.rand(4 + i, 2), torch.tensor([i])) for i in range(4)]
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=2,
        num_workers=1,
        collate_fn=ME.utils.SparseCollation(),
        multiprocessing_context=start,
    )
    sizes = [len(ME.SparseTensor(rows, coordinates)) for coordinates, rows, _ in loader]
    assert len(sizes) == 2 and all(size > 0 for size in sizes)


def test_kaiming_normal():
    torch.manual_seed(0)
    for shape, fan in (((27, 40, 50), 27 * 40), ((40, 500), 40)):
        kernel = ME.utils.kaiming_normal_(torch.empty(shape), mode="fan_in", nonlinearity="relu")
        assert kernel.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.05)
    out = ME.utils.kaiming_normal_(torch.empty(27, 40, 50), mode="fan_out", nonlinearity="relu")
    assert out.std().item() == pytest.approx(math.sqrt(2 / (27 * 50)), rel=0.05)
    with pytest.raises(ValueError):
        ME.utils.kaiming_normal_(torch.empty(3))


def make(cloud, channels=4, **kwargs):
    points = cloud(**kwargs)
    return ME.SparseTensor(torch.rand(len(points), channels), points)


def test_summary(cloud, capsys):
    net = torch.nn.Sequential(ME.MinkowskiConvolution(4, 8, kernel_size=3, dimension=3), ME.MinkowskiBatchNorm(8))
    net[1].bn.bias.requires_grad_(False)
    total, trainable = ME.utils.summary(net, make(cloud))
    assert (total, trainable) == (27 * 4 * 8 + 16, 27 * 4 * 8 + 8)
    text = capsys.readouterr().out
    assert "MinkowskiConvolution-1" in text and f"Total params: {total:,}" in text
    assert not net[0]._forward_hooks


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("threshold", (0.2, 0.0)),
        ("glu", ()),
        ("softmax", (1,)),
        ("gumbel_softmax", ()),
        ("normalize", ()),
        ("dropout", (0.5,)),
        ("prelu", (torch.tensor([0.1]),)),
        ("linear", (torch.eye(4),)),
        ("batch_norm", (torch.zeros(4), torch.ones(4))),
        ("leaky_relu", ()),
        ("silu", ()),
    ],
)
def test_functional_activations(cloud, name, arguments):
    x = make(cloud) - 0.5
    torch.manual_seed(1)
    got = getattr(ME.MinkowskiFunctional, name)(x, *arguments)
    torch.manual_seed(1)
    assert torch.equal(got.F, getattr(F, name)(x.F, *arguments)) and got.coordinate_map_key == x.coordinate_map_key


def test_functional_losses(cloud):
    x = make(cloud)
    labels, values = torch.randint(0, 4, (len(x),)), torch.rand(len(x), 4)
    for name, target in (("cross_entropy", labels), ("mse_loss", values), ("l1_loss", values), ("nll_loss", labels)):
        assert torch.equal(getattr(ME.MinkowskiFunctional, name)(x, target), getattr(F, name)(x.F, target))


def test_adaptive_softmax_and_sinusoidal(cloud):
    x, target = make(cloud), torch.randint(0, 6, (1000,))
    layer = ME.MinkowskiAdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])
    output, loss = layer(x, target[: len(x)])
    wanted = layer.module(x.F, target[: len(x)])
    assert torch.equal(output, wanted.output) and torch.equal(loss, wanted.loss)
    assert torch.equal(layer.log_prob(x).F, layer.module.log_prob(x.F))
    wave = ME.MinkowskiSinusoidal(4, 7)
    assert torch.equal(wave(x).F, torch.sin(x.F @ wave.kernel + wave.bias) * wave.coef)


def test_spmm():
    rows, cols = torch.IntTensor([0, 0, 2, 2]), torch.IntTensor([1, 1, 0, 3])
    values = torch.rand(4, dtype=torch.float64, requires_grad=True)
    matrix = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    size = torch.Size([3, 4])
    dense = torch.zeros(3, 4, dtype=torch.float64).index_put((rows.long(), cols.long()), values, accumulate=True)
    assert torch.allclose(ME.spmm(rows, cols, values, size, matrix), dense @ matrix)
    average = ME.MinkowskiSPMMAverageFunction.apply(rows, cols, size, matrix)
    assert torch.allclose(average[2], (matrix[0] + matrix[3]) / 2) and (average[1] == 0).all()
    assert ME.utils.gradcheck(ME.MinkowskiSPMMFunction(), (rows, cols, values, size, matrix))
    maxima = ME.MinkowskiDirectMaxPoolingFunction().apply(cols, rows, matrix, 3)
    assert torch.equal(maxima[2], torch.maximum(matrix[0], matrix[3]))


@pytest.mark.parametrize("block, arguments", [(BasicBlock, {"dimension": 3}), (SEBasicBlock, {"reduction": 2, "D": 3})])
def test_basic_blocks(cloud, block, arguments):
    x = make(cloud, points=80)
    layer = block(4, 4, **arguments)
    y = layer(x)
    residual = layer.norm2(layer.conv2(layer.relu(layer.norm1(layer.conv1(x)))))
    if hasattr(layer, "se"):
        residual = layer.se(residual)
    assert torch.allclose(y.F, torch.relu(residual.F + x.F)) and (y.F >= 0).all()


@pytest.mark.parametrize("block, arguments", [(Bottleneck, {"dimension": 3}), (SEBottleneck, {"reduction": 2})])
def test_bottlenecks(cloud, block, arguments):
    x = make(cloud, points=80)
    shortcut = ME.MinkowskiConvolution(4, 8, kernel_size=1, stride=2, dimension=3)
    y = block(4, 2, stride=2, downsample=shortcut, **arguments)(x)
    assert y.shape[1] == 8 and y.tensor_stride == [2, 2, 2]


def test_se_layer(cloud):
    x = make(cloud, batches=2)
    layer = SELayer(4, reduction=2)
    means = torch.stack([part.mean(0) for part in x.decomposed_features])
    weights = layer.fc[2].linear(torch.relu(layer.fc[0].linear(means))).sigmoid()
    assert torch.allclose(layer(x).F, x.F * weights[x.C[:, 0].long()], atol=1e-6)
