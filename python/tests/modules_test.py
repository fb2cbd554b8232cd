# SPDX-License-Identifier: Apache-2.0
"""What works with any torch module works with these; and what users of MinkowskiEngine met as defects works here."""
import copy
import gc
import weakref

import pytest
import torch

import MinkowskiEngine as ME


def make(cloud, channels=3, dtype=torch.float64, requires_grad=False, **kwargs):
    points = cloud(**kwargs)
    features = torch.rand(len(points), channels, dtype=torch.float64).to(dtype)
    return ME.SparseTensor(features.requires_grad_(requires_grad), points)


def small_net(channels=3):
    return torch.nn.Sequential(
        ME.MinkowskiConvolution(channels, 4, kernel_size=3, stride=2, bias=True, dimension=3),
        ME.MinkowskiBatchNorm(4),
        ME.MinkowskiReLU(inplace=True),
        ME.MinkowskiGenerativeConvolutionTranspose(4, 3, kernel_size=2, stride=2, dimension=3),
        ME.MinkowskiGlobalAvgPooling(),
        ME.MinkowskiLinear(3, 2),
    )


# ---- gradients ---------------------------------------------------------------------------------------------------------


def layers():
    kernel = ME.KernelGenerator(
        region_type=ME.RegionType.CUSTOM,
        region_offsets=torch.IntTensor([[0, 0, 0], [2, 0, -1]]),
        kernel_size=1,
        dimension=3,
    )
    return {
        "convolution": ME.MinkowskiConvolution(3, 2, kernel_size=3, stride=2, bias=True, dimension=3),
        "custom": ME.MinkowskiConvolution(3, 2, kernel_generator=kernel, dimension=3),
        "one": ME.MinkowskiConvolution(3, 2, kernel_size=1, dimension=3),
        "generative": ME.MinkowskiGenerativeConvolutionTranspose(3, 2, kernel_size=3, stride=1, dimension=3),
        "channelwise": ME.MinkowskiChannelwiseConvolution(3, kernel_size=3, bias=True, dimension=3),
        "avg": ME.MinkowskiAvgPooling(kernel_size=3, stride=2, dimension=3),
        "max": ME.MinkowskiMaxPooling(kernel_size=3, stride=2, dimension=3),
        "sum": ME.MinkowskiSumPooling(kernel_size=2, stride=2, dimension=3),
        "global": ME.MinkowskiGlobalMaxPooling(),
        "instance": ME.MinkowskiInstanceNorm(3),
        "stable": ME.MinkowskiStableInstanceNorm(3),
        "batch": ME.MinkowskiBatchNorm(3, track_running_stats=False),
        "sync": ME.MinkowskiSyncBatchNorm(3, track_running_stats=False),
        "sinusoidal": ME.MinkowskiSinusoidal(3, 2),
    }


@pytest.mark.parametrize("name", layers())
def test_gradcheck_of_layers(cloud, name):
    torch.manual_seed(0)
    layer, x = layers()[name].double(), make(cloud, points=12)
    params = tuple(layer.parameters())

    def function(features, *_):
        return layer(x._like(features)).F

    assert torch.autograd.gradcheck(function, (x.F.clone().requires_grad_(), *params))


