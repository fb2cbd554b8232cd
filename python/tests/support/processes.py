# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes that are ranks of one Gloo group, and hands back what each returns."""
from __future__ import annotations

import os
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _run(rank, world, function, arguments, folder):
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timedelta(seconds=60)
        )
        dist.barrier()  # who leaves at once breaks the mesh of those that still connect
        result = function(rank, world, *arguments)
        dist.destroy_process_group()
    except BaseException:
        result = traceback.format_exc()
        torch.save(("failed", result), os.path.join(folder, f"{rank}.pt"))
        raise
    torch.save(("done", result), os.path.join(folder, f"{rank}.pt"))


def run(world, function, *arguments):
    """[function(rank, world, *arguments) for each rank]; a module's own function, so that processes can find it."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.start_processes(
            _run, (world, function, arguments, folder), nprocs=world, join=False, start_method="fork"
        )
        try:
            while not context.join():
                pass
        except BaseException as error:
            reports = []
            for rank in range(world):
                path = os.path.join(folder, f"{rank}.pt")
                if os.path.exists(path):
                    state, result = torch.load(path, weights_only=False)
                    reports += [f"rank {rank}: {result}"] if state == "failed" else []
            raise AssertionError("\n".join(reports)) from error
        return [torch.load(os.path.join(folder, f"{rank}.pt"), weights_only=False)[1] for rank in range(world)]
