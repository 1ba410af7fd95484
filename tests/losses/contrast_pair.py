"""A contrastive loss on the processes of one training: `contrast_pair.py FOLDER` trains alone, then with two.

Writes FOLDER/<world size>.pt. test_contrast_pair.py checks that the numbers of one and of two processes agree.
"""

import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork, fork_ranks
from xdpx import Trainer, TrainingArguments
from xdpx.engines.pytorch import collectives
from xdpx.losses import losses
from xdpx.losses.contrast import contrast
from xdpx.models import models

FOLDER = Path(sys.argv[1])
BATCH = 4
SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 12,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip


class Contrasting(Trainer):
    """Trains a model with a registered loss."""

    registered = losses["bert_dpr"](losses["bert_dpr"].Parameters(temperature=0.2))

    def compute_loss(self, model, inputs, return_outputs=False):
        loss_sum, count, _ = self.registered(model, {"net_input": inputs})
        return loss_sum / count


def rows(count):
    dice = torch.Generator().manual_seed(1)
    sides = {"question": 3, "passage": 5}
    made = []
    for _ in range(count):
        row = {}
        for side, width in sides.items():
            row[f"{side}_ids"] = torch.randint(3, 12, (width,), generator=dice)
            row[f"{side}_mask"] = torch.arange(width) < int(torch.randint(2, width + 1, (), generator=dice))
        made.append(row)
    made[3] |= {key: made[0][key] for key in ("passage_ids", "passage_mask")}  # on the other process
    return made


def trained(size):
    """Train two encoders for some steps on batches with BATCH rows over all processes."""
    torch.manual_seed(0)
    model = models["bert_dpr_qa"](models["bert_dpr_qa"].Parameters(**SIZES))
    args = TrainingArguments(
        str(FOLDER / str(size)), per_device_train_batch_size=BATCH // size, max_steps=3, learning_rate=0.5, optim="sgd",
        lr_scheduler_type="constant", train_sampling_strategy="sequential", logging_steps=1, save_strategy="no",
        report_to="none", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Contrasting(model, args, train_dataset=rows(3 * BATCH))
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "losses": torch.tensor([entry["loss"] for entry in history]),
        "norms": torch.tensor([entry["grad_norm"] for entry in history]),
        "weights": torch.cat([weight.detach().flatten() for weight in model.parameters()]),
    }


def uneven():
    """Return how far loss and gradient of 4 vectors, 3 of them on the first process, are from those of one process."""
    every = torch.randn(BATCH, 3, 5, generator=torch.Generator().manual_seed(2))
    whole = every.clone().requires_grad_()
    logits, right = contrast(whole[:, 0], whole[:, 1:].transpose(0, 1).flatten(0, 1), temperature=0.1)
    expected = functional.cross_entropy(logits, right, reduction="sum")
    expected.backward()
    mine = slice(0, 3) if collectives.rank() == 0 else slice(3, BATCH)
    own = (every[mine] if collectives.num_processes() > 1 else every).clone().requires_grad_()
    simcse = losses["simcse"](losses["simcse"].Parameters(temperature=0.1))
    loss_sum, _, _ = simcse(nn.Identity(), {"net_input": {"input": own}})
    loss_sum.backward()
    gradient = collectives.gather_rows(own.grad)
    with torch.no_grad():
        scored = simcse.predictions(nn.Identity(), {"net_input": {"input": own}})["loss_sum"]
        alone = contrast(own[:, 0], own[:, 1:].transpose(0, 1).flatten(0, 1), temperature=0.1)
    return {
        "loss": (collectives.sum_over_ranks(loss_sum.detach()) - expected.detach()).abs(),
        "gradient": (gradient - whole.grad).abs().max(),
        "size": whole.grad.abs().max(),
        "scored_together": scored - functional.cross_entropy(*alone, reduction="sum"),
    }


def work(rank=0):
    size = int(os.environ.get("WORLD_SIZE", "1"))
    found = {**trained(size), **uneven()}
    if rank == 0:
        torch.save(found, FOLDER / f"{size}.pt")
    collectives.barrier()
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    import_before_forking(*SHARDING, *SAVING)
    alone = os.waitpid(fork(work, FOLDER / "said-alone.txt"), 0)[1]
    sys.exit(any([alone, *fork_ranks(work, 2, str(FOLDER / "said"))]))
