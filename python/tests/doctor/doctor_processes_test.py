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
        while seen[-1] < 0.5 and time.monotonic() < end:  # of its five children, one after the other
            seen.append(processes.seconds(rank.pid))
        assert seen == sorted(seen) and seen[-1] >= 0.5
        rank.communicate(b"\n")
    assert processes.seconds(rank.pid) == 0  # it has gone
