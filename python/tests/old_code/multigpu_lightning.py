# SPDX-License-Identifier: Apache-2.0
"""Several devices with PyTorch Lightning, as a program for MinkowskiEngine 0.5 has it. The Trainer's arguments alone
are today's: Lightning has renamed them.

    python multigpu_lightning.py --processes 2
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
from lightning.pytorch import LightningModule, Trainer
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset

import MinkowskiEngine as ME


def minkowski_collate_fn(list_data):
    coordinates_batch, features_batch, labels_batch = ME.utils.sparse_collate(
        [d["coordinates"] for d in list_data],
        [d["features"] for d in list_data],
        [d["labels"] for d in list_data],
        dtype=torch.float32,
    )
    return {"coordinates": coordinates_batch, "features": features_batch, "labels": labels_batch}


class SmallNetwork(nn.Module):
    def __init__(self, in_channels, out_channels, D=3):
        nn.Module.__init__(self)
        self.net = nn.Sequential(
            ME.MinkowskiConvolution(in_channels, 8, 3, dimension=D),
            ME.MinkowskiBatchNorm(8),
            ME.MinkowskiReLU(),
            ME.MinkowskiConvolution(8, 16, 3, stride=2, dimension=D),
            ME.MinkowskiBatchNorm(16),
            ME.MinkowskiReLU(),
            ME.MinkowskiConvolutionTranspose(16, 8, 3, stride=2, dimension=D),
            ME.MinkowskiBatchNorm(8),
            ME.MinkowskiReLU(),
            ME.MinkowskiConvolution(8, out_channels, kernel_size=1, dimension=D),
        )

    def forward(self, x):
        return self.net(x)


class Rooms(Dataset):
    """Points of a floor and of a wall, whose colours tell which."""

    def __init__(self, rooms, voxel_size=0.05):
        self.rooms = rooms
        self.voxel_size = voxel_size

    def __len__(self):
        return self.rooms

    def __getitem__(self, i):
        random = np.random.default_rng(i)
        points = random.random((300, 3), dtype=np.float32)
        labels = (np.arange(300) % 2).astype(np.int32)
        points[labels == 0, 2] = 0.0
        points[labels == 1, 0] = 1.0
        colours = np.stack([labels, 1 - labels, random.random(300)], 1).astype(np.float32)
        coordinates, features, labels = ME.utils.sparse_quantize(
            points, colours, labels=labels, quantization_size=self.voxel_size
        )
        return {"coordinates": coordinates, "features": features, "labels": labels}


class SegmentationModule(LightningModule):
    def __init__(self, model, lr=1e-1, batch_size=2):
        super().__init__()
        for name, value in vars().items():
            if name != "self":
                setattr(self, name, value)
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)

    def train_dataloader(self):
        return DataLoader(Rooms(24), batch_size=self.batch_size, collate_fn=minkowski_collate_fn, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Rooms(4), batch_size=self.batch_size, collate_fn=minkowski_collate_fn)

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        stensor = ME.SparseTensor(coordinates=batch["coordinates"], features=batch["features"])
        return self.criterion(self(stensor).F, batch["labels"].long())

    def validation_step(self, batch, batch_idx):
        stensor = ME.SparseTensor(coordinates=batch["coordinates"], features=batch["features"])
        loss = self.criterion(self(stensor).F, batch["labels"].long())
        self.log("val_loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return SGD(self.model.parameters(), lr=self.lr)


if __name__ == "__main__":
    pa = argparse.ArgumentParser()
    pa.add_argument("--max_epochs", type=int, default=2)
    pa.add_argument("--processes", type=int, default=1)
    args = pa.parse_args()
    torch.manual_seed(0)
    pl_module = SegmentationModule(SmallNetwork(3, 2, D=3))
    pl_module.model = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(pl_module.model)
    trainer = Trainer(
        max_epochs=args.max_epochs,
        accelerator="cpu",
        devices=args.processes,
        strategy="ddp_fork" if args.processes > 1 else "auto",
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(pl_module)
    print(f"{args.processes} processes, validation loss {trainer.callback_metrics['val_loss']:.4f}")
