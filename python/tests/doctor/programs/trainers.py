# SPDX-License-Identifier: Apache-2.0
"""Programs of Lightning and of Accelerate, healthy ones and some with a fault.

    trainers.py lightning-VARIANT|accelerate-VARIANT
"""
import logging
import os
import warnings

import accelerate
import lightning
import start
import torch
import torch.nn as nn
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 2
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def labelled(begin, end):
    x = torch.randn(160, 6, generator=torch.Generator().manual_seed(4))[begin:end]
    return TensorDataset(x, (x.sum(1) > 0).long())


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


class Module(lightning.LightningModule):
    def __init__(self, variant):
        super().__init__()
        self.variant, self.net = variant, net()
        self.automatic_optimization = variant != "by-hand"
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=2)
        if variant == "dropout":
            self.net.insert(2, nn.Dropout(0.3))
        if variant == "unused":
            self.spare = nn.Linear(2, 2)

    def training_step(self, batch, number):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("training loss", loss)
        if self.variant == "by-hand":
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def validation_step(self, batch, number):
        x, y = batch
        out = self.net(x)
        if self.variant == "metric":
            self.accuracy(out, y)
            self.log("accuracy", self.accuracy, on_epoch=True)
        else:
            right = (out.argmax(1) == y).float().mean()
            self.log("accuracy", right, sync_dist=self.variant != "local")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3 * self.trainer.world_size)


def with_lightning(variant):
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2 if variant == "accumulated" else 1,
        strategy="ddp_find_unused_parameters_true" if variant == "unused" else "ddp",
        use_distributed_sampler=variant != "no-sampler")  # fmt: skip
    trainer.fit(Module(variant), DataLoader(labelled(0, 128), 16, shuffle=True), DataLoader(labelled(128, 160), 16))


def with_accelerate(variant, rank, world):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2 if variant == "accumulated" else 1)
    accelerate.utils.set_seed(0)
    model, training, evaluation = net(), DataLoader(labelled(0, 96), 16, shuffle=True), DataLoader(labelled(96, 149), 16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3 * world)
    if variant != "model-alone":
        model = accelerator.prepare(model)
    if variant != "loader-alone":
        training = accelerator.prepare(training)
    optimizer, evaluation = accelerator.prepare(optimizer, evaluation)
    for epoch in range(EPOCHS):
        for x, y in training:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        right = seen = 0
        for x, y in evaluation:
            with torch.no_grad():
                best = model(x).argmax(1)
            if variant == "with-repeats":
                best, y = accelerator.gather((best, y))
            elif variant != "local":
                best, y = accelerator.gather_for_metrics((best, y))
            right += (best == y).sum().item()
            seen += len(y)
        accelerator.print(f"epoch {epoch}: accuracy {right / seen:.4f}")


def train(variant, rank, world):
    os.environ["TORCHELASTIC_RUN_ID"] = "none"  # both libraries take the ranks that are there
    library, _, variant = variant.partition("-")
    if library == "lightning":
        with_lightning(variant)
    else:
        with_accelerate(variant, rank, world)


train.joins_itself = True  # each library makes the process group

if __name__ == "__main__":
    start.main(train)
