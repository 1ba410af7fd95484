"""Fine-tune a BERT in bf16 with LIBRARY on one device. Usage: trainer_bert.py LIBRARY SPEC.json, xdpx or transformers.

Prints {"tokens_per_second", "peak_bytes", "weights", "losses"}; peak_bytes is null on a CPU, weights are those used in
matrix products.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

import torch

from benchmarks.peers.random_bert import classifier, read_spec, samples


def main() -> None:
    """Train, and measure from the end of the warm-up to the last step."""
    library: Any = import_module(sys.argv[1])
    spec = read_spec(sys.argv[2])
    ends: list[float] = []

    class Clock(library.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in {spec["warm_up"], spec["updates"]}:
                if spec["gpu"]:
                    torch.cuda.synchronize()
                ends.append(time.perf_counter())

    model = classifier(spec)
    with tempfile.TemporaryDirectory() as folder:
        args = library.TrainingArguments(
            folder, bf16=True, use_cpu=not spec["gpu"], per_device_train_batch_size=spec["rows"], num_train_epochs=1,
            logging_steps=spec["warm_up"], save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        trainer = library.Trainer(model, args, train_dataset=samples(spec), callbacks=[Clock()])
        trainer.train()
    tokens = spec["rows"] * spec["length"] * (spec["updates"] - spec["warm_up"])
    told = {
        "tokens_per_second": tokens / (ends[1] - ends[0]),
        "peak_bytes": torch.cuda.max_memory_allocated() if spec["gpu"] else None,
        "weights": sum(weight.numel() for name, weight in model.named_parameters() if "embeddings" not in name),
        "losses": [line["loss"] for line in trainer.state.log_history if "loss" in line],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
