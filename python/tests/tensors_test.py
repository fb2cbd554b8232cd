# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors, tensor fields, coordinate managers, operation and quantisation modes."""
import copy
import io
import pickle

import pytest
import torch

import MinkowskiEngine as ME
from MinkowskiEngine import SparseTensorQuantizationMode as Mode


def make(cloud, channels=3, **kwargs):
    points = cloud(**kwargs)
    return ME.SparseTensor(torch.rand(len(points), channels, dtype=torch.float64), points)


@pytest.fixture
def restore_mode():
    yield
    ME.set_sparse_tensor_operation_mode(ME.SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER)
    ME.clear_global_coordinate_manager()


def test_features_keep_the_order_of_different_coordinates(cloud):
    points = cloud()
    features = torch.rand(len(points), 3)
    x = ME.SparseTensor(features, points)
    assert x.F is features or torch.equal(x.F, features)
    assert torch.equal(x.C, points) and x.C.dtype == torch.int32
    assert torch.equal(x.unique_index, torch.arange(len(points)))
    assert torch.equal(x.inverse_mapping, torch.arange(len(points)))
    assert x.tensor_stride == [1, 1, 1] and x.D == x.dimension == 3 and len(x) == len(points)
    assert x.shape == x.size() == features.shape and x.dtype == features.dtype and x.device == features.device
    assert x.features is x.F and x.coordinates is x.C and x.coordinate_key == x.coordinate_map_key
    y = ME.SparseTensor(features, coordinate_map_key=x.coordinate_map_key, coordinate_manager=x.coordinate_manager)
    assert torch.equal(y.C, points)


@pytest.mark.parametrize(
    "mode, reduce",
    [
        (Mode.RANDOM_SUBSAMPLE, lambda rows: rows[0]),
        (Mode.UNWEIGHTED_AVERAGE, lambda rows: rows.mean(0)),
        (Mode.UNWEIGHTED_SUM, lambda rows: rows.sum(0)),
        (Mode.MAX_POOL, lambda rows: rows.amax(0)),
    ],
)
@pytest.mark.parametrize("field", [False, True])
def test_quantisation(mode, reduce, field):
    torch.manual_seed(1)
    points = torch.randint(0, 3, (60, 3))
    features = torch.rand(60, 2, dtype=torch.float64, requires_grad=True)
    if field:
        real = torch.cat([points[:, :1], points[:, 1:] + torch.rand(60, 2) * 0.99], 1)
        tensor_field = ME.TensorField(features, real, quantization_mode=mode)
        x = tensor_field.sparse()
        inverse = tensor_field.inverse_mapping(x.coordinate_map_key)
    else:
        x = ME.SparseTensor(features, points.int(), quantization_mode=mode)
        inverse = x.inverse_mapping
        assert torch.equal(points[x.unique_index].int(), x.C)
    assert torch.equal(x.C[inverse], points.int())
    for row, point in zip(x.F, x.C):
        same = features[(points == point).all(1)]
        assert torch.allclose(row, reduce(same))
    x.F.sum().backward()
    assert features.grad.shape == features.shape


def test_no_quantization_refuses_equal_coordinates():
    points = torch.IntTensor([[0, 1], [0, 1], [0, 2]])
    with pytest.raises(ValueError, match="1 of 3"):
        ME.SparseTensor(torch.rand(3, 1), points, quantization_mode=Mode.NO_QUANTIZATION)


def test_splat_and_interpolation_are_adjoint():
    torch.manual_seed(2)
    points = torch.cat([torch.randint(0, 2, (30, 1)), torch.randn(30, 2) * 3], 1).double()
    features = torch.rand(30, 3, dtype=torch.float64)
    field = ME.TensorField(features, points)
    x = field.splat()
    assert x.F.sum(0).allclose(features.sum(0)) and (x.C[:, 0].max() == 1)
    other = torch.rand_like(x.F)
    y = ME.SparseTensor(other, coordinate_map_key=x.coordinate_map_key, coordinate_manager=x.coordinate_manager)
    back = y.interpolate(field)
    assert isinstance(back, ME.TensorField) and back.F.shape == features.shape
    assert torch.allclose((back.F * features).sum(), (other * x.F).sum())
    direct = ME.SparseTensor(features, points, quantization_mode=Mode.SPLAT_LINEAR_INTERPOLATION)
    assert torch.allclose(direct.F, x.F) and torch.equal(direct.C, x.C)


