"""The language model, task and learner of experiments, in small, to be trained on every mesh and with every stack."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xdpx.engines.spmd.engine import SpmdEngine, SpmdOptions
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer
from xdpx.models.spmd.sharding import PIPELINE_RULES, TRANSFORMER_RULES
from xdpx.optimizers.spmd.learner import Learner
from xdpx.optimizers.spmd.optimizers import Adam
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams
from xdpx.utils.nested_map import NestedMap

STEPS, LAYERS, ROWS, LENGTH, VOCAB = 50, 4, 8, 8, 64
STACKS: dict[str, Any] = {
    "unrolled": StackedTransformer.HParams(num_layers=LAYERS),
    "repeated": StackedTransformerRepeated.HParams(body=Transformer.HParams(), x_times=LAYERS),
    "pipelined": Pipelined.HParams(
        num_stages=2,
        num_microbatches=4,
        body=StackedTransformerRepeated.HParams(body=Transformer.HParams(), x_times=2, checkpoint_policy="everything"),
    ),
    "pipelined twice": Pipelined.HParams(
        body=Transformer.HParams(), num_stages=2, circular_repeat=2, num_microbatches=4
    ),
}


def task(stack: str = "repeated") -> SingleTask:
    """Return a task whose layers are stacked in one of the ways."""
    lm = TransformerLm.HParams(
        vocab_size=VOCAB, model_dims=16, hidden_dims=32, num_layers=LAYERS, num_heads=4,
        stacked_transformer_tpl=STACKS[stack].clone(),
    )  # fmt: skip
    # At 1e-2, weights that differ in the last bit are 4e-3 apart after 50 updates, even on one device.
    # No averaged weights where stacks are compared, so that the optimizer's initial state is zero in all of them.
    adam = Adam.HParams(
        learning_rate=3e-3, ema_decay=0.9 if stack == "repeated" else 0.0, clip_gradient_norm_to_value=1.0
    )
    train = TrainHParams(learner=Learner.HParams(optimizer=adam))
    return SingleTask(name="lm", model=LanguageModel.HParams(lm_tpl=lm), train=train)


def batch_of(step: int) -> NestedMap:
    """Return learnable rows (each token follows from the previous one), some of them shortened."""
    dice = np.random.default_rng(step)
    ids = np.zeros((ROWS, LENGTH + 1), np.int32)
    ids[:, 0] = dice.integers(0, VOCAB, ROWS)
    for position in range(LENGTH):
        ids[:, position + 1] = (ids[:, position] * 5 + 3) % VOCAB
    weights = (np.arange(LENGTH) < dice.integers(2, LENGTH + 1, ROWS)[:, None]).astype(np.float32)
    return NestedMap(
        ids=ids[:, :-1], labels=ids[:, 1:], weights=weights, paddings=1.0 - weights,
        eval_sample_weights=np.ones(ROWS, np.float32),
    )  # fmt: skip


def engine(ici: list[int], dcn: list[int] | None = None, stack: str = "repeated") -> SpmdEngine:
    """Return an engine on the first devices, as many as the mesh has."""
    count = int(np.prod(ici) * np.prod(dcn or [1]))
    devices = jax.devices() if jax.process_count() > 1 else jax.devices()[:count]
    spec = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), batch_of(0))
    rules = PIPELINE_RULES if len(ici) == 4 else TRANSFORMER_RULES
    # Learner and layers are those of experiments; only initial values are set here.
    trained: Any = task(stack)
    return SpmdEngine(trained, mesh=make_mesh(ici, dcn, devices=devices), rules=rules, options=SpmdOptions(), spec=spec)


def train(engine: SpmdEngine, state: Any, steps: range, *, host: int = 0, hosts: int = 1) -> tuple[Any, list[float]]:
    """Train on this host's rows; return the state and the losses of all updates, fetched at the end."""
    size, facts = ROWS // hosts, []
    for step in steps:
        batch = batch_of(step).Transform(lambda rows: rows[host * size : (host + 1) * size])
        state, told = engine.update(state, [batch])
        facts.append(told)
    numbers = [engine.facts_to_host(told) for told in facts]
    return state, [each["loss_sum"] / each["count"] for each in numbers]


def restacked(params: Any, stack: str) -> Any:
    """Convert the weights of unrolled layers to the layout of another stack."""
    layers = [params["lm"]["transformer"][f"x_layers_{index}"] for index in range(LAYERS)]
    leading = {"repeated": (LAYERS,), "pipelined": (2, 2), "pipelined twice": (2, 2)}[stack]
    together = jax.tree.map(
        lambda *each: np.stack([np.asarray(one) for one in each]).reshape(*leading, *each[0].shape), *layers
    )
    inner = {"sub": together} if stack == "pipelined" else together
    return {"lm": {**params["lm"], "transformer": {"sub": inner}}}
