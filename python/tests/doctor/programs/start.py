# SPDX-License-Identifier: Apache-2.0
"""Starts the programs beside it: under torchrun or mpirun as they are, else as two forked ranks of one Gloo group."""
import os
import socket
import sys
from datetime import timedelta

import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel does: here once, not in each forked process
import torch.distributed as dist
import torch.multiprocessing as mp


def _joined(train, variant):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    train(variant, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


def _rank(number, world, train, variant, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(number), WORLD_SIZE=str(world))
    _joined(train, variant)


def run(train, variant):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(_rank, (2, train, variant, port), nprocs=2, start_method="fork")


def main(train):
    if "RANK" in os.environ:
        _joined(train, sys.argv[1])
    else:
        run(train, sys.argv[1])
