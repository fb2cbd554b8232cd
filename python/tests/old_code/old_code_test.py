# SPDX-License-Identifier: Apache-2.0
"""Programs for earlier versions of MinkowskiEngine, its pages about several GPUs among them, run as they stand."""
import pathlib
import subprocess
import sys
import warnings

import multigpu
import pytest
import snippets
import torch
import torch.nn.parallel as torch_parallel

import lockstep
import MinkowskiEngine as ME

FOLDER = pathlib.Path(__file__).resolve().parent
FUNCTIONS = ("gather", "parallel_apply", "replicate", "scatter")


def small():
    """(features, coordinates) of four points, of which the third lies where the first does."""
    coordinates = torch.IntTensor([[0, 0, 0], [0, 1, 1], [0, 0, 0], [1, 2, 2]])
    return torch.arange(12.0).view(4, 3), coordinates


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def warnings_of(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = call()
    return result, [str(each.message) for each in seen if each.category is DeprecationWarning]


@pytest.mark.parametrize("program", snippets.ALL, ids=lambda program: program.__name__)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_in_the_style_of_its_time(program):
    torch.manual_seed(0)
    program()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_page_of_torch_nn_parallel_runs_on_two_cpus(monkeypatch):
    with pytest.raises(Exception):  # noqa: B017  torch's own error depends on its version
        multigpu.main(["cpu", "cpu"], steps=1)
    with lockstep.parallel.enable_cpu():
        net, losses = multigpu.main(["cpu", "cpu"], steps=20)
    assert losses[-1] < 0.5 * losses[0]
    monkeypatch.setattr(multigpu, "parallel", lockstep.parallel)  # the import that is recommended
    again, same = multigpu.main(["cpu", "cpu"], steps=20)
    assert same == losses
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values()))
    # Two devices are one with the joined batch: clouds come from one stream, and norms are synchronised.
    one_device = multigpu.load
    monkeypatch.setattr(multigpu, "load", lambda generator: joined(one_device(generator), one_device(generator)))
    single, joint = multigpu.main(["cpu"], steps=4)
    assert joint == pytest.approx(losses[:4], rel=1e-4)


def joined(first, second):
    coords, feats, kinds = zip(first, second)
    coords[1][:, 0] += len(kinds[0])
    return torch.cat(coords), torch.cat(feats), torch.cat(kinds)


