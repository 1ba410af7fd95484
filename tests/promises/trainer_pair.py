"""Scenarios on two processes: `trainer_pair.py LIBRARY FOLDER WORDS KINDS` writes FOLDER/{rank-<n>.json,said-<n>.txt}.

WORDS and KINDS are JSON lists of what to train with: strings for `fsdp`, and kinds of sharded checkpoints. Both
processes are forked off one that has imported everything. Every scenario returns facts as JSON values, which
test_trainer_pair.py checks.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["XDPX_TRAINER_UNDER_TEST"] = sys.argv[1]
_spec = importlib.util.spec_from_file_location("trainer_parts", Path(__file__).with_name("trainer_parts.py"))
assert _spec is not None
assert _spec.loader is not None
parts: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(parts)

import torch  # noqa: E402 - after the library under test is known
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils.data import IterableDataset  # noqa: E402

from tests.preloaded import SAVING, SHARDING, import_before_forking  # noqa: E402
from tests.processes import fork_ranks  # noqa: E402

door = parts.door
FOLDER, WORDS, KINDS = Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
PAIR = {"per_device_train_batch_size": 2, "train_sampling_strategy": "sequential", "ddp_timeout": 120}


class Look(door.TrainerCallback):  # type: ignore[misc, name-defined]
    """Records how the model is distributed over the processes during training."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        owned = [p for p in model.parameters() if isinstance(p, DTensor)]
        local = sum(p.to_local().numel() for p in owned)
        self.facts = {
            "sharded": len(owned),
            "all": len(list(model.parameters())),
            "share": local / max(1, sum(p.numel() for p in owned)),
            "units": sorted(
                {type(m).__name__.removeprefix("FSDP") for m in model.modules() if isinstance(m, FSDPModule)}
            ),
            "devices": sorted({p.device.type for p in model.parameters()}),
        }


def trained(name: str, model: Any = None, rows: Any = None, **changes: Any) -> dict[str, Any]:
    """Train a two-layer BERT by default; return losses, norms, wrapper, and how the weights were distributed."""
    look = Look()
    made, data = model or parts.tiny_bert(layers=2), rows or parts.token_rows(16)
    trainer = parts.build(FOLDER / name, made, data, callbacks=[look], **(PAIR | changes))
    trainer.train()
    return {
        "losses": parts.losses(trainer),
        "norms": [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry],
        "wrapper": type(trainer.model_wrapped).__name__,
        "steps": trainer.state.global_step,
        "world": trainer.args.world_size,
        **look.facts,
    }


def ddp() -> dict[str, Any]:
    """Plain data parallelism, with a number of rows that two does not divide."""
    uneven = trained("uneven", rows=parts.token_rows(10))
    plain = trained("plain", parts.seeded(), parts.Rows(16))
    return {**trained("ddp"), "uneven": uneven["steps"], "plain": plain["losses"]}


def fsdp_words() -> dict[str, Any]:
    """Train with strings that the documentation names."""
    return {words: trained(words.replace(" ", "-"), fsdp=words) for words in WORDS}


def fsdp_config() -> dict[str, Any]:
    """Return what becomes an FSDP unit, with the keys that only FSDP's first version had."""
    named = {"fsdp_transformer_layer_cls_to_wrap": ["BertLayer"]}
    sized = {"fsdp_min_num_params": 2000}
    old = {"fsdp_backward_prefetch": "backward_pre", "fsdp_forward_prefetch": "True", "limit_all_gathers": "true",
           "use_orig_params": True, "sync_module_states": True}  # fmt: skip
    return {
        "named": trained("named", fsdp="full_shard auto_wrap", fsdp_config=named),
        "sized": trained("sized", fsdp="full_shard auto_wrap", fsdp_config=sized),
        "old": trained("old", fsdp="full_shard auto_wrap", fsdp_config=old),
    }


def recomputing() -> dict[str, Any]:
    """Count how often a layer's forward pass runs per step of training, with and without activation checkpointing."""
    counts = {}
    for wanted in (False, True):
        model = parts.tiny_bert(layers=2)
        seen: list[bool] = []  # whether in training mode; the first micro-batch is also passed in evaluation mode
        model.bert.encoder.layer[0].attention.self.query.register_forward_hook(
            lambda layer, *_, _seen=seen: _seen.append(layer.training)
        )
        told = trained(f"recompute-{wanted}", model, fsdp="full_shard auto_wrap",
                       fsdp_config={"activation_checkpointing": str(wanted).lower()})  # fmt: skip
        counts[str(wanted)] = sum(seen) / told["steps"]
        counts[f"losses-{wanted}"] = told["losses"]
    return counts


