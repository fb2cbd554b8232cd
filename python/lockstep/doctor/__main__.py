# SPDX-License-Identifier: Apache-2.0
"""python -m lockstep.doctor; without the extension: python path/to/lockstep/doctor."""
import sys

if not __package__:  # run as a folder: it takes nothing of the rest of lockstep
    import importlib
    import pathlib

    here = pathlib.Path(__file__).resolve().parent
    sys.path[0] = str(here.parent)
    main = importlib.import_module(here.name + ".main").main
else:
    from .main import main

sys.exit(main(sys.argv[1:]))