def test_the_page_of_lightning_runs_in_two_processes():
    pytest.importorskip("lightning", reason="lightning is not installed")
    command = [sys.executable, "-B", str(FOLDER / "multigpu_lightning.py"), "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=220, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 processes, validation loss 0." in done.stdout, done.stdout


@pytest.mark.parametrize(
    "call, old, new",
    [
        (lambda f, c: ME.SparseTensor(f, coords=c), "coords", "coordinates"),
        (lambda f, c: ME.SparseTensor(feats=f, coordinates=c), "feats", "features"),
        (lambda f, c: ME.MinkowskiConvolution(3, 2, 3, has_bias=True, dimension=2), "has_bias", "bias"),
        (lambda f, c: ME.MinkowskiConvolutionTranspose(3, 2, 3, has_bias=True, dimension=2), "has_bias", "bias"),
        (lambda f, c: ME.MinkowskiChannelwiseConvolution(3, 3, has_bias=True, dimension=2), "has_bias", "bias"),
        (
            lambda f, c: ME.MinkowskiConvolutionTranspose(3, 2, 2, 2, generate_new_coords=True, dimension=2),
            "generate_new_coords",
            "expand_coordinates",
        ),
        (
            lambda f, c: ME.MinkowskiPoolingTranspose(2, 2, generate_new_coords=True, dimension=2),
            "generate_new_coords",
            "expand_coordinates",
        ),
        (lambda f, c: ME.MinkowskiGlobalPooling(dimension=2), "dimension", "leave it out"),
        (lambda f, c: ME.MinkowskiGlobalPooling(average=False), "average", "GLOBAL_SUM_POOLING_PYTORCH_INDEX"),
        (lambda f, c: ME.CoordsManager(D=2), "CoordsManager", "CoordinateManager"),
        (lambda f, c: ME.MinkowskiGlobalSumPooling(dimension=2), "dimension", "leave it out"),
        (lambda f, c: ME.MinkowskiBroadcast(dimension=2), "dimension", "leave it out"),
        (lambda f, c: ME.MinkowskiBroadcastConcatenation(dimension=2), "dimension", "leave it out"),
        (lambda f, c: ME.MinkowskiInstanceNorm(3, dimension=2), "dimension", "leave it out"),
        (lambda f, c: ME.MinkowskiSynchBatchNorm, "MinkowskiSynchBatchNorm", "MinkowskiSyncBatchNorm"),
    ],
)
def test_an_old_name_gives_one_warning_with_todays(call, old, new):
    _, seen = warnings_of(lambda: call(*small()))
    assert len(seen) == 1 and f"`{old}`" in seen[0] and new in seen[0]


def test_old_keywords_mean_what_todays_mean():
    features, coordinates = small()
    (x, key), seen = warnings_of(
        lambda: (made := ME.SparseTensor(features, coords=coordinates), made.coords_key)
    )
    again, more = warnings_of(lambda: ME.SparseTensor(x.F, coords_key=key, coords_manager=x.coordinate_manager))
    assert len(seen) == len(more) == 2
    assert torch.equal(again.C, x.C) and again.coordinate_map_key == x.coordinate_map_key
    layer, _ = warnings_of(lambda: ME.MinkowskiConvolution(3, 2, 3, has_bias=True, dimension=2))
    assert layer.bias.shape == (1, 2)
    with pytest.raises(TypeError, match="both `coords` and `coordinates`"):
        ME.SparseTensor(features, coordinates=coordinates, coords=coordinates)
    with pytest.raises(TypeError, match="no_such"):
        ME.MinkowskiConvolution(3, 2, 3, no_such=1, dimension=2)
    old_class, _ = warnings_of(lambda: ME.MinkowskiSynchBatchNorm)
    assert old_class is ME.MinkowskiSyncBatchNorm
    with pytest.raises(AttributeError, match="MinkowskiNothing"):
        ME.MinkowskiNothing


@pytest.mark.parametrize("average, expected", [(True, [3.0, 9.0]), (False, [6.0, 9.0])])
def test_global_pooling_takes_average_as_it_did(average, expected):
    features = torch.tensor([[2.0], [4.0], [9.0]])
    x = ME.SparseTensor(features, torch.IntTensor([[0, 0, 0], [0, 1, 1], [1, 2, 2]]))
    for layer, _ in (warnings_of(lambda: ME.MinkowskiGlobalPooling(average=average)),
                     warnings_of(lambda: ME.MinkowskiGlobalPooling(average))):
        assert layer(x).F.flatten().tolist() == expected


def test_the_methods_of_coords_manager_are_todays():
    x = ME.SparseTensor(torch.rand(3, 1), torch.IntTensor([[0, 0, 0], [0, 1, 1], [1, 2, 2]]))
    y = ME.MinkowskiConvolution(1, 1, kernel_size=2, stride=2, dimension=2)(x)
    manager, key, coarse = x.coordinate_manager, x.coordinate_map_key, y.coordinate_map_key
    for call, expected in (
        (lambda: manager.get_coords(key), x.C),
        (lambda: manager.get_coords(2), y.C),
        (lambda: manager.get_coords_key(2), coarse),
        (lambda: manager.get_coords_size_by_coords_key(coarse), 2),
        (lambda: manager.get_batch_size(), 2),
        (lambda: manager.get_batch_indices(), {0, 1}),
        (lambda: manager.get_row_indices_per_batch(key), [torch.tensor([0, 1]), torch.tensor([2])]),
        (lambda: manager.get_coords_map(1, 2), manager.stride_map(key, coarse)),
        (lambda: manager.get_union_map([key, key], ME.CoordinateMapKey(3)),
         manager.union_map([key, key], ME.CoordinateMapKey(3))),
        (lambda: manager.get_coords(manager.create_coords_key(x.C, 1)), x.C),
        (lambda: manager.reduce(), manager.origin()),
        (lambda: manager.stride(key, 2, force_creation=True), coarse),
    ):
        found, seen = warnings_of(call)
        assert seen and all(" now" in text or "take " in text or "leave it out" in text for text in seen), seen
        if isinstance(expected, torch.Tensor):
            assert torch.equal(found, expected)
        elif isinstance(expected, (list, tuple)):
            assert all(torch.equal(a, b) for a, b in zip(found, expected)) and len(found) == len(expected)
        else:
            assert found == expected
    made, _ = warnings_of(lambda: ME.CoordsManager(D=2))
    assert isinstance(made, ME.CoordinateManager) and made.D == 2


def test_the_warning_points_at_the_users_line():
    with pytest.warns(DeprecationWarning) as seen:
        ME.MinkowskiConvolution(3, 2, 3, has_bias=True, dimension=2)
    assert seen[0].filename == __file__


def test_the_names_of_the_extension():
    sys.modules.pop("MinkowskiEngineBackend._C", None)

    def take():
        import MinkowskiEngineBackend._C as _C

        return _C

    backend, seen = warnings_of(take)
    assert len(seen) == 1 and "`MinkowskiEngine`" in seen[0]
    assert all(getattr(backend, name) is getattr(ME, name) for name in backend.__all__)
    with pytest.raises(AttributeError, match="call MinkowskiEngine's layers"):
        backend.ConvolutionForwardCPU


@pytest.mark.parametrize("mode", ["RANDOM_SUBSAMPLE", "UNWEIGHTED_AVERAGE", "MAX_POOL"])
def test_slicing_a_quantized_tensor_gives_a_row_for_each_original_coordinate(mode):
    features, coordinates = small()
    x = ME.SparseTensor(features, coordinates, quantization_mode=ME.SparseTensorQuantizationMode[mode])
    y = ME.MinkowskiReLU()(ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=2)(x))
    for points in (x, x.to("cpu"), x * 2.0):  # what came of it keeps its points
        out = y.slice(points)
        assert isinstance(out, ME.TensorField) and torch.equal(out.C.int(), coordinates)
        rows = [x.C.tolist().index(each) for each in coordinates.tolist()]
        assert torch.equal(out.F, y.F[rows])
    both = y.cat_slice(x)
    assert torch.equal(both.F, torch.cat((y.F, x.F), 1)[rows])
    features.requires_grad_()
    x = ME.SparseTensor(features, coordinates, quantization_mode=ME.SparseTensorQuantizationMode.UNWEIGHTED_SUM)
    x.slice(x).F.sum().backward()
    assert features.grad[:, 0].tolist() == [2.0, 1.0, 2.0, 1.0]  # two points take the sum of the first and third