def fsdp_saved() -> dict[str, Any]:
    """Save halfway, and resume with two processes from each kind of checkpoint."""
    found = {}
    for kind in KINDS:
        common = {**PAIR, "fsdp": "full_shard auto_wrap", "fsdp_config": {"state_dict_type": kind},
                  "save_strategy": "steps", "save_steps": 2}  # fmt: skip
        straight = parts.build(FOLDER / kind, parts.tiny_bert(layers=2, dropout=0.1), parts.token_rows(16), **common)
        straight.train()
        straight.save_model(str(FOLDER / f"{kind}-saved"))
        resumed = parts.build(FOLDER / kind, parts.tiny_bert(layers=2, dropout=0.1), parts.token_rows(16), **common)
        resumed.train(resume_from_checkpoint=str(FOLDER / kind / "checkpoint-2"))
        found[kind] = {
            "straight": parts.losses(straight),
            "resumed": parts.losses(resumed),
            "files": sorted(path.name for path in (FOLDER / kind / "checkpoint-2").iterdir()),
        }
    return found


def fsdp_for_one() -> dict[str, Any]:
    """Write a checkpoint for one process to resume; without dropout, so that its numbers are known.

    A full evaluation in bfloat16 before changes nothing: shards that were cast could not be trained.
    """
    common = {**PAIR, "fsdp": "full_shard auto_wrap", "save_strategy": "steps", "save_steps": 2, "bf16_full_eval": True}
    trainer = parts.build(FOLDER / "for-one", parts.tiny_gpt(), parts.text_rows(16), **common)
    trainer.evaluate(parts.text_rows(7))
    trainer.train()
    return {"losses": parts.losses(trainer), "eval": trainer.evaluate(parts.text_rows(7))["eval_loss"]}