def test_fields_are_sliced_back_to_their_points():
    torch.manual_seed(3)
    points = torch.cat([torch.randint(0, 2, (50, 1)), torch.randn(50, 3) * 2], 1)
    field = ME.TensorField(torch.rand(50, 4), points)
    assert torch.equal(field.C, points) and field.D == 3
    for stride in (1, 2, [1, 2, 4]):
        x = field.sparse(tensor_stride=stride)
        steps = torch.tensor([1, *(stride if isinstance(stride, list) else [stride] * 3)])
        voxels = (torch.floor(points / steps) * steps).int()
        sliced = x.slice(field)
        assert isinstance(sliced, ME.TensorField) and torch.equal(sliced.C, points)
        rows = {tuple(point): row for point, row in zip(x.C.tolist(), x.F)}
        assert torch.equal(sliced.F, torch.stack([rows[tuple(voxel)] for voxel in voxels.tolist()]))
        assert torch.equal(x.cat_slice(field).F, torch.cat([sliced.F, field.F], 1))
    coarse = ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=3)(field.sparse())
    rows = {tuple(point): row for point, row in zip(coarse.C.tolist(), coarse.F)}
    voxels = (torch.floor(points / torch.tensor([1, 2, 2, 2])) * torch.tensor([1, 2, 2, 2])).int()
    assert torch.equal(coarse.slice(field).F, torch.stack([rows[tuple(v)] for v in voxels.tolist()]))
    again = field.sparse(coordinate_map_key=coarse.coordinate_map_key)
    assert again.coordinate_map_key == coarse.coordinate_map_key and len(again) == len(coarse)
    wanted = torch.stack([field.F[(voxels == point).all(1)].mean(0) for point in again.C])
    assert torch.allclose(again.F, wanted)
    relu = ME.MinkowskiReLU()(field - 0.5)
    assert isinstance(relu, ME.TensorField) and torch.equal(relu.F, (field.F - 0.5).relu())
    pooled = ME.MinkowskiGlobalMaxPooling()(field)
    assert torch.equal(pooled.F, torch.stack([part.amax(0) for part in field.decomposed_features]))


def test_arithmetic_at_the_same_and_at_other_coordinates(cloud):
    x = make(cloud)
    vector, rows = torch.rand(3).double(), torch.rand_like(x.F)
    for y, wanted in (
        (x + 2, x.F + 2),
        (2 + x, x.F + 2),
        (x - 2, x.F - 2),
        (2 - x, 2 - x.F),
        (x * vector, x.F * vector),
        (vector * x, x.F * vector),
        (x / rows, x.F / rows),
        (1 / x, 1 / x.F),
        (-x, -x.F),
        (x**2, x.F**2),
        (x + x, 2 * x.F),
        (x - x, 0 * x.F),
        (x / x, x.F / x.F),
    ):
        assert torch.allclose(y.F, wanted) and y.coordinate_map_key == x.coordinate_map_key
    points = cloud(seed=7)
    z = ME.SparseTensor(
        torch.rand(len(points), 3, dtype=torch.float64), points, coordinate_manager=x.coordinate_manager
    )
    a = {tuple(p): row for p, row in zip(x.C.tolist(), x.F)}
    b = {tuple(p): row for p, row in zip(z.C.tolist(), z.F)}
    zero = torch.zeros(3, dtype=torch.float64)
    for function, union in ((torch.add, x + z), (torch.sub, x - z), (torch.mul, x * z), (torch.div, x / z)):
        assert {tuple(p) for p in union.C.tolist()} == set(a) | set(b)
        for point, row in zip(union.C.tolist(), union.F):
            wanted = function(a.get(tuple(point), zero), b.get(tuple(point), zero))
            assert torch.allclose(row, wanted, equal_nan=True)
    with pytest.raises(AssertionError):
        x += z
    with pytest.raises(AssertionError, match="same coordinate manager"):
        x + make(cloud)
    with pytest.raises(AssertionError):
        x + "1"
    before = x.F
    x += x
    x *= 0.5
    x -= 1
    x /= 2
    assert torch.allclose(x.F, (before - 1) / 2)


