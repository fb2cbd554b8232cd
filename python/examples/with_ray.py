# SPDX-License-Identifier: Apache-2.0
"""The classifier of classification.py with Ray Train's TorchTrainer.

    python with_ray.py --processes 2
"""
import argparse
import tempfile

import ray
import torch
import torch.nn as nn
from classification import Net, loader_of
from ray import train
from ray.train.torch import TorchTrainer, prepare_model
from shapes import KINDS, Shapes

import lockstep
import MinkowskiEngine as ME


def train_one(options):
    torch.manual_seed(0)
    processes = train.get_context().get_world_size()
    net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(Net(len(KINDS)))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    model = prepare_model(net)  # DistributedDataParallel, where there are several processes
    # The loader stays out of prepare_data_loader(): the exact sampler cuts the data for this process.
    loader, _ = loader_of(Shapes(options["size"]), 8, drop_last=True)
    mean = lockstep.metrics.Mean()
    for coordinates, features, kinds in loader:
        loss = nn.functional.cross_entropy(model(ME.SparseTensor(features, coordinates)).F, kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean.add(loss.item(), len(kinds))
    lockstep.divergence_watch(net).check()
    metrics = {"loss": mean.all_merge().value(), "processes": processes}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if train.get_context().get_world_rank() == 0:  # one of them is enough: all hold the same bits
            torch.save(net.state_dict(), f"{folder}/weights.pt")
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report(metrics, checkpoint=checkpoint)  # Ray keeps metrics with a checkpoint alone


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--size", type=int, default=120)
    options = parser.parse_args()
    ray.init(num_cpus=options.processes, include_dashboard=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train_one,
            train_loop_config={"size": options.size},
            scaling_config=train.ScalingConfig(num_workers=options.processes),
            run_config=train.RunConfig(storage_path=folder),
        )
        metrics = trainer.fit().metrics
    print(f"{metrics['processes']} processes, loss {metrics['loss']:.4f}, same weights on all")


if __name__ == "__main__":
    main()