def generating() -> dict[str, Any]:
    """Generate under FSDP."""
    from transformers.models.t5 import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    shape = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, dropout_rate=0.0, **shape))
    ids = torch.randint(3, 30, (7, 5), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": row, "labels": row.flip(0)} for row in ids]
    args = door.Seq2SeqTrainingArguments(
        str(FOLDER / "generating"), predict_with_generate=True, generation_max_length=7, max_steps=2, use_cpu=True,
        per_device_train_batch_size=2, per_device_eval_batch_size=2, save_strategy="no", report_to="none",
        fsdp="full_shard auto_wrap", learning_rate=0.01, train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = door.Seq2SeqTrainer(model=model, args=args, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    predicted = trainer.predict(rows)
    return {"ids": predicted.predictions.tolist(), "labels": predicted.label_ids.tolist()}


def dice() -> dict[str, Any]:
    """Resume with each process's own random state."""
    common = {**PAIR, "save_strategy": "steps", "save_steps": 1, "num_train_epochs": 2}
    rows = parts.Rows(12)
    straight = parts.build(FOLDER / "dice", parts.seeded(parts.NoisyNet, 0.2), rows, **common)
    straight.train()
    resumed = parts.build(FOLDER / "dice", parts.seeded(parts.NoisyNet, 0.2), rows, **common)
    resumed.train(resume_from_checkpoint=str(FOLDER / "dice" / "checkpoint-2"))
    return {
        "equal": torch.equal(parts.weights(straight.model), parts.weights(resumed.model)),
        "losses": [parts.losses(straight), parts.losses(resumed)],
        "files": sorted(path.name for path in (FOLDER / "dice" / "checkpoint-2").glob("rng*")),
    }


def scoring() -> dict[str, Any]:
    """Evaluate and predict a number of rows that the processes do not divide."""
    trainer = parts.build(
        FOLDER / "scoring", parts.tiny_bert(layers=2), parts.token_rows(16), per_device_eval_batch_size=2
    )
    rows = parts.token_rows(7)
    predicted = trainer.predict(rows)
    return {
        "labels": predicted.label_ids.tolist(),
        "logits": predicted.predictions.tolist(),
        "loss": trainer.evaluate(rows)["eval_loss"],
    }


def tokens() -> dict[str, Any]:
    """Average a language model's loss over all target tokens of processes and accumulation."""
    changes = {**PAIR, "gradient_accumulation_steps": 2, "optim": "sgd"}
    told = trained("tokens", parts.tiny_gpt(), parts.text_rows(16), **changes)
    return {"losses": told["losses"], "norms": told["norms"]}


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        rows = parts.Rows(16)
        yield from (rows[index] for index in range(16))


def stream() -> dict[str, Any]:
    """Train on a stream that both processes read."""
    return trained("stream", parts.seeded(), Stream(), max_steps=4)


def levels() -> dict[str, Any]:
    """Log a line for every combination of levels."""
    told = {}
    for main in ("info", "error"):
        for replica in ("warning", "error"):
            args = parts.arguments(FOLDER, log_level=main, log_level_replica=replica)
            logger = logging.getLogger(f"marker.{main}.{replica}")
            logger.propagate = False
            logger.addHandler(logging.StreamHandler(sys.stderr))
            logger.setLevel(args.get_process_log_level())
            logger.warning(f"marker {main} {replica}")
            told[f"{main} {replica}"] = args.get_process_log_level()
    return told


@contextmanager
def environment(**values: str) -> Generator[None]:
    """Set variables as a launcher would."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def launched() -> dict[str, Any]:
    """Train with the environment of `accelerate launch`."""
    fsdp = {
        "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "1", "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_TRANSFORMER_CLS_TO_WRAP": "BertLayer",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT", "FSDP_OFFLOAD_PARAMS": "false", "FSDP_USE_ORIG_PARAMS": "true",
        "FSDP_BACKWARD_PREFETCH": "BACKWARD_PRE", "FSDP_FORWARD_PREFETCH": "true", "FSDP_SYNC_MODULE_STATES": "true",
    }  # fmt: skip
    with environment(**fsdp):
        sharded = trained("launched-fsdp")
    with environment(ACCELERATE_MIXED_PRECISION="bf16"):
        half = trained("launched-bf16")
    return {"fsdp": sharded, "bf16": half}


def refusals() -> dict[str, str]:
    """Return the errors for requests that cannot be satisfied."""
    told = {}
    model = parts.tiny_bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cases: dict[str, Callable[[], Any]] = {
        "optimizers": lambda: parts.build(FOLDER, model, fsdp="full_shard", optimizers=(optimizer, None)),
        "mps": lambda: parts.arguments(FOLDER, use_cpu=False).device,
    }
    available = torch.backends.mps.is_available
    for name, case in cases.items():
        torch.backends.mps.is_available = lambda: True  # type: ignore[method-assign]
        try:
            told[name] = f"nothing was raised: {case()!r}"
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"
        finally:
            torch.backends.mps.is_available = available  # type: ignore[method-assign]
    return told


def saving() -> dict[str, Any]:
    """Return who writes, whether processes that must not write do, and whether all agree on the best."""
    trainer = parts.build(
        FOLDER / "saving", parts.tiny_bert(), parts.token_rows(16), **PAIR, eval_dataset=parts.token_rows(7),
        eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, save_total_limit=1,
        load_best_model_at_end=True,
    )  # fmt: skip
    trainer.train()
    return {
        "best": str(trainer.state.best_model_checkpoint),
        "metric": trainer.state.best_metric,
        "weights": float(parts.weights(trainer.model).double().sum()),
        "folders": parts.folders(FOLDER / "saving"),
    }


SCENARIOS = (
    ddp, levels, scoring, tokens, stream, dice, saving, fsdp_words, fsdp_config, recomputing, fsdp_saved, fsdp_for_one,
    generating, launched, refusals,
)  # fmt: skip


def main(rank: int) -> None:
    """Run all scenarios as one of the processes; record the traceback of one that fails."""
    facts: dict[str, Any] = {}
    for scenario in SCENARIOS:
        try:
            facts[scenario.__name__] = scenario()
        except Exception:
            facts[scenario.__name__] = {"failed": traceback.format_exc()}
        (FOLDER / f"rank-{rank}.json").write_text(json.dumps(facts), encoding="utf-8")
    torch.distributed.barrier()  # the second needs the store of the first to its end


if __name__ == "__main__":
    import_before_forking(*SHARDING, *SAVING)
    codes = fork_ranks(main, 2, str(FOLDER / "said"))
    if any(codes):
        sys.exit("\n".join((FOLDER / f"said-{rank}.txt").read_text()[-4000:] for rank in (0, 1)))
