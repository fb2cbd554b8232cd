# SPDX-License-Identifier: Apache-2.0
"""Starts the doctor's observers in a process of the watched program, then runs the sitecustomize that was hidden."""
import os
import sys


def _start_watching() -> None:
    """Loads ../watch under a name of its own: importing lockstep would import torch before the program does."""
    import importlib.util

    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "watch")
    spec = importlib.util.spec_from_file_location(
        "_lockstep_doctor_watch", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_lockstep_doctor_watch"] = module
    spec.loader.exec_module(module)
    module.start()


def _run_hidden() -> None:
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("LOCKSTEP_DOCTOR"):
    try:
        _start_watching()
    except Exception:  # the program runs unwatched, and the doctor says so
        pass
_run_hidden()
