# SPDX-License-Identifier: Apache-2.0
"""Programs in the style of MinkowskiEngine 0.4 and 0.5, each a function that checks its own result. A comment says which
version's names a program has."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

import MinkowskiEngine as ME
import MinkowskiEngine.MinkowskiFunctional as MF


def points(number, axes, seed=0, extent=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, extent, (number, axes), generator=generator).unique(dim=0)


def batch_of(clouds, axes=3, channels=3, seed=0):
    coords = [points(60, axes, seed + i) for i in range(clouds)]
    generator = torch.Generator().manual_seed(seed)
    return ME.utils.sparse_collate(coords, [torch.rand(len(c), channels, generator=generator) for c in coords])


def trained(net, inputs, loss_of, steps=15):
    """The losses of some steps on one batch, made anew each time, as a loop over data does."""
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.02), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net(inputs()))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def classification():  # 0.4
    class Net(ME.MinkowskiNetwork):
        def __init__(self, D):
            super(Net, self).__init__(D)
            self.conv = nn.Sequential(
                ME.MinkowskiConvolution(3, 16, kernel_size=3, stride=2, has_bias=True, dimension=D),
                ME.MinkowskiBatchNorm(16),
                ME.MinkowskiReLU(inplace=True))
            self.pool = ME.MinkowskiGlobalPooling(dimension=D)
            self.linear = ME.MinkowskiLinear(16, 4)

        def forward(self, x):
            return self.linear(self.pool(self.conv(x)))

    coords, feats = batch_of(6)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    feats = feats + labels[coords[:, 0].long()].unsqueeze(1)
    criterion = nn.CrossEntropyLoss()
    losses = trained(Net(3), lambda: ME.SparseTensor(feats, coords=coords), lambda y: criterion(y.F, labels))
    assert losses[-1] < 0.8 * losses[0]


def unet():  # 0.4
    class UNet(ME.MinkowskiNetwork):
        def __init__(self, D):
            super(UNet, self).__init__(D)
            self.down = ME.MinkowskiConvolution(3, 8, kernel_size=3, has_bias=False, dimension=D)
            self.down2 = ME.MinkowskiConvolution(8, 16, kernel_size=2, stride=2, has_bias=False, dimension=D)
            self.up = ME.MinkowskiConvolutionTranspose(16, 8, kernel_size=2, stride=2, has_bias=False, dimension=D)
            self.last = ME.MinkowskiConvolution(16, 2, kernel_size=1, has_bias=True, dimension=D)

        def forward(self, x):
            fine = MF.relu(self.down(x))
            coarse = MF.relu(self.down2(fine))
            return self.last(ME.cat(MF.relu(self.up(coarse)), fine))

    coords, feats = batch_of(2)
    labels = (coords[:, 3] > 4).long()
    losses = trained(
        UNet(3), lambda: ME.SparseTensor(feats=feats, coords=coords), lambda y: nn.functional.cross_entropy(y.F, labels))
    assert losses[-1] < losses[0]


def generated_coordinates_and_pruning():  # 0.4
    coords = torch.IntTensor([[0, 0, 0], [0, 4, 8], [1, 8, 4]])
    x = ME.SparseTensor(torch.ones(3, 2), coords=coords, tensor_stride=4)
    up = ME.MinkowskiConvolutionTranspose(2, 1, kernel_size=2, stride=2, generate_new_coords=True, dimension=2)
    y = up(x)
    assert y.tensor_stride == [2, 2] and len(y) == 3 * 4
    keep = y.C[:, 1] % 4 == 0
    z = ME.MinkowskiPruning(dimension=2)(y, keep)
    assert len(z) == 6 and torch.equal(z.C, y.C[keep]) and torch.equal(z.F, y.F[keep])


def union_in_one_manager():  # 0.4
    a = ME.SparseTensor(torch.ones(2, 1), coords=torch.IntTensor([[0, 0], [0, 1]]))
    b = ME.SparseTensor(
        2 * torch.ones(2, 1), coords=torch.IntTensor([[0, 1], [0, 2]]), coords_manager=a.coords_man, force_creation=True)
    both = ME.MinkowskiUnion()(a, b)
    assert dict(zip(both.C[:, 1].tolist(), both.F.view(-1).tolist())) == {0: 1.0, 1: 3.0, 2: 2.0}
    again = ME.SparseTensor(5 * both.F, coords_key=both.coords_key, coords_manager=both.coords_man)
    assert torch.equal(again.C, both.C)


def squeeze_and_excite():  # 0.4
    class SELayer(nn.Module):
        def __init__(self, channel, reduction, D):
            super(SELayer, self).__init__()
            self.fc = nn.Sequential(
                ME.MinkowskiLinear(channel, channel // reduction), ME.MinkowskiReLU(inplace=True),
                ME.MinkowskiLinear(channel // reduction, channel), ME.MinkowskiSigmoid())
            self.pooling = ME.MinkowskiGlobalPooling(dimension=D)
            self.broadcast_mul = ME.MinkowskiBroadcastMultiplication(dimension=D)

        def forward(self, x):
            return self.broadcast_mul(x, self.fc(self.pooling(x)))

    coords, feats = batch_of(3, channels=8)
    x = ME.SparseTensor(feats, coords=coords)
    layer = SELayer(8, 4, 3)
    y = layer(x)
    for entry in range(3):
        mean = x.features_at(entry).mean(0, keepdim=True)
        linear1, linear2 = layer.fc[0].linear, layer.fc[2].linear
        gate = torch.sigmoid(linear2(torch.relu(linear1(mean))))
        assert torch.allclose(y.features_at(entry), x.features_at(entry) * gate, atol=1e-6)


def output_at_given_coordinates():  # 0.4: coords= of a layer's call
    coords, feats = batch_of(1, axes=2)
    x = ME.SparseTensor(feats, coords=coords)
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=2)
    wanted = torch.IntTensor([[0, 3, 3], [0, 50, 50]])
    y = conv(x, coords=wanted)
    assert torch.equal(y.C, wanted) and not y.F[1].any()
    dense = x.dense(shape=torch.Size([1, 3, 10, 10]))[0]
    kernel = conv.kernel.view(3, 3, 3, 4).permute(3, 2, 1, 0)  # the first axis varies fastest in [K, Cin, Cout]
    assert torch.allclose(nn.functional.conv2d(dense, kernel, padding=1)[0, :, 3, 3], y.F[0], atol=1e-5)


def quantize_train_and_slice():  # 0.5
    raw = torch.rand(500, 3, generator=torch.Generator().manual_seed(0)) * 5
    labels = (raw[:, 2] > 2.5).long()
    coordinates = ME.utils.batched_coordinates([raw / 0.5], dtype=torch.float32).int()
    net = ME.MinkowskiConvolution(3, 2, kernel_size=3, bias=True, dimension=3)
    average = ME.SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05), []
    for _ in range(10):
        x = ME.SparseTensor(raw, coordinates=coordinates, quantization_mode=average)
        out = net(x).slice(x)
        assert len(x) < len(raw) and out.F.shape == (500, 2) and torch.equal(out.C.int(), coordinates)
        loss = nn.functional.cross_entropy(out.F, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert torch.equal(out.F, net_rows_by_hand(x, out))


def net_rows_by_hand(x, out):
    """Rows of equal coordinates are equal, and lie where inverse_mapping says."""
    rows = x.inverse_mapping
    first = torch.stack([out.F[rows == row][0] for row in range(len(x))])
    return first[rows]


def loader_of_quantized_clouds():  # 0.5
    class Clouds(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            raw = np.random.default_rng(i).random((100, 3), dtype=np.float32)
            coordinates, features, labels = ME.utils.sparse_quantize(
                raw, features=raw, labels=(raw[:, 0] > 0.5).astype(np.int32), ignore_label=-100, quantization_size=0.25)
            return coordinates, features, torch.as_tensor(labels)

    loader = DataLoader(Clouds(), batch_size=3, collate_fn=ME.utils.batch_sparse_collate)
    entries = 0
    for coordinates, features, labels in loader:
        x = ME.SparseTensor(features, coordinates=coordinates)
        assert len(x) == len(labels) == len(coordinates)  # nothing is in the same voxel twice
        assert torch.equal(x.C[:, 1:], (x.F / 0.25).floor().int())
        entries += len(x.decomposed_features)
    assert entries == 6


def old_keywords_of_sparse_quantize():  # 0.4
    coords = np.array([[0.1, 0.2], [0.15, 0.25], [1.0, 1.0]])
    voxels, feats = ME.utils.sparse_quantize(coords=coords, feats=np.arange(3.0).reshape(3, 1), quantization_size=0.5)
    assert np.asarray(voxels).tolist() == [[0, 0], [2, 2]] and np.asarray(feats).ravel().tolist() == [0.0, 2.0]


def fields_and_interpolation():  # 0.5
    raw = torch.rand(200, 2, generator=torch.Generator().manual_seed(3)) * 8
    field = ME.TensorField(raw, coordinates=ME.utils.batched_coordinates([raw], dtype=torch.float32))
    x = field.sparse()
    back = x.slice(field)
    inside = (back.F - back.C[:, 1:].floor()).numpy()  # means of points in a voxel lie in that voxel
    assert len(back) == 200 and (inside >= 0).all() and (inside < 1).all()
    grid = ME.SparseTensor(torch.FloatTensor([[0.0], [2.0]]), coordinates=torch.IntTensor([[0, 0, 0], [0, 1, 0]]))
    query = torch.FloatTensor([[0, 0.25, 0.0], [0, 1.0, 0.0]])
    assert ME.MinkowskiInterpolation()(grid, query).view(-1).tolist() == [0.5, 2.0]
    assert grid.features_at_coordinates(query).view(-1).tolist() == [0.5, 2.0]


def local_and_global_pooling():  # 0.5 but for dimension= of the last two
    x = ME.SparseTensor(
        torch.FloatTensor([[1.0], [3.0], [5.0], [7.0]]),
        coordinates=torch.IntTensor([[0, 0, 0], [0, 0, 1], [0, 2, 2], [1, 1, 1]]))
    assert ME.MinkowskiMaxPooling(kernel_size=2, stride=2, dimension=2)(x).F.view(-1).tolist() == [3.0, 5.0, 7.0]
    mean = ME.MinkowskiAvgPooling(kernel_size=2, stride=2, dimension=2)(x)
    assert mean.F.view(-1).tolist() == [2.0, 5.0, 7.0]
    back = ME.MinkowskiPoolingTranspose(kernel_size=2, stride=2, dimension=2)(mean)
    assert torch.equal(back.C, x.C) and back.F.view(-1).tolist() == [2.0, 2.0, 5.0, 7.0]
    assert ME.MinkowskiGlobalAvgPooling(dimension=2)(x).F.view(-1).tolist() == [3.0, 7.0]
    assert ME.MinkowskiGlobalMaxPooling(dimension=2)(x).F.view(-1).tolist() == [5.0, 7.0]


def layer_of_the_users_own():  # 0.5: names from the extension, and the autograd function
    from MinkowskiEngineBackend._C import ConvolutionMode, CoordinateMapKey, RegionType

    class Cross(ME.MinkowskiModuleBase):
        def __init__(self, in_channels, out_channels, dimension):
            super().__init__()
            self.generator = ME.KernelGenerator(
                kernel_size=3, region_type=RegionType.HYPER_CROSS, expand_coordinates=False, dimension=dimension)
            self.kernel = nn.Parameter(torch.ones(self.generator.kernel_volume, in_channels, out_channels))

        def forward(self, x):
            key = CoordinateMapKey(x.coordinate_map_key.get_coordinate_size())
            features = ME.MinkowskiConvolutionFunction().apply(
                x.F, self.kernel, self.generator, ConvolutionMode.DEFAULT, x.coordinate_map_key, key, x.coordinate_manager)
            return ME.SparseTensor(features, coordinate_map_key=key, coordinate_manager=x.coordinate_manager)

    x = ME.SparseTensor(torch.ones(3, 1), coordinates=torch.IntTensor([[0, 1, 1], [0, 1, 2], [0, 2, 2]]))
    assert Cross(1, 1, 2)(x).F.view(-1).tolist() == [2.0, 3.0, 2.0]


def one_manager_for_all():  # 0.5
    ME.set_sparse_tensor_operation_mode(ME.SparseTensorOperationMode.SHARE_COORDINATE_MANAGER)
    try:
        coordinates = torch.IntTensor([[0, 0], [0, 1]])
        a = ME.SparseTensor(torch.FloatTensor([[1.0], [2.0]]), coordinates=coordinates)
        b = ME.SparseTensor(torch.FloatTensor([[10.0]]), coordinates=torch.IntTensor([[0, 1]]))
        assert a.coordinate_manager is b.coordinate_manager is ME.global_coordinate_manager()
        total = a + b
        assert dict(zip(total.C[:, 1].tolist(), total.F.view(-1).tolist())) == {0: 1.0, 1: 12.0}
    finally:
        ME.clear_global_coordinate_manager()
        ME.set_sparse_tensor_operation_mode(ME.SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER)


def dense_and_back():  # 0.5
    dense = torch.zeros(2, 3, 4, 4)
    dense[0, :, 1, 2], dense[1, :, 3, 0] = 1.0, 2.0
    x = ME.MinkowskiToSparseTensor()(dense)
    assert x.C.tolist() == [[0, 1, 2], [1, 3, 0]]
    assert torch.equal(ME.MinkowskiToDenseTensor(dense.shape)(x), dense)


ALL = [
    classification,
    unet,
    generated_coordinates_and_pruning,
    union_in_one_manager,
    squeeze_and_excite,
    output_at_given_coordinates,
    quantize_train_and_slice,
    loader_of_quantized_clouds,
    old_keywords_of_sparse_quantize,
    fields_and_interpolation,
    local_and_global_pooling,
    layer_of_the_users_own,
    one_manager_for_all,
    dense_and_back,
]
