# SPDX-License-Identifier: Apache-2.0
"""Starts the programs beside it: under torchrun or mpirun as they are, else as two forked ranks of one Gloo group."""
import ctypes
import itertools
import os
import socket
import sys
from datetime import timedelta

import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel does: here once, not in each forked process
import torch.distributed as dist
import torch.multiprocessing as mp


def _ask_a_silent_server():
    """For names, in this thread: glibc's struct __res_state begins with retrans, retry, options, nscount, nsaddr_list."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    libc = ctypes.CDLL(None)
    libc.__res_init()
    libc.__res_state.restype = ctypes.POINTER(ctypes.c_int)
    state = libc.__res_state()
    state[0], state[1], state[4] = 1, 1, 1
    address = socket.AF_INET.to_bytes(2, sys.byteorder) + server.getsockname()[1].to_bytes(2, "big") + socket.inet_aton("127.0.0.1")
    ctypes.memmove(ctypes.addressof(state.contents) + 20, address, len(address))
    return server


def _joined(train, variant):
    torch.set_num_threads(1)
    silent = _ask_a_silent_server() if variant == "silent-names" else None  # noqa: F841  it must not be closed
    if getattr(train, "joins_itself", False):
        return train(variant, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    train(variant, dist.get_rank(), dist.get_world_size())
    if dist.is_initialized():
        dist.destroy_process_group()


def _rank(number, world, train, variant, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(number), WORLD_SIZE=str(world))
    os.environ.update(LOCAL_RANK=str(number), LOCAL_WORLD_SIZE=str(world))
    _joined(train, variant)


_ports = itertools.count(20000 + os.getpid() % 9000)  # below those that the system hands out by itself


_claimed = []  # sockets that hold the names of our ports until this process ends


def _free_port():
    """One that no program of this process was given, nor of another that runs these tests beside it."""
    for port in _ports:
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as free:
            try:
                name.bind(f"\0lockstep doctor's tests {port}")
                free.bind(("127.0.0.1", port))
            except OSError:
                name.close()
                continue
        _claimed.append(name)
        return port


def begin(train, variant, world=2):
    """Ranks that were forked and run."""
    port = _free_port()
    return mp.start_processes(_rank, (world, train, variant, port), nprocs=world, start_method="fork", join=False)


def run(train, variant):
    ranks = begin(train, variant)
    while not ranks.join():
        pass


def main(train):
    if "RANK" in os.environ:
        _joined(train, sys.argv[1])
    else:
        run(train, sys.argv[1])
