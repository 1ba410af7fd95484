r"""Train a language model on a text file: its bytes with a small GPT-2 from random weights, or a named model.

    python examples/trainer/causal_lm.py --train_file input.txt --do_train --do_eval --output_dir out/lm \
        --block_size 128 --max_steps 500 --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_steps 50

The perplexity that it prints is per byte, or per token of the named model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from xdpx import HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class TextArguments:
    """Which text, and which model."""

    train_file: str = field(metadata={"help": "A text file; its last part is kept for scoring."})
    model_name_or_path: str | None = field(default=None, metadata={"help": "A pre-trained model; default: random."})
    block_size: int = field(default=128, metadata={"help": "Tokens of a sample."})
    validation_share: float = field(default=0.1, metadata={"help": "Part of the text that is kept for scoring."})
    layers: int = field(default=2, metadata={"help": "Layers of the random model."})
    width: int = field(default=64, metadata={"help": "Numbers per token in the random model."})


class Blocks(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """A long row of tokens, cut into samples of equal length."""

    def __init__(self, ids: torch.Tensor, size: int) -> None:
        self.blocks = ids[: len(ids) // size * size].view(-1, size)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.blocks[index], "labels": self.blocks[index]}


def load(text: TextArguments) -> tuple[torch.Tensor, Any, Any]:
    """Return the token ids of the file, the model, and its tokenizer, if it has one."""
    if text.model_name_or_path is None:
        ids = torch.tensor(list(Path(text.train_file).read_bytes()))
        shape = {"n_positions": text.block_size, "n_embd": text.width, "n_layer": text.layers, "n_head": 4}
        return ids, GPT2LMHeadModel(GPT2Config(vocab_size=256, **shape)), None
    tokenizer = AutoTokenizer.from_pretrained(text.model_name_or_path)
    ids = tokenizer(Path(text.train_file).read_text(encoding="utf-8"), return_tensors="pt")["input_ids"][0]
    return ids, AutoModelForCausalLM.from_pretrained(text.model_name_or_path), tokenizer


def main() -> None:
    """Cut, train, and score as perplexity."""
    text, args = HfArgumentParser((TextArguments, TrainingArguments)).parse_args_into_dataclasses()
    set_seed(args.seed)
    ids, model, tokenizer = load(text)
    cut = int(len(ids) * (1 - text.validation_share))
    train, dev = Blocks(ids[:cut], text.block_size), Blocks(ids[cut:], text.block_size)
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=dev, processing_class=tokenizer)
    if args.do_train:
        metrics = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint).metrics
        trainer.save_model()
        trainer.save_metrics("train", metrics)
    if args.do_eval:
        metrics = trainer.evaluate()
        metrics["perplexity"] = math.exp(min(metrics["eval_loss"], 100.0))
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
