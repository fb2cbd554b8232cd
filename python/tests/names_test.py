# SPDX-License-Identifier: Apache-2.0
"""Every name is there, with its arguments in order and their defaults."""
import ast
import functools
import importlib
import inspect
import pathlib
import pickle

import pytest
import torch
from support import names

import lockstep
import MinkowskiEngine as ME


def find(path):
    try:
        return functools.reduce(getattr, path.split("."), ME)
    except AttributeError:
        parts = path.split(".")  # modules.resnet_block.BasicBlock: a module, and names in it
        module = importlib.import_module(".".join(["MinkowskiEngine", *parts[:2]]))
        return functools.reduce(getattr, parts[2:], module)


def text_of(parameter):
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f"={parameter.default}"
    return f"{star}{parameter.name}{default}"


def arguments_of(thing):
    parameters = list(inspect.signature(thing).parameters.values())
    return " ".join(text_of(each) for each in parameters if each.name != "self")


@pytest.mark.parametrize("name, members", names.ENUMERATIONS.items())
def test_enumerations(name, members):
    enumeration = getattr(ME, name)
    assert [member.name for member in enumeration] == members.split()
    assert [member.value for member in enumeration] == list(range(len(members.split())))
    first = next(iter(enumeration))
    assert repr(first) == f"<{name}.{first.name}: 0>" and str(first) == f"{name}.{first.name}"


@pytest.mark.parametrize("path, arguments", names.CLASSES.items())
def test_classes_and_methods(path, arguments):
    assert arguments_of(find(path)) == arguments


@pytest.mark.parametrize("name, properties", names.PROPERTIES.items())
def test_properties(name, properties):
    for each in properties.split():
        assert isinstance(inspect.getattr_static(getattr(ME, name), each), property)


@pytest.mark.parametrize("path, arguments", names.FUNCTIONS.items())
def test_functions(path, arguments):
    assert arguments_of(find(path)) == arguments.removeprefix("self ")


@pytest.mark.parametrize("name, arguments", names.AUTOGRAD_FUNCTIONS.items())
def test_autograd_functions(name, arguments):
    function = getattr(ME, name)
    assert issubclass(function, torch.autograd.Function)
    assert arguments_of(function.forward) == arguments


@pytest.mark.parametrize("name", names.WRAPPED.split())
def test_wrapped_modules(name):
    module = getattr(ME, f"Minkowski{name}")
    assert module.MODULE is getattr(torch.nn, name)
    assert arguments_of(module) == "*args **kwargs"


@pytest.mark.parametrize("name", (names.FUNCTIONAL + " " + names.LOSSES).split())
def test_functional(name):
    target = "target " if name in names.LOSSES.split() else ""
    assert arguments_of(getattr(ME.MinkowskiFunctional, name)) == f"input {target}*args **kwargs"
    assert hasattr(torch.nn.functional, name)


def test_the_keys_methods():
    for method in names.KEY_METHODS.split():
        assert callable(getattr(ME.CoordinateMapKey, method))
    empty = ME.CoordinateMapKey(4)
    assert not empty.is_key_set() and empty.get_coordinate_size() == 4
    key = ME.CoordinateMapKey([2, 2, 2], "a")
    assert key.get_key() == ([2, 2, 2], "a") and key.get_tensor_stride() == [2, 2, 2]
    empty.set_key([2, 2, 2], "a")
    assert empty == key and hash(empty) == hash(key) and key != ME.CoordinateMapKey([2, 2, 2], "b")
    assert repr(key) == "coordinate map key:[2, 2, 2]:a"
    empty.set_key(([1, 1, 1], ""))
    assert repr(empty) == "coordinate map key:[1, 1, 1]"
    with pytest.raises(RuntimeError):
        ME.CoordinateMapKey(4).get_key()


def test_string_ids_are_the_users_labels_with_what_the_manager_counts():
    manager = ME.CoordinateManager(D=1)
    coordinates = torch.IntTensor([[0, 0], [0, 3]])
    keys = [manager.insert_and_map(coordinates, 1, label)[0] for label in ("street", "street", "a#1", "", "#")]
    assert keys[0].get_key() == ([1], "street") and keys[4].get_key() == ([1], "#")
    assert keys[1].get_key()[1].startswith("street#")
    assert len(set(map(repr, keys))) == len(keys)
    for key in keys:
        again = ME.CoordinateMapKey(2)
        again.set_key(key.get_key())
        assert again == key == pickle.loads(pickle.dumps(key)) and manager.size(again) == 2
    assert manager.stride(keys[0], 2).get_key() == ([2], "street")


def test_versions():
    assert ME.__version__ == "0.5.4"
    assert isinstance(ME.cuda_version(), int) and isinstance(ME.is_cuda_available(), bool)
    ME.print_diagnostics()


def test_names_of_submodules_that_code_imports_from():
    for module in (
        "MinkowskiCommon MinkowskiSparseTensor MinkowskiTensorField MinkowskiTensor MinkowskiConvolution "
        "MinkowskiPooling MinkowskiBroadcast MinkowskiNormalization MinkowskiNonlinearity MinkowskiPruning "
        "MinkowskiUnion MinkowskiInterpolation MinkowskiNetwork MinkowskiOps MinkowskiFunctional "
        "MinkowskiKernelGenerator MinkowskiCoordinateManager MinkowskiChannelwiseConvolution sparse_matrix_functions "
        "diagnostics utils modules utils.collation utils.quantization utils.gradcheck utils.init utils.summary"
    ).split():
        importlib.import_module(f"MinkowskiEngine.{module}")


def test_the_documentation_lists_every_name():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md").read_text()
    classes = {path.split(".")[0] for path in names.CLASSES}
    wrapped = {f"Minkowski{name}" for name in names.WRAPPED.split()}
    functions = {path.removeprefix("MinkowskiOps.").removeprefix("MinkowskiFunctional.") for path in names.FUNCTIONS}
    functions = {path.split(".")[2] if path.startswith("modules.") else path for path in functions}
    functional = set((names.FUNCTIONAL + " " + names.LOSSES).split())
    every = set(names.ENUMERATIONS) | classes | wrapped | set(names.AUTOGRAD_FUNCTIONS) | functions | functional
    assert {name for name in every if f"`{name}`" not in page} == set()


def test_the_engines_type_hints_name_what_is_there():
    stub = ast.parse((pathlib.Path(lockstep.__file__).parent / "_C.pyi").read_text())
    hinted = {each.name for each in stub.body if isinstance(each, (ast.ClassDef, ast.FunctionDef))} | {"has_cuda"}
    assert hinted == {name for name in dir(lockstep._C) if not name.startswith("_")}
    for each in stub.body:
        if isinstance(each, ast.ClassDef):
            methods = {method.name for method in each.body if isinstance(method, ast.FunctionDef)}
            assert all(hasattr(getattr(lockstep._C, each.name), method) for method in methods), each.name
