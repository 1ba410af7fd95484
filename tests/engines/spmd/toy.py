"""The smallest task with all that an engine must handle: two layers, named axes, dropout, a running mean, Adam, EMA."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.sharding import PartitionSpec as P

RULES = (
    ("batch", ("replica", "data")), ("embed", "data"), ("mlp", "mdl"), ("vocab", "mdl"), ("norm", None),
    ("activation_embed", None), ("activation_mlp", "mdl"), ("length", None),
)  # fmt: skip
VOCAB, DIM, LENGTH, ROWS = 64, 16, 8, 8


class Outputs(NamedTuple):
    metrics: dict[str, Any]
    non_trainable: Any
    summaries: dict[str, Any]


def named(init: Any, *names: str) -> Any:
    return nn.with_logical_partitioning(init, names)


class Block(nn.Module):
    dim: int
    hidden: int
    dropout: float

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        scale = self.param("scale", named(nn.initializers.ones, "norm"), (self.dim,))
        w1 = self.param("w1", named(nn.initializers.lecun_normal(), "embed", "mlp"), (self.dim, self.hidden))
        w2 = self.param("w2", named(nn.initializers.lecun_normal(), "mlp", "embed"), (self.hidden, self.dim))
        seen = jnp.cumsum(x, axis=1) / jnp.arange(1, x.shape[1] + 1)[:, None]  # each position sees those before it
        y = (x + seen) * jax.lax.rsqrt(jnp.mean(jnp.square(x + seen), -1, keepdims=True) + 1e-6) * scale
        y = nn.with_logical_constraint(nn.gelu(y @ w1), ("batch", "length", "activation_mlp"))
        return x + nn.Dropout(self.dropout, deterministic=not train)(y @ w2)


class Model(nn.Module):
    dim: int = DIM
    hidden: int = 32
    dropout: float = 0.0

    @nn.compact
    def __call__(self, ids: Any, train: bool = False) -> Any:
        table = self.param("emb", named(nn.initializers.normal(1.0), "vocab", "embed"), (VOCAB, self.dim))
        mean = self.variable("non_trainable", "mean", lambda: jnp.zeros(self.dim))
        x = nn.with_logical_constraint(table[ids], ("batch", "length", "activation_embed"))
        for index in range(2):
            x = Block(self.dim, self.hidden, self.dropout, name=f"layer_{index}")(x, train)
        if train:
            mean.value = 0.9 * mean.value + 0.1 * jnp.mean(x, (0, 1))
        return x @ table.T / self.dim**0.5


class Learner:
    """Adam with clipping, warm-up and averaged weights; a gradient that is not finite changes nothing."""

    def __init__(self, rate: float = 1e-2, ema: float = 0.9, clip: float = 1.0) -> None:
        self.rate, self.ema, self.clip = rate, ema, clip
        self.rule = optax.scale_by_adam(0.9, 0.99)

    def prepare(self, params_axes: Any) -> None:
        pass

    def init(self, params: Any) -> Any:
        return {"adam": self.rule.init(params), "ema": params}

    def update(self, grads: Any, opt_state: Any, params: Any, *, step: Any) -> Any:
        norm = optax.tree.norm(grads)
        valid, scale = jnp.isfinite(norm), jnp.minimum(1.0, self.clip / (norm + 1e-9))
        updates, adam = self.rule.update(jax.tree.map(lambda grad: grad * scale, grads), opt_state["adam"])
        rate = self.rate * jnp.minimum(1.0, (step + 1) / 10)
        new = jax.tree.map(lambda weight, update: weight - rate * update, params, updates)
        ema = jax.tree.map(lambda kept, weight: self.ema * kept + (1 - self.ema) * weight, opt_state["ema"], new)
        found = (new, {"adam": adam, "ema": ema})
        kept = jax.tree.map(lambda after, before: jnp.where(valid, after, before), found, (params, opt_state))
        facts = {"grad_norm": norm, "clipped": scale < 1, "learning_rate": rate, "is_valid_step": valid}
        return *kept, facts | {"grad_scale": scale}

    def averaged(self, opt_state: Any) -> Any:
        return opt_state["ema"]

    def partition(self, shapes: Any, axes: Any) -> Any:
        return {"adam": optax.ScaleByAdamState(P(), axes, axes), "ema": axes}


class Task:
    def __init__(self, model: Model | None = None, learner: Learner | None = None) -> None:
        self.model, self.learner = model or Model(), learner or Learner()

    def init(self, key: Any, batch: Any) -> Any:
        return self.model.init(key, batch["ids"])

    def train_loss(self, variables: Any, batch: Any, key: Any) -> Any:
        logits, changed = self.model.apply(
            variables, batch["ids"], train=True, rngs={"dropout": key}, mutable=["non_trainable"]
        )
        loss, hits, count = self._sums(logits, batch)
        metrics = {"accuracy": (hits, count), "count": (7 * count, count)}
        return loss, count, Outputs(metrics, changed["non_trainable"], {"logits/largest": jnp.max(logits)})

    def _sums(self, logits: Any, batch: Any) -> Any:
        weights = batch["weights"]
        xent = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
        hits = (jnp.argmax(logits, -1) == batch["labels"]) * weights
        return jnp.sum(xent * weights), jnp.sum(hits), jnp.sum(weights)

    def eval_metrics(self, variables: Any, batch: Any) -> Any:
        logits = self.model.apply(variables, batch["ids"])
        loss, hits, count = self._sums(logits, batch)
        best = jnp.argmax(logits, -1)
        return {"loss": (loss, count), "accuracy": (hits, count)}, {"best": best}, {}

    def predict(self, variables: Any, batch: Any) -> Any:
        return {"logits": self.model.apply(variables, batch["ids"])}

    def decode(self, variables: Any, batch: Any, key: Any) -> Any:
        logits = self.model.apply(variables, batch["ids"])[:, -1]
        return {"count": jnp.float32(len(logits))}, {"next": jax.random.categorical(key, logits)}, {}


def batch_of(step: int, rows: int = ROWS, length: int = LENGTH) -> dict[str, np.ndarray[Any, Any]]:
    """Return learnable rows (each token follows from the previous one), some of them shortened."""
    dice = np.random.default_rng(step)
    ids = np.zeros((rows, length + 1), np.int32)
    ids[:, 0] = dice.integers(0, VOCAB, rows)
    for position in range(length):
        ids[:, position + 1] = (ids[:, position] * 5 + 3) % VOCAB
    weights = (np.arange(length) < dice.integers(2, length + 1, rows)[:, None]).astype(np.float32)
    return {"ids": ids[:, :-1], "labels": ids[:, 1:], "weights": weights, "paddings": 1.0 - weights}


def spec_of(batch: Any) -> Any:
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype), batch)


SPEC = spec_of(batch_of(0))


def train(engine: Any, steps: int, state: Any = None, start: int = 0, parts: int = 1) -> tuple[Any, list[float]]:
    """Train; return the state and the losses of all updates, fetched at the end."""
    state = engine.start(7) if state is None else state
    facts = []
    for step in range(start, start + steps):
        batch = batch_of(step)
        size = ROWS // parts
        group = [{name: rows[at : at + size] for name, rows in batch.items()} for at in range(0, ROWS, size)]
        state, found = engine.update(state, group)
        facts.append(found)
    numbers = [engine.facts_to_host(found) for found in facts]
    return state, [each["loss_sum"] / each["count"] for each in numbers]
