# SPDX-License-Identifier: Apache-2.0
"""Processor time of a rank and of what it starts, by which the doctor tells a rank that computes from one that waits."""
import subprocess
import sys
import time

from lockstep.doctor import processes

BURNS = "import time\nwhile time.process_time() < 0.1: pass"


def test_the_time_of_a_compiler_that_ended_stays_counted():
    program = f"import subprocess, sys\nfor _ in range(5): subprocess.run([sys.executable, '-S', '-c', {BURNS!r}], check=True)\ninput()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE) as rank:
        seen, end = [0.0], time.monotonic() + 60
        while seen[-1] < 0.45 and time.monotonic() < end:  # of five times 0.1, each rounded down
            seen.append(processes.seconds(rank.pid))
        assert seen == sorted(seen) and seen[-1] >= 0.45
        rank.communicate(b"\n")
    assert processes.seconds(rank.pid) == 0  # it has gone


def test_a_compiler_that_ends_while_it_is_looked_at_counts_once(monkeypatch):
    burns = f"{BURNS}\ninput()"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {burns!r}])\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
        end = time.monotonic() + 60
        while processes.seconds(rank.pid) < 0.05 and time.monotonic() < end:
            pass
        (compiler,) = processes.below([rank.pid])
        fields, looks = processes._fields, []

        def look(entry):
            found = fields(entry)
            looks.append(entry.parent.name)
            if entry.parent.name == str(compiler) and looks.count(str(compiler)) == 2:  # the first is by below()
                rank.stdin.write(b"\n")
                rank.stdin.flush()
                rank.stdout.readline()  # it has ended, and was waited for
            return found

        monkeypatch.setattr(processes, "_fields", look)
        seen = processes.seconds(rank.pid)
        monkeypatch.undo()
        assert looks.count(str(compiler)) >= 2 and 0.05 <= seen <= processes.seconds(rank.pid)
        rank.communicate(b"\n")