def test_what_has_no_points_cannot_be_sliced_by():
    x = ME.SparseTensor(*small())
    y = ME.MinkowskiConvolution(3, 4, kernel_size=3, dimension=2)(x)
    with pytest.raises(ValueError, match="not made from coordinates"):
        x.slice(y)
    with pytest.raises(AssertionError, match="same coordinate_map_key"):
        ME.MinkowskiConvolution(3, 4, kernel_size=2, stride=2, dimension=2)(x).slice(x)
    with pytest.raises(AssertionError, match="expected a TensorField or a SparseTensor"):
        x.slice(torch.rand(4, 3))


def test_enable_cpu_changes_four_functions_and_can_be_undone():
    before = {name: getattr(torch_parallel, name) for name in FUNCTIONS}
    enabled = lockstep.parallel.enable_cpu()
    try:
        assert all(getattr(torch_parallel, name) is not before[name] for name in FUNCTIONS)
        assert all(name in repr(enabled) for name in FUNCTIONS)
        parts = torch_parallel.scatter(torch.arange(5), ["cpu", "cpu"])
        assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4]]
        nets = torch_parallel.replicate(torch.nn.Linear(2, 1), devices=["cpu", torch.device("cpu")])
        outputs = torch_parallel.parallel_apply(nets, [torch.ones(3, 2)] * 2)
        assert torch_parallel.gather(outputs, target_device="cpu").shape == (6, 1)
    finally:
        enabled.undo()
        enabled.undo()
    assert all(getattr(torch_parallel, name) is before[name] for name in FUNCTIONS)
    assert "nothing" in repr(enabled)


def test_enable_cpu_leaves_gpus_to_torch(monkeypatch):
    asked = []
    monkeypatch.setattr(torch_parallel, "replicate", lambda network, devices, detach=False: asked.append(devices))
    with lockstep.parallel.enable_cpu():
        torch_parallel.replicate(torch.nn.Linear(1, 1), [0, 1])
    assert asked == [[0, 1]]
