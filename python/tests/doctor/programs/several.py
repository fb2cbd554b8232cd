# SPDX-License-Identifier: Apache-2.0
"""Runs several programs under the doctor's observers, all from one process that has imported torch: a second for each
where a start of its own takes ten.

    several.py FOLDER MODULE:VARIANT ...          # the logs of each lie in FOLDER/MODULE-VARIANT
"""
import importlib
import os
import sys

import start


def main():
    state = sys.modules["_lockstep_doctor_watch.state"]
    for each in sys.argv[2:]:
        module, variant = each.split(":")
        folder = os.path.join(sys.argv[1], f"{module}-{variant}")
        os.makedirs(folder)
        state.log.open(folder)
        try:
            start.run(importlib.import_module(module).train, variant)
        except Exception as error:  # a program that is meant to fail, or to hang until its group's time-out
            print(f"{each}: {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    main()
