# SPDX-License-Identifier: Apache-2.0
"""A run's folder, and stand-ins for the clients of services, which the pages' blocks work on."""
import contextlib
import importlib.machinery
import json
import sys
import types

import pytest
import torch.distributed as dist

LINES = [
    {"step": 1, "epoch": 0.5, "split": "train", "loss": 2.5, "seconds": 0.1, "phases": {"wait": 0.0}, "devices": 2},
    {"step": 2, "epoch": 1.0, "split": "test", "loss": 2.0, "accuracy": 0.25, "class_iou": [0.5], "seconds": 0.2},
]


@pytest.fixture
def services(tmp_path, monkeypatch):
    """What a run has written, and what was sent to each service."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "lenet").mkdir(parents=True)
    (tmp_path / "runs" / "lenet" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    sent = {"wandb": [], "mlflow": []}
    client = types.SimpleNamespace(log=lambda figures, step: sent["wandb"].append((step, figures)))
    wandb, mlflow = types.ModuleType("wandb"), types.ModuleType("mlflow")
    for module in (wandb, mlflow):  # Accelerate looks whether they are installed
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    wandb.init = lambda project, name: contextlib.nullcontext(client)
    mlflow.start_run = lambda run_name: contextlib.nullcontext()
    mlflow.log_metrics = lambda figures, step: sent["mlflow"].append((step, figures))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return sent


@pytest.fixture(autouse=True)
def job_of_one(monkeypatch):
    """What torchrun says to a job of one process."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