def test_parts_of_a_batch(cloud):
    points = cloud(batches=2)
    points[points[:, 0] == 1, 0] = 2  # nothing has index 1
    x = ME.SparseTensor(torch.rand(len(points), 2), points)
    for parts in (x.decomposed_features, x.decomposed_coordinates):
        assert [len(part) for part in parts] == [int((points[:, 0] == b).sum()) for b in range(3)]
    for b in range(3):
        mine = points[:, 0] == b
        assert torch.equal(x.features_at(b), x.F[mine]) and torch.equal(x.coordinates_at(b), points[mine, 1:])
        coordinates, features = x.coordinates_and_features_at(b)
        assert torch.equal(coordinates, x.coordinates_at(b)) and torch.equal(features, x.features_at(b))
    assert x.coordinates_at(3).shape == (0, 3) and x.features_at(9).shape == (0, 2)  # beyond the last: no points either
    assert len(x.decomposed_coordinates_and_features) == 2
    assert torch.equal(torch.cat(x.decomposition_permutations).sort()[0], torch.arange(len(x)))


def test_dense_and_back(cloud):
    x = make(cloud, low=0, high=4)
    dense, low, stride = x.dense()
    assert dense.shape == (2, 3, 4, 4, 4) and stride.tolist() == [1, 1, 1] and low.shape == (1, 3)
    index = x.C.long()
    assert torch.equal(dense[index[:, 0], :, index[:, 1], index[:, 2], index[:, 3]], x.F)
    assert torch.allclose(dense.sum(), x.F.sum())
    back = ME.to_sparse(dense)
    assert {tuple(p) for p in back.C.tolist()} == {tuple(p) for p in x.C.tolist()}
    larger, _, _ = x.dense(shape=torch.Size([3, 3, 5, 6, 7]))
    assert larger.shape == (3, 3, 5, 6, 7) and torch.equal(larger[:2, :, :4, :4, :4], dense)
    moved, low, _ = x.dense(min_coordinate=torch.IntTensor([-1, -2, 0]))
    assert low.tolist() == [[-1, -2, 0]] and torch.equal(moved[:, :, 1:, 2:, :], dense)
    assert torch.equal(x.dense(min_coordinate=0)[0], dense)
    negative = make(cloud)
    with pytest.raises(ValueError, match="negative"):
        negative.dense()
    coarse = ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=3)(x)
    assert coarse.dense()[0].shape[2:] == (2, 2, 2)
    wide = coarse.dense(contract_stride=False)[0]
    assert wide.shape[2:] == (3, 3, 3) and torch.equal(wide[:, :, ::2, ::2, ::2], coarse.dense()[0])
    assert ME.MinkowskiToDenseTensor(torch.Size([2, 3, 4, 4, 4]))(x).shape == (2, 3, 4, 4, 4)
    coo, low, stride = negative.sparse()
    assert coo.is_sparse and torch.equal(low, negative.C[:, 1:].amin(0, keepdim=True))
    again = coo.to_dense().permute(0, 4, 1, 2, 3)
    assert torch.equal(again, negative.dense(min_coordinate=low.view(-1).int())[0])
    high = torch.IntTensor([9, 9, 9])
    assert negative.sparse(min_coords=torch.IntTensor([-9, -9, -9]), max_coords=high)[0].shape == (2, 19, 19, 19, 3)


def test_dense_tensors_become_sparse():
    torch.manual_seed(4)
    dense = torch.rand(2, 3, 4, 5).double()
    dense[:, :, 1] = 0
    dense.requires_grad_()
    x = ME.to_sparse(dense)
    assert len(x) == 2 * 3 * 5 and torch.equal(x.dense(shape=dense.shape)[0], dense)
    last = ME.to_sparse(dense.permute(0, 2, 3, 1), format="BXXC")
    assert torch.equal(last.C, x.C) and torch.equal(last.F, x.F)
    everywhere = ME.to_sparse_all(dense)
    coordinates = ME.dense_coordinates(dense.shape)
    assert len(everywhere) == 40 and torch.equal(everywhere.C, coordinates) and coordinates.shape == (40, 3)
    assert torch.equal(ME.MinkowskiToSparseTensor(coordinates=coordinates)(dense).F, everywhere.F)
    assert len(ME.MinkowskiToSparseTensor(remove_zeros=False)(dense)) == 40
    assert len(ME.MinkowskiToSparseTensor()(dense)) == 30
    x.F.sum().backward()
    assert torch.equal(dense.grad, (dense.detach() != 0).double())
    assert ME.MinkowskiToFeature()(x) is x.F
    with pytest.raises(AssertionError):
        ME.to_sparse(torch.rand(2, 3))


