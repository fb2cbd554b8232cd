# SPDX-License-Identifier: Apache-2.0
"""What a lost process costs torchft, on the load of survive_bench: LeNet, batch 96, three replica groups of one process each.

torchft_bench.py [--kills N] [--heartbeat MS] [--join MS], by a Python that has torchft (pip install torchft), with its programs on the PATH. It kills one of three
processes and waits for the next step that the others commit. Gradients go through Manager.allreduce(): torchft 0.2's own
DistributedDataParallel ends with an AssertionError where Gloo reports a lost peer.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PROCESSES, BATCH, WARM, PORT = 3, 96, 60, 29510


def train(rank: int, folder: pathlib.Path) -> None:
    """One replica group; each committed step is a line: when, its number, how many took part."""
    from datetime import timedelta

    import torch
    from lenet import lenet
    from torch import nn
    from torch.distributed import TCPStore
    from torchft import Manager, Optimizer, ProcessGroupGloo

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = lenet()
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=net.load_state_dict,
        state_dict=net.state_dict, replica_id=f"lenet_{rank}", timeout=timedelta(seconds=10), rank=0, world_size=1,
        store_addr="localhost", store_port=store.port, hostname="localhost")
    optimizer = Optimizer(manager, torch.optim.SGD(net.parameters(), lr=0.1))
    images, labels = torch.randn(BATCH // PROCESSES, 1, 28, 28), torch.arange(BATCH // PROCESSES) % 10
    with open(folder / str(rank), "w", encoding="utf-8") as lines:
        while True:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images), labels).backward()
            gradients = torch.cat([each.grad.view(-1) for each in net.parameters()])
            manager.allreduce(gradients).wait()
            torch.nn.utils.vector_to_parameters(gradients, [each.grad for each in net.parameters()])
            optimizer.step()
            lines.write(f"{time.monotonic()} {manager.current_step()} {manager.num_participants()}\n")
            lines.flush()


def steps_of(folder: pathlib.Path, rank: int) -> list[tuple[float, int, int]]:
    file = folder / str(rank)
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(float(when), int(step), int(members)) for when, step, members in map(str.split, lines)]


def wait_until(done, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            sys.exit(f"torchft_bench: {what} did not happen within {seconds} s")
        time.sleep(0.05)


def answers() -> bool:
    with socket.socket(socket.AF_INET6) as lighthouse:
        return lighthouse.connect_ex(("::1", PORT)) == 0


def lose_one(options: argparse.Namespace, draws: random.Random) -> tuple[float, float]:
    """Seconds of a step, and from the kill to the next one that is new."""
    folder = pathlib.Path(tempfile.mkdtemp())
    environment = dict(os.environ, TORCHFT_LIGHTHOUSE=f"http://localhost:{PORT}")
    commands = [["torchft_lighthouse", "--min_replicas", "1", "--quorum_tick_ms", "100", "--bind", f"[::]:{PORT}",
                 "--join_timeout_ms", str(options.join), "--heartbeat_timeout_ms", str(options.heartbeat)]]
    commands += [[sys.executable, __file__, "--rank", str(rank), "--folder", str(folder)] for rank in range(PROCESSES)]
    processes: list[subprocess.Popen] = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_until(answers, 30, "the lighthouse's answer")
        wait_until(lambda: all((steps := steps_of(folder, rank)) and steps[-1][1] > WARM and steps[-1][2] == PROCESSES
                               for rank in range(PROCESSES)), 90, "a start")
        time.sleep(draws.uniform(0, 0.3))
        victim = draws.randrange(PROCESSES)
        killed = time.monotonic()
        processes[1 + victim].send_signal(signal.SIGKILL)
        left = [rank for rank in range(PROCESSES) if rank != victim]
        before = [each for each in steps_of(folder, left[0]) if each[0] <= killed]

        def after() -> list[float]:
            return [when for rank in left for when, step, _ in steps_of(folder, rank) if when > killed and step > before[-1][1] + 1]

        wait_until(after, 90, "a step after the loss")
        return (before[-1][0] - before[-21][0]) / 20, min(after()) - killed
    finally:
        for each in processes:
            each.kill()
            each.wait()
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=3, help="default 3")
    parser.add_argument("--heartbeat", type=int, default=5000, help="ms without a heartbeat until a group counts as lost; torchft's default, 5000")
    parser.add_argument("--join", type=int, default=10000, help="ms that the others wait for one whose heart beats; default 10000")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        return train(options.rank, options.folder)
    draws = random.Random(1)
    found = []
    for _ in range(options.kills):
        step, seconds = lose_one(options, draws)
        print(f"a step of {1e3 * step:.1f} ms; {seconds:.2f} s from the kill to the next new step", flush=True)
        found.append(seconds)
    print(f"median {statistics.median(found):.2f} s")


if __name__ == "__main__":
    main()