def test_gradcheck_of_functions(cloud):
    torch.manual_seed(0)
    x = make(cloud, points=10, requires_grad=True)
    generator = ME.KernelGenerator(kernel_size=2, stride=2, dimension=3)
    conv = ME.MinkowskiConvolution(3, 2, kernel_generator=generator, dimension=3).double()
    manager, key = x.coordinate_manager, x.coordinate_map_key
    mode = conv.convolution_mode
    out = ME.CoordinateMapKey(4)
    for function in (ME.MinkowskiConvolutionFunction, ME.MinkowskiConvolutionFunction()):
        assert ME.utils.gradcheck(function, (x.F, conv.kernel, generator, mode, key, out, manager))
    assert out.get_tensor_stride() == [2, 2, 2]
    coarse = conv(x).detach()
    back = torch.rand(8, 2, 3, dtype=torch.float64, requires_grad=True)
    features = coarse.F.clone().requires_grad_()
    transposed = ME.MinkowskiConvolutionTransposeFunction
    assert ME.utils.gradcheck(transposed, (features, back, generator, mode, out, key, manager))
    for pooling in (ME.PoolingMode.LOCAL_SUM_POOLING, ME.PoolingMode.LOCAL_MAX_POOLING):
        assert ME.utils.gradcheck(ME.MinkowskiLocalPoolingFunction, (x.F, pooling, generator, key, out, manager))
    unpool = ME.MinkowskiLocalPoolingTransposeFunction
    average = ME.PoolingMode.LOCAL_AVG_POOLING
    assert ME.utils.gradcheck(unpool, (features, average, generator, out, key, manager))
    pooled = ME.MinkowskiGlobalPoolingFunction
    assert ME.utils.gradcheck(pooled, (x.F, ME.PoolingMode.GLOBAL_AVG_POOLING_KERNEL, key, None, manager))
    origin = manager.origin()
    rows = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    for operation in ME.BroadcastMode:
        assert ME.utils.gradcheck(ME.MinkowskiBroadcastFunction, (x.F, rows, operation, key, origin, manager))
    mask = torch.rand(len(x)) < 0.5
    assert ME.utils.gradcheck(ME.MinkowskiPruningFunction, (x.F, mask, key, None, manager))
    at = torch.cat([x.C[:5, :1], x.C[:5, 1:] + torch.rand(5, 3)], 1).double()

    def interpolate(features):
        return ME.MinkowskiInterpolationFunction.apply(features, at, key, manager)[0]

    assert ME.utils.gradcheck(interpolate, (x.F,))
    other, _ = manager.insert_and_map(cloud(points=8, seed=3), 1, "b")
    more = torch.rand(manager.size(other), 3, dtype=torch.float64, requires_grad=True)
    united = ME.CoordinateMapKey(4)
    assert ME.utils.gradcheck(ME.MinkowskiUnionFunction, ([key, other], united, manager, x.F, more))
    assert ME.utils.gradcheck(ME.MinkowskiInstanceNormFunction, (x.F, key, None, manager))
    assert torch.autograd.gradgradcheck(
        lambda f, k: ME.MinkowskiConvolutionFunction.apply(f, k, generator, mode, key, out, manager),
        (x.F, conv.kernel),
    )


def test_wrong_gradients_are_found(cloud):
    x = make(cloud, points=5, requires_grad=True)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, features):
            return features * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        ME.utils.gradcheck(Wrong, (x.F,))


# ---- lower precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_in_lower_precision(cloud, dtype):
    torch.manual_seed(0)
    net, x = small_net(), make(cloud, dtype=torch.float32)
    wanted = net(x).F
    y = copy.deepcopy(net).to(dtype)(x.to(dtype))
    assert y.dtype == dtype and torch.allclose(y.F.float(), wanted, atol=0.05)
    y.F.float().sum().backward()


def test_autocast_on_a_cpu(cloud):
    torch.manual_seed(0)
    net, x = small_net(), make(cloud, dtype=torch.float32, requires_grad=True)
    wanted = net(x).F
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert net[0](x).dtype == torch.bfloat16
        y = net(x)
    assert y.dtype == torch.bfloat16 and torch.allclose(y.F.float(), wanted, atol=0.05)
    y.F.float().sum().backward()
    assert all(param.grad.dtype == torch.float32 for param in net.parameters())
    assert x.F.grad.dtype == torch.float32


# ---- torch's own machinery ---------------------------------------------------------------------------------------------


def test_state_dicts(cloud):
    net, other, x = small_net(), small_net(), make(cloud, dtype=torch.float32)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(x).F, other.eval()(x).F)
    assert list(net.state_dict())[:3] == ["0.kernel", "0.bias", "1.bn.weight"]
    assert net[0].kernel.shape == (27, 3, 4) and net[0].bias.shape == (1, 4)
    one, strided = (ME.MinkowskiConvolution(3, 4, kernel_size=1, stride=s, dimension=3) for s in (1, 2))
    assert one.kernel.shape == (3, 4) and strided.kernel.shape == (1, 3, 4)
    one.load_state_dict(strided.state_dict())  # checkpoints have both
    assert torch.equal(one.kernel, strided.kernel[0])
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict(small_net(channels=5).state_dict())


