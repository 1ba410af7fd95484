r"""Learn to turn one line into another with a T5, and score what it writes: pairs of `source TAB target` in a file.

    python examples/trainer/seq2seq.py --train_file pairs.tsv --validation_file dev.tsv --do_train --do_eval \
        --output_dir out/pairs --predict_with_generate --num_train_epochs 20 --learning_rate 3e-3

Without `--model_name_or_path` a tiny T5 reads and writes bytes, from random weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, ByT5Tokenizer, T5Config, T5ForConditionalGeneration

from xdpx import HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed


@dataclass
class PairArguments:
    """Which pairs, and which model."""

    train_file: str = field(metadata={"help": "Pairs to train on: source TAB target."})
    validation_file: str | None = field(default=None, metadata={"help": "Pairs to score; default: those trained on."})
    model_name_or_path: str | None = field(default=None, metadata={"help": "A pre-trained model; default: random."})
    max_source_length: int = field(default=64, metadata={"help": "Longest source, in tokens."})
    max_target_length: int = field(default=64, metadata={"help": "Longest target, in tokens."})


def load(pairs: PairArguments) -> tuple[Any, Any]:
    """Return model and tokenizer."""
    if pairs.model_name_or_path is not None:
        model = AutoModelForSeq2SeqLM.from_pretrained(pairs.model_name_or_path)
        return model, AutoTokenizer.from_pretrained(pairs.model_name_or_path)
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    tokenizer = ByT5Tokenizer(extra_ids=0)
    config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=tokenizer.pad_token_id, **shape)
    return T5ForConditionalGeneration(config), tokenizer


def samples(path: str, tokenizer: Any, pairs: PairArguments) -> list[dict[str, list[int]]]:
    """Read pairs and code both sides."""
    lines = [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    wrong = [number for number, line in enumerate(lines, 1) if len(line) != 2]
    if wrong:
        raise SystemExit(f"{path}, line {wrong[0]}: has {len(lines[wrong[0] - 1])} columns. Write source TAB target.")
    sources = tokenizer([line[0] for line in lines], truncation=True, max_length=pairs.max_source_length)
    wanted = [line[1] for line in lines]  # some tokenizers read targets as another language
    targets = tokenizer(text_target=wanted, truncation=True, max_length=pairs.max_target_length)
    return [
        {"input_ids": source, "labels": target}
        for source, target in zip(sources["input_ids"], targets["input_ids"], strict=True)
    ]


def padded(batch: list[dict[str, list[int]]], pad_id: int) -> dict[str, torch.Tensor]:
    """Pad sources with the padding of the model, and targets with -100, which no loss counts."""

    def grid(rows: list[list[int]], fill: int) -> torch.Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [fill] * (width - len(row)) for row in rows])

    sources, targets = ([row[name] for row in batch] for name in ("input_ids", "labels"))
    mask = grid([[1] * len(row) for row in sources], 0)
    return {"input_ids": grid(sources, pad_id), "attention_mask": mask, "labels": grid(targets, -100)}


def main() -> None:
    """Train, generate, and count the lines that are right."""
    pairs, args = HfArgumentParser((PairArguments, Seq2SeqTrainingArguments)).parse_args_into_dataclasses()
    args.generation_max_length = args.generation_max_length or pairs.max_target_length
    set_seed(args.seed)
    model, tokenizer = load(pairs)

    def exact(predictions: Any) -> dict[str, float]:
        sides = []
        for ids in predictions:
            ids[ids < 0] = tokenizer.pad_token_id
            sides.append(tokenizer.batch_decode(ids, skip_special_tokens=True))
        return {"exact": sum(said == wanted for said, wanted in zip(*sides, strict=True)) / len(sides[0])}

    trainer = Seq2SeqTrainer(
        model=model,
        args=args,
        data_collator=partial(padded, pad_id=tokenizer.pad_token_id),
        train_dataset=samples(pairs.train_file, tokenizer, pairs),
        eval_dataset=samples(pairs.validation_file or pairs.train_file, tokenizer, pairs),
        compute_metrics=exact if args.predict_with_generate else None,
    )
    if args.do_train:
        trainer.save_metrics("train", trainer.train().metrics)
        trainer.save_model()
    if args.do_eval:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
