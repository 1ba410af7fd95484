"""A one-layer character model on a bundled text: an experiment that trains, evaluates and decodes in seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xdpx.datasets.inputs.base_input import BaseInput
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.models.spmd.decoding.greedy import GreedyDecoder
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.optimizers.spmd.learner import Learner
from xdpx.optimizers.spmd.optimizers import Adam
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams
from xdpx.utils.nested_map import NestedMap

TEXT = (Path(__file__).parents[3] / "LICENSE").read_text()
LENGTH, VOCAB, BAD = 16, 128, 3.0e38


class Characters(BaseInput):
    """Pieces of the text in shuffled order, one character per token; `seen` files record which were used."""

    class HParams(BaseInput.HParams):
        num_batches: int | None = None
        poison: int | None = None
        seen: str | None = None

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self._next = 0

    def get_next(self) -> NestedMap:
        p = self.hparams
        if p.num_batches is not None and self._next >= p.num_batches:
            raise StopIteration
        number, self._next = self._next, self._next + 1
        if p.seen is not None:
            with Path(p.seen).open("a") as file:
                file.write(f"{number}\n")
        dice = np.random.default_rng([7, number, self.host_index])
        starts = dice.integers(0, len(TEXT) - LENGTH - 1, p.batch_size)
        pieces = np.array([[ord(c) % VOCAB for c in TEXT[start : start + LENGTH + 1]] for start in starts], np.int32)
        weights = np.ones((p.batch_size, LENGTH), np.float32)
        if number == p.poison:
            weights[:] = np.nan
        return NestedMap(
            ids=pieces[:, :-1], labels=pieces[:, 1:], weights=weights, paddings=np.zeros_like(weights),
            eval_sample_weights=np.ones(p.batch_size, np.float32),
        )  # fmt: skip

    def reset(self) -> None:
        super().reset()
        self._next = 0

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._next = state["next"]

    def ids_to_strings(self, ids: Any, lengths: Any = None, key: str | None = None) -> list[str]:
        rows = np.asarray(ids).tolist()
        counts = [len(row) for row in rows] if lengths is None else np.asarray(lengths).tolist()
        return ["".join(map(chr, row[:count])) for row, count in zip(rows, counts, strict=True)]


class Tiny(BaseExperiment):
    """One layer of width 16."""

    ICI_MESH_SHAPE = (1, 2, 1)
    STEPS: int = 8
    RATE: float = 0.01
    SAVE: int = 3
    KEEP: int | None = 10
    HOURS: str | None = "12h"
    EVAL: int = 4
    WINDOW: str = "full_epoch"
    POISON: int | None = None
    SEEN: str | None = None
    EMA: float = 0.0
    BATCHES: int = 1
    INIT: Any = None
    STOP: Any = None
    SKIP: float = 0.0
    LOG: int | None = None
    LAYERS: int = 1  # each is traced by itself, which is most of what a run costs

    def task(self) -> Any:
        lm = TransformerLm.HParams(vocab_size=VOCAB, model_dims=16, hidden_dims=32, num_layers=self.LAYERS, num_heads=2)
        greedy = GreedyDecoder.HParams(max_decode_steps=4, eos_id=None)
        adam = Adam.HParams(learning_rate=self.RATE, clip_gradient_norm_to_value=1.0, ema_decay=self.EMA)
        train = TrainHParams(
            learner=Learner.HParams(optimizer=adam, skip_step_gradient_norm_value=self.SKIP),
            num_train_steps=self.STEPS, save_interval_steps=self.SAVE, save_max_to_keep=self.KEEP,
            save_keep_interval_duration=self.HOURS, summary_interval_steps=2, eval_interval_steps=self.EVAL,
            log_train_output_interval_steps=self.LOG, accumulate_batches=self.BATCHES,
            init_from_checkpoint_rules=self.INIT,
            eval_use_ema_states=self.EMA > 0, decode_use_ema_states=self.EMA > 0,
        )  # fmt: skip
        return SingleTask.HParams(
            name="tiny",
            model=LanguageModel.HParams(lm_tpl=lm, decoder_tpl=greedy),
            train=train,
            early_stopping_fn=self.STOP,
        )

    def input_specs(self) -> Any:
        tokens = {"ids": "int32", "labels": "int32", "weights": "float32", "paddings": "float32"}
        return {
            **{name: ((4, LENGTH), kind) for name, kind in tokens.items()},
            "eval_sample_weights": ((4,), "float32"),
        }

    def datasets(self) -> list[Any]:
        train = Characters.HParams(name="train", batch_size=4, is_training=True, poison=self.POISON, seen=self.SEEN)
        text = Characters.HParams(name="text", batch_size=4, num_batches=2, eval_window=self.WINDOW)
        if self.WINDOW.startswith("rolling"):
            text.set(num_batches=None)
        return [train, text]

    def decode_datasets(self) -> list[Any]:
        return [Characters.HParams(name="said", batch_size=4, num_batches=1, eval_window="full_epoch")]


def state_of(folder: str, step: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return every tensor of a checkpoint, unsharded."""
    from jax.sharding import SingleDeviceSharding

    from xdpx.checkpoints import spmd_files

    path = f"{folder}/checkpoints/checkpoint_{step:08d}"
    where = SingleDeviceSharding(jax.devices()[0])
    wanted = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=where)
        for name, (shape, dtype) in spmd_files.read_shapes(path).items()
    }
    return {name: np.asarray(leaf) for name, leaf in spmd_files.read(path, wanted).items()}


def metrics_in(folder: str, name: str) -> dict[str, float]:
    """Return the metrics in a file of a job, without what they were computed from."""
    found: dict[str, float] = json.loads(Path(folder, name).read_text())
    assert set(found.pop("computed_from")) == {"settings", "weights"}
    return found


if __name__ == "__main__":
    from xdpx.experiments.running import run

    sys.exit(run(Tiny(STEPS=40, SEEN=sys.argv[2]), job_log_dir=sys.argv[1], plots=False, enable_summary_writer=False))
