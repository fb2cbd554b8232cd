# SPDX-License-Identifier: Apache-2.0
"""Runs several programs under the doctor's observers, all from one process that has imported torch: a second for each
where a start of its own takes ten. Ranks that wait for each other are ended, as the doctor's command does it.

    several.py FOLDER MODULE:VARIANT[:RANKS[:COPY]] ...   # the logs of each lie in FOLDER, ':' as '-'; how it ended, in the file 'ended'
"""
import importlib
import os
import sys
import time

import start

from lockstep.doctor import hang

hang.STUCK = 2.0
TOGETHER = 3  # programs that run at a time: most of the time they wait for each other


def folder_of(folder, spec):
    return os.path.join(folder, spec.replace(":", "-"))


class Running:
    def __init__(self, folder, spec):
        module, variant, world = [*spec.split(":"), "2"][:3]
        self.folder = folder_of(folder, spec)
        os.makedirs(self.folder)
        sys.modules["_lockstep_doctor_watch.state"].log.open(self.folder)
        self.progress = hang.Progress(self.folder)
        self.ranks = start.begin(importlib.import_module(module).train, variant, int(world))

    def ended(self):
        """How it ended: 'by itself', 'hang', where we ended it, or the error; none while it runs."""
        try:
            if self.ranks.join(timeout=0.02):
                return "by itself"
        except Exception as error:  # a program that is meant to fail
            return str(error)
        self.progress.read()
        if self.progress.hangs():
            for each in self.ranks.processes:
                each.kill()
            return "hang"
        return None


def run(folder, specs):
    waiting, running = list(reversed(specs)), []
    while waiting or running:
        if waiting and len(running) < TOGETHER:
            running.append(Running(folder, waiting.pop()))
        for each in list(running):
            how = each.ended()
            if how is not None:
                running.remove(each)
                with open(os.path.join(each.folder, "ended"), "w") as file:
                    file.write(how)
        time.sleep(0.01)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
