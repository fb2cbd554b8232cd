# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 backend: scikit-build-core, told which torch to build against, and with the engine's sources in an sdist."""
from __future__ import annotations

import contextlib
import pathlib
import shutil
import sysconfig

from scikit_build_core import build as _backend
from scikit_build_core.build import *  # noqa: F401,F403

HERE = pathlib.Path(__file__).resolve().parent
ENGINE = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src")  # what the extension is compiled from
TORCH = "torch>=2.11"  # what pip then installs for the package too: the newest


def _installed_torch() -> pathlib.Path | None:
    """The torch of the environment that pip installs into: an isolated build sees it by its folder alone."""
    for name in ("platlib", "purelib"):
        folder = pathlib.Path(sysconfig.get_path(name)) / "torch"
        if (folder / "lib" / "libtorch_python.so").exists():
            return folder
    return None


def _torch_folder() -> pathlib.Path:
    found = _installed_torch()
    if found is not None:
        return found
    import torch  # pip has installed it for this build

    return pathlib.Path(torch.__file__).parent


def _settings(given):
    settings = dict(given or {})
    settings.setdefault("cmake.define.LOCKSTEP_TORCH", str(_torch_folder()))
    return settings


def get_requires_for_build_wheel(config_settings=None):
    return [*_backend.get_requires_for_build_wheel(config_settings), *([] if _installed_torch() else [TORCH])]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _backend.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _backend.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


@contextlib.contextmanager
def _engine_beside_us():
    """Copies the engine's sources into this folder while an sdist is made."""
    engine = HERE / "engine"
    if engine.exists() or not (HERE.parent / "src").exists():  # this is an unpacked sdist
        yield
        return
    try:
        engine.mkdir()
        for name in ENGINE:
            source = HERE.parent / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, engine / name)
        yield
    finally:
        shutil.rmtree(engine)


def build_sdist(sdist_directory, config_settings=None):
    with _engine_beside_us():
        return _backend.build_sdist(sdist_directory, config_settings)
