"""Fine-tune a BERT of base size in bf16 with LIBRARY on one GPU. Usage: trainer_bert.py LIBRARY.

Weights and texts are random: neither changes what a step costs. Prints {"tokens_per_second", "peak_bytes", "mfu"}.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

import torch
from transformers.models.bert import BertConfig, BertForSequenceClassification

BATCH, LENGTH, STEPS, WARM_UP = 32, 128, 120, 20
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L4": 121e12, "T4": 65e12}
"""Dense bf16 FLOP/s from the makers' data sheets."""


def main() -> None:
    """Train, and count from the end of the warm-up to the last step."""
    library: Any = import_module(sys.argv[1])
    ends: list[float] = []

    class Clock(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in {WARM_UP, STEPS}:
                torch.cuda.synchronize()
                ends.append(time.perf_counter())

    torch.manual_seed(1)
    model = BertForSequenceClassification(BertConfig(num_labels=2))
    ids = torch.randint(1000, 30000, (BATCH * STEPS, LENGTH))
    mask = torch.ones(LENGTH, dtype=torch.long)
    rows = [{"input_ids": row, "attention_mask": mask, "labels": number % 2} for number, row in enumerate(ids)]
    with tempfile.TemporaryDirectory() as folder:
        args = library.TrainingArguments(
            folder, bf16=True, per_device_train_batch_size=BATCH, num_train_epochs=1, logging_steps=50,
            save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        library.Trainer(model, args, train_dataset=rows, callbacks=[Clock()]).train()
    rate = BATCH * LENGTH * (STEPS - WARM_UP) / (ends[1] - ends[0])
    weights = sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name)
    name = torch.cuda.get_device_name()
    peak = next((flops for key, flops in PEAK_FLOPS.items() if key in name), float("nan"))
    told = {
        "tokens_per_second": rate,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "mfu": 6 * weights * rate / peak,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
