"""The JAX half: updates compared with a hand-written script for the same model; data, start-up, plans, saves."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import DATA, REPOSITORY, WORK

STEPS, ROUNDS, WARM_UP = 12, 7, 3
STARTS = 5
SAVES = 4


def measure() -> list[Row]:
    """Compare updates, and time starts, plans and saves."""
    parts = built()
    return [*steps_and_data(parts), *saves(parts), *starts(), plan()]


# ---- an update


def built(**fields: Any) -> Any:
    """Return the parts of an experiment on packed text of sst2, one character per token, on one device.

    Args:
        fields: overrides of the experiment's fields.
    """
    from xdpx.experiments.lm.c4 import C4UnsupervisedDataset
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.parts import build_parts

    class Packed(C4UnsupervisedDataset):
        ICI_MESH_SHAPE = (1, 1, 1)
        TRAIN_DATA = str(DATA / "sst2/train.tsv")
        VOCABULARY = "characters"
        NUM_LAYERS = 4
        MODEL_DIMS = 256
        DIMS_PER_HEAD = 64
        VOCAB_SIZE = 256
        MAX_SEQ_LEN = 256
        PERCORE_BATCH_SIZE = 8
        ACTIVATION = "GELU"
        USE_REPEATED_LAYER = True
        CHECKPOINT_POLICY = "save_everything"
        LR_SCHEDULE = "constant"
        ADAM_CLIP_THRESHOLD = None
        WEIGHT_DECAY = 0.0
        CLIP_GRADIENT_NORM_TO_VALUE = 1.0

    return build_parts(Packed(**fields), options_of(str(WORK / "spmd"), {}))


@dataclass
class Bare:
    """A minimal JAX training: loss, gradient, optax, one jitted step with donated state."""

    model: Any
    state: Any
    step: Callable[..., Any]

    @classmethod
    def of(cls, parts: Any) -> Bare:
        """Return it with the same model and the same weights as `parts`."""
        import jax
        import optax

        learner = parts.task.learner.optimizer.hparams
        optimizer = optax.chain(
            optax.clip_by_global_norm(learner.clip_gradient_norm_to_value),
            optax.adam(learner.learning_rate, b1=learner.beta1, b2=learner.beta2, eps=learner.epsilon),
        )
        model = parts.task.model

        def loss(params: Any, batch: Any) -> Any:
            metrics, _ = model.apply({"params": params}, batch)
            return metrics["total_loss"][0]

        def step(state: Any, batch: Any) -> Any:
            params, kept = state
            value, gradients = jax.value_and_grad(loss)(params, batch)
            moves, kept = optimizer.update(gradients, kept, params)
            return (optax.apply_updates(params, moves), kept), value

        params = parts.engine.start(parts.train.random_seed)["params"]
        return cls(model, (params, optimizer.init(params)), jax.jit(step, donate_argnums=0))

    def train(self, batches: list[Any]) -> list[Any]:
        """Take one update per batch from existing arrays; return the losses, still on the device."""
        import jax

        losses = []
        for batch in batches:
            self.state, value = self.step(self.state, batch)
            losses.append(value)
        jax.block_until_ready((self.state, losses))
        return losses


class Ours:
    """Our loop with our engine, including the data pipeline, whose time is recorded."""

    def __init__(self, parts: Any) -> None:
        from xdpx.experiments.running.feeding import Feed

        self.parts, self.taken, self.data_seconds = parts, 0, 0.0
        self.state = parts.engine.start(parts.train.random_seed)
        self.feed = Feed(parts)
        self.groups = self.feed.groups(0)

    def watched(self) -> Iterator[Any]:
        """Yield the groups, recording how long each took to prepare and to transfer to the device."""
        while True:
            started = time.perf_counter()
            place, group = next(self.groups)
            group = [self.parts.engine.put(batch) for batch in group]
            self.data_seconds += time.perf_counter() - started
            yield place, group

    def train(self, groups: Iterator[Any], steps: int) -> list[Any]:
        """Take `steps` updates and return their facts, still on the device."""
        import jax

        from xdpx.training.loop import take_steps

        facts = []
        for step in take_steps(self.parts.engine, self.state, groups, after=0, until=steps):
            self.state = step.state
            facts.append(step.facts)
        jax.block_until_ready(self.state)
        return facts


def steps_and_data(parts: Any) -> list[Row]:
    """Take updates in turn: ours from text, the bare ones from existing arrays."""
    ours, bare = Ours(parts), Bare.of(parts)
    batches = [batch for _ in range(STEPS) for batch in next(ours.groups)[1]]
    there = [parts.engine.put(batch) for batch in batches]
    same = first_losses(ours, bare, there[:WARM_UP])
    ratios, waits = [], []
    for round_number in range(ROUNDS + 1):
        ours.data_seconds = 0.0
        mine = seconds(lambda: ours.train(ours.watched(), STEPS))
        plain = seconds(lambda: bare.train(there))
        if round_number:  # the first round is a warm-up for both
            ratios.append(plain / mine)
            waits.append(100 * ours.data_seconds / mine)
    what = "packed text of sst2, a decoder of 4 layers, 256 wide, 8 x 256 tokens"
    return [
        Row(f"losses of {WARM_UP} updates beside a hand-written jitted step, largest difference, {what}",
            f"{same:.1e}", "<= 1e-5", same <= 1e-5),
        Row("updates/s from text to weights, over the hand-written step with its arrays there",
            f"{spread(ratios, 3)}x", ">= 0.98x", statistics.median(ratios) >= 0.98),
        Row("share of an update in which the host makes and puts the batch, no thread ahead",
            f"{spread(waits)} %", "< 1 %", statistics.median(waits) < 1),
    ]  # fmt: skip


def first_losses(ours: Ours, bare: Bare, batches: list[Any]) -> float:
    """Return the largest difference of the losses of both, in the first updates on the same batches."""
    facts = ours.train(iter([(None, [batch]) for batch in batches]), len(batches))
    numbers = [ours.parts.engine.facts_to_host(told) for told in facts]
    mine = [told["loss_sum"] / told["count"] for told in numbers]
    return max(abs(float(one) - float(other)) for one, other in zip(mine, bare.train(batches), strict=True))


# ---- saves


def saves(parts: Any) -> list[Row]:
    """Compare how long saving stalls training with a background thread and without."""
    from xdpx.checkpoints import spmd_files

    ours, folder = Ours(parts), WORK / "spmd_saves"
    shutil.rmtree(folder, ignore_errors=True)
    groups = iter(ours.watched())
    waited, held = list[float](), list[float]()
    during, alone = list[float](), list[float]()
    for number in range(2 * SAVES + 2):
        background = bool(number % 2)
        state = ours.state
        call = seconds(lambda: spmd_files.save(state, folder, step=number, background=background))  # noqa: B023
        steps = seconds(lambda: ours.train(groups, STEPS))
        spmd_files.wait()
        if number > 1:  # the first of each kind is a warm-up
            (held if background else waited).append(call)
            (during if background else alone).append(steps)
    shutil.rmtree(folder)
    whole = statistics.median(waited)
    ratio = [value / whole for value in held]
    slower = [value / statistics.median(alone) for value in during]
    return [
        Row(f"how long a save in the background holds up training, over one that is waited for ({spread(waited)} s)",
            f"{spread(ratio)}x", "<= 0.5x", statistics.median(ratio) <= 0.5),
        Row(f"{STEPS} updates while a save is written, over the same alone", f"{spread(slower)}x the time", "no limit",
            True),
    ]  # fmt: skip


# ---- commands


def starts() -> list[Row]:
    """Time commands in fresh processes: those that compute nothing must not import JAX."""
    cases = [
        ("x-exp --help", ["--help"], 0, 0.5),
        ("x-exp --list", ["--list"], 0, 1.0),
        ("x-exp, a misspelt experiment answered", ["--exp=C4Spmd1BAdam4Replica", "--dry"], 2, 1.0),
        ("x-exp --dry, the 1B", ["--exp=C4Spmd1BAdam4Replicas", "--dry"], 0, 15.0),
    ]
    rows = []
    for what, words, code, limit in cases:
        command(words, code=code)
        times = [command(words, code=code)[0] for _ in range(STARTS)]
        rows.append(Row(what, f"{spread(times)} s", f"< {limit} s", statistics.median(times) < limit))
    return rows


def plan() -> Row:
    """Time the plan of the 22B model on 128 imitated chips: lowered and compiled, nothing allocated."""
    times = [command(["--exp=C4Spmd22BAdam2xv4_128", "--plan", "--json"], code=0)[0] for _ in range(3)]
    return Row("x-exp --plan, the 22B on two slices of 64 chips, from start to end of the process",
               f"{spread(times)} s", "< 30 s", statistics.median(times) < 30)  # fmt: skip


def command(words: list[str], *, code: int) -> tuple[float, str]:
    """Run x-exp in a fresh process and return its seconds and output; stop if the exit code is not `code`."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "xdpx.main", *words], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode != code:
        raise SystemExit(f"x-exp {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return time.perf_counter() - started, done.stdout


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
