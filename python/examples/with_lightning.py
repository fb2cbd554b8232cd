# SPDX-License-Identifier: Apache-2.0
"""The classifier of classification.py with Lightning's Trainer.

    python with_lightning.py --processes 2
"""
import argparse

import lightning
import torch
import torch.nn as nn
from classification import Net, loader_of
from shapes import KINDS, Shapes

import lockstep
import MinkowskiEngine as ME


class Classifier(lightning.LightningModule):
    def __init__(self, size):
        super().__init__()
        self.net, self.size = Net(len(KINDS)), size

    def configure_model(self):
        self.net = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(self.net)

    def train_dataloader(self):
        # Lightning makes this in each process: the sampler knows its rank.
        return loader_of(Shapes(self.size), batch=8, drop_last=True)[0]

    def training_step(self, batch, _):
        coordinates, features, kinds = batch
        loss = nn.functional.cross_entropy(self.net(ME.SparseTensor(features, coordinates)).F, kinds)
        self.log("loss", loss, batch_size=len(kinds), sync_dist=True)
        return loss

    def on_train_end(self):
        lockstep.divergence_watch(self.net).check()
        if self.trainer.is_global_zero:
            loss = float(self.trainer.callback_metrics["loss"])
            print(f"{self.trainer.world_size} processes, loss {loss:.4f}, same weights on all", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--size", type=int, default=120)
    options = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.processes,
        strategy="ddp_fork" if options.processes > 1 else "auto",
        max_epochs=1,
        use_distributed_sampler=False,  # the exact sampler cuts the data
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(options.size))


if __name__ == "__main__":
    main()