def test_shared_managers(cloud, restore_mode):
    a, b = make(cloud), make(cloud)
    assert a.coordinate_manager is not b.coordinate_manager
    share = ME.SparseTensorOperationMode.SHARE_COORDINATE_MANAGER
    ME.set_sparse_tensor_operation_mode(share)
    assert ME.sparse_tensor_operation_mode() == share
    a, b = make(cloud), make(cloud, seed=3)
    assert a.coordinate_manager is b.coordinate_manager is ME.global_coordinate_manager()
    assert len(a + b) >= len(a)
    ME.clear_global_coordinate_manager()
    assert ME.global_coordinate_manager() is None
    assert make(cloud).coordinate_manager is not a.coordinate_manager


def test_manager_maps(cloud):
    x = make(cloud)
    manager, key = x.coordinate_manager, x.coordinate_map_key
    assert manager.D == 3 and manager.size(key) == len(x) and manager.number_of_unique_batch_indices() == 2
    assert torch.equal(manager.get_coordinates(key), x.C) and torch.equal(manager.get_coordinates(1), x.C)
    coarse = manager.stride(key, 2)
    assert coarse.get_tensor_stride() == [2, 2, 2]
    fine_rows, coarse_rows = manager.stride_map(key, coarse)
    steps = torch.tensor([1, 2, 2, 2])
    assert torch.equal(fine_rows, torch.arange(len(x)))
    down = (torch.floor(x.C / steps) * steps).int()
    assert torch.equal(manager.get_coordinates(coarse)[coarse_rows], down)
    batches, rows = manager.origin_map(key)
    assert batches.tolist() == [0, 1] and all((x.C[r, 0] == b).all() for b, r in zip(batches, rows))
    assert manager.get_coordinates(manager.origin()).tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
    kernel_map = manager.kernel_map(key, coarse, stride=2, kernel_size=2)
    for k, (rows_in, rows_out) in kernel_map.items():
        offset = torch.tensor([0, k % 2, k // 2 % 2, k // 4])
        assert torch.equal(x.C[rows_in], manager.get_coordinates(coarse)[rows_out] + offset)
    assert sum(pairs.size(1) for pairs in kernel_map.values()) == len(x)
    other, _ = manager.insert_and_map(cloud(seed=5), 1, "other")
    out = ME.CoordinateMapKey(4)
    maps = manager.union_map([key, other], out)
    for given, pairs in zip((key, other), maps):
        assert torch.equal(manager.get_coordinates(given)[pairs[0]], manager.get_coordinates(out)[pairs[1]])
        assert pairs.size(1) == manager.size(given)
    fresh = manager.get_unique_coordinate_map_key([1, 1, 1])
    with pytest.raises(ValueError, match="expected one of"):
        manager.size(fresh)
    with pytest.raises(ValueError):
        ME.CoordinateManager(D=0)
    assert "CoordinateMapCPU" in repr(manager) and "MinkowskiAlgorithm.DEFAULT" in repr(manager)


def test_manager_fields():
    torch.manual_seed(6)
    points = torch.cat([torch.randint(0, 2, (40, 1)), torch.randn(40, 2) * 2], 1)
    manager = ME.CoordinateManager(D=2)
    field = manager.insert_field(points, [1, 1])
    assert torch.equal(manager.get_coordinate_field(field), points) and manager.size(field) == 40
    key, (unique, inverse) = manager.field_to_sparse_insert_and_map(field, [1, 1])
    voxels = torch.floor(points).int()
    assert torch.equal(manager.get_coordinates(key), voxels[unique])
    assert torch.equal(voxels[unique][inverse], voxels)
    assert manager.exists_field_to_sparse(field, key) and manager.field_to_sparse_keys(field) == [key]
    assert torch.equal(manager.get_field_to_sparse_map(field, key)[1], inverse)
    rows, numbers = manager.field_to_sparse_map(field, manager.stride(key, 2))
    assert torch.equal(numbers, torch.arange(40)) and len(rows) == 40
    batches, parts = manager.origin_field_map(field)
    assert [len(part) for part in parts] == [int((points[:, 0] == b).sum()) for b in batches]
    assert manager.size(manager.origin_field()) == 2
    rows, numbers, weights = manager.interpolation_map_weight(key, points)
    assert weights.dtype == points.dtype and len(rows) == len(numbers) == len(weights)


@pytest.mark.parametrize("copier", ["pickle", "deepcopy", "save"])
def test_copies_are_whole(cloud, copier):
    x = make(cloud)
    net = torch.nn.Sequential(
        ME.MinkowskiConvolution(3, 4, kernel_size=2, stride=2, dimension=3),
        ME.MinkowskiBatchNorm(4),
        ME.MinkowskiReLU(inplace=True),
        ME.MinkowskiConvolutionTranspose(4, 3, kernel_size=2, stride=2, dimension=3),
    ).double()
    coarse = net[0](x).detach()
    field = ME.TensorField(torch.rand(9, 2), torch.rand(9, 4))
    things = (x, coarse, net, field)
    if copier == "pickle":
        copies = pickle.loads(pickle.dumps(things))
    elif copier == "deepcopy":
        copies = copy.deepcopy(things)
    else:
        file = io.BytesIO()
        torch.save(things, file)
        file.seek(0)
        copies = torch.load(file, weights_only=False)
    x2, coarse2, net2, field2 = copies
    assert torch.equal(x2.F, x.F) and torch.equal(x2.C, x.C)
    assert x2.coordinate_manager is coarse2.coordinate_manager is not x.coordinate_manager
    assert torch.equal(net2(x2).F, net(x).F)
    # The copy knows which map came from which: a coarse tensor made anew lies where the old one does.
    assert net2[0](x2).coordinate_map_key == coarse2.coordinate_map_key
    assert torch.equal((net2[0](x2) + coarse2).F, (net[0](x) + coarse).F)
    assert torch.equal(field2.sparse().F, field.sparse().F)


def test_types_and_devices(cloud):
    x = make(cloud)
    assert x.to(torch.float32).dtype == torch.float32 and x.dtype == torch.float64
    assert x.to("cpu").F.equal(x.F) and x.cpu().device.type == "cpu"
    assert x.half().dtype == torch.float16 and x.bfloat16().dtype == torch.bfloat16
    assert x.float() is x and x.dtype == torch.float32 and x.double().dtype == torch.float64
    y = ME.SparseTensor(x.F.clone(), x.C, requires_grad=True, device="cpu")
    assert y.requires_grad and y.F.is_leaf and not y.detach().requires_grad
    y.requires_grad_()
    assert y.requires_grad and y.get_device() == -1


def test_repr(cloud):
    x = make(cloud, points=2)
    lines = repr(x).splitlines()
    assert lines[0] == "SparseTensor(" and lines[1].startswith("  coordinates=tensor(")
    assert "  coordinate_map_key=coordinate map key:[1, 1, 1]" in lines
    assert "  coordinate_manager=CoordinateMapManagerCPU(" in lines and lines[-1] == "  spatial dimension=3)"


def test_wrong_arguments(cloud):
    points = cloud()
    features = torch.rand(len(points), 2)
    x = ME.SparseTensor(features, points)
    with pytest.raises(ValueError, match="pair must be provided"):
        ME.SparseTensor(features)
    for arguments in (
        {"features": features[0], "coordinates": points},
        {"features": features[:-1], "coordinates": points},
        {"features": features.numpy(), "coordinates": points},
        {"features": features, "coordinates": points, "quantization_mode": 1},
        {"features": features, "coordinate_map_key": x.coordinate_map_key},
        {"features": features, "coordinates": points, "tensor_stride": [1, 1]},
        {
            "features": features[:-1],
            "coordinate_map_key": x.coordinate_map_key,
            "coordinate_manager": x.coordinate_manager,
        },
    ):
        with pytest.raises(AssertionError):
            ME.SparseTensor(**arguments)
    with pytest.warns(UserWarning, match="implicitly converted"):
        assert torch.equal(ME.SparseTensor(features, points.float() + 0.5).C, points)
    with pytest.warns(UserWarning, match="no multiples of the tensor stride"):
        assert torch.equal(ME.SparseTensor(features, points, tensor_stride=1000).C, points)


def test_empty_tensors():
    x = ME.SparseTensor(torch.zeros(0, 3), torch.zeros((0, 4), dtype=torch.int32))
    y = ME.MinkowskiConvolution(3, 4, kernel_size=3, stride=2, dimension=3)(x)
    assert y.shape == (0, 4) and ME.MinkowskiGlobalAvgPooling()(y).shape == (0, 4)
    assert ME.MinkowskiBatchNorm(4)(y).shape == (0, 4)
    assert y.dense(shape=torch.Size([1, 4, 2, 2, 2]))[0].sum() == 0
    assert x.decomposed_features == []