def test_hooks_modes_and_freezing(cloud):
    net, x = small_net(), make(cloud, dtype=torch.float32)
    seen = []
    handles = [
        net[0].register_forward_hook(lambda module, given, result: seen.append(result.shape)),
        net[0].register_forward_pre_hook(lambda module, given: seen.append(given[0].shape)),
        net[0].kernel.register_hook(lambda grad: seen.append(grad.shape)),
    ]
    net(x).F.sum().backward()
    assert [len(shape) for shape in seen] == [2, 2, 3]
    for handle in handles:
        handle.remove()
    with torch.no_grad():
        assert not net(x).requires_grad
    with torch.inference_mode():
        assert net.eval()(x).F.shape == (2, 2)
    net.train().requires_grad_(False)
    assert not net(x).requires_grad
    net[5].requires_grad_(True)
    net.zero_grad()
    net(x).F.sum().backward()
    assert net[0].kernel.grad is None and net[5].linear.weight.grad is not None
    assert net.to(torch.float64)[0].kernel.dtype == torch.float64
    checkpointed = torch.utils.checkpoint.checkpoint(
        lambda features: net(x._like(features)).F, x.F.double().requires_grad_(), use_reentrant=False
    )
    checkpointed.sum().backward()


def test_representations(cloud):
    conv = ME.MinkowskiConvolution(3, 4, kernel_size=3, stride=2, dimension=3)
    assert repr(conv) == (
        "MinkowskiConvolution(in=3, out=4, kernel_size=[3, 3, 3], stride=[2, 2, 2], dilation=[1, 1, 1])"
    )
    assert repr(ME.MinkowskiBatchNorm(4)) == (
        "MinkowskiBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    )
    assert repr(ME.MinkowskiReLU()) == "MinkowskiReLU()"
    pooling = "MinkowskiGlobalAvgPooling(mode=PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX)"
    assert repr(ME.MinkowskiGlobalAvgPooling()) == pooling
    assert repr(ME.MinkowskiLinear(3, 4)) == "MinkowskiLinear(in_features=3, out_features=4, bias=True)"
    max_pooling = "MinkowskiMaxPooling(kernel_size=[2, 2, 2], stride=[2, 2, 2], dilation=[1, 1, 1])"
    assert repr(ME.MinkowskiMaxPooling(2, 2, dimension=3)) == max_pooling


def test_networks_of_ones_own(cloud):
    class Net(ME.MinkowskiNetwork):
        def __init__(self):
            super().__init__(3)
            self.conv = ME.MinkowskiConvolution(3, 4, kernel_size=[3, 1, 2], stride=(1, 2, 1), dimension=self.D)

        def forward(self, x):
            return self.conv(x)

    x = make(cloud, dtype=torch.float32)
    net = Net()
    net.init(x)
    assert net(x).tensor_stride == [1, 2, 1] and net.conv.kernel.shape == (6, 3, 4)
    with pytest.raises(TypeError):
        ME.MinkowskiNetwork(3)


def test_batch_norm_is_torchs(cloud):
    x = make(cloud, points=50)
    for momentum, affine, track in ((None, True, True), (0.3, False, True), (0.1, True, False)):
        ours = ME.MinkowskiBatchNorm(3, momentum=momentum, affine=affine, track_running_stats=track).double()
        dense = torch.nn.BatchNorm1d(3, momentum=momentum, affine=affine, track_running_stats=track).double()
        for _ in range(3):
            assert torch.allclose(ours(x).F, dense(x.F))
        assert torch.allclose(ours.eval()(x).F, dense.eval()(x.F))
        for a, b in zip(ours.bn.buffers(), dense.buffers()):
            assert torch.allclose(a, b)
    alone = ME.SparseTensor(torch.rand(1, 3), torch.zeros((1, 4), dtype=torch.int32))
    with pytest.raises(ValueError, match="more than 1 value"):
        ME.MinkowskiBatchNorm(3)(alone)


def test_the_process_keeps_its_threads_and_its_memory(cloud):
    before = torch.get_num_threads()
    x = make(cloud, dtype=torch.float32)
    small_net()(x).F.sum().backward()
    assert torch.get_num_threads() == before
    manager = weakref.ref(x.coordinate_manager._manager)
    del x
    gc.collect()
    assert manager() is None


def test_results_repeat(cloud, golden):
    torch.manual_seed(0)
    net = small_net()
    x = [ME.SparseTensor(golden["features"], golden["coordinates"]) for _ in range(2)]
    grads = []
    for each in x:
        net.zero_grad()
        net(each).F.square().mean().backward()
        grads.append([param.grad.clone() for param in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads))
