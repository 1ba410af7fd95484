from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.reports.growing_table import GrowingTable
from xdpx.training.accumulation import Diverged, MetricAccumulator
from xdpx.training.callbacks.evaluating import EVALUATION, Evaluating, EvaluationPlan
from xdpx.training.callbacks.logging import LOG, Logging
from xdpx.training.callbacks.saving import SavePolicy, Saving, restore
from xdpx.training.loop import Callback, Session, Step, Stop, fit
from xdpx.training.progress import Progress


class Interrupt(Callback):
    """Ends the training at a step, as a signal does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Session, step: Step) -> Stop | None:
        return Stop("interrupted", finished=False) if step.number == self.step else None


class Trial:
    """A toy run in a folder, which can be begun, interrupted and resumed."""

    def __init__(self, folder: Path, engine: Any, loss: Any, held_out: Any, groups: Any) -> None:
        self.folder, self.engine, self.loss, self.held_out, self.groups = folder, engine, loss, held_out, groups
        self.checkpointer = Checkpointer(str(folder))

    def callbacks(self, policy: SavePolicy, *, interval: int = 4) -> list[Callback]:
        accumulator = MetricAccumulator(self.engine.facts_to_host, windows=(LOG, EVALUATION))
        tables = [GrowingTable(str(self.folder / f"{name}.log.tsv")) for name in ("train", "valid")]
        logging = Logging(tables[0], accumulator, lambda facts: {}, interval=3)
        plan = EvaluationPlan(interval, "closeness")
        evaluating = Evaluating(
            plan, self.held_out, self.loss, table=tables[1], accumulator=accumulator, metrics=lambda facts: {}
        )
        kept = [logging, evaluating]
        return [
            *kept,
            Saving(
                self.checkpointer, policy, callbacks=kept, accumulator=accumulator, metadata=lambda: {"by": "a test"}
            ),
        ]

    def begin(self, policy: SavePolicy, *, until: int = 14, interrupt: int = 0, interval: int = 4) -> Session:
        session = Session(self.engine, self.engine.start(0), Progress(group_size=8), until, until)
        fit(session, self.groups(), [*self.callbacks(policy, interval=interval), Interrupt(interrupt)])
        return session

    def resume(self, policy: SavePolicy, *, until: int = 14) -> Session:
        callbacks = self.callbacks(policy)
        saved = self.checkpointer.load_state(self.checkpointer.newest_state() or 0)
        restore(saved, callbacks)
        progress = Progress.from_dict(saved["progress"])
        session = Session(self.engine, self.engine.restore(saved["engine"]), progress, until, until)
        fit(session, self.groups((progress.epoch, progress.group)), callbacks)
        return session

    def steps(self) -> tuple[list[int], list[int]]:
        return self.checkpointer.weight_steps(), self.checkpointer.state_steps()

    def log(self, name: str, *, without: tuple[str, ...] = ("ups", "wps", "train_wall")) -> list[list[str]]:
        lines = [line.split("\t") for line in (self.folder / f"{name}.log.tsv").read_text().splitlines()]
        kept = [index for index, column in enumerate(lines[0]) if column not in without]
        return [[line[index] for index in kept] for line in lines]


@pytest.fixture
def trial(tmp_path: Path, engine: Any, loss: Any, held_out: Any, groups: Any) -> Callable[[str], Trial]:
    def make(name: str) -> Trial:
        (tmp_path / name).mkdir()
        return Trial(tmp_path / name, engine, loss, held_out, groups)

    return make


# The toy's score is best at step 8 of its evaluations at 4, 8, 12 and 14 (asserted below).
@pytest.mark.parametrize(("policy", "weights", "states"), [
    (SavePolicy(), [4, 8, 12, 14], []),
    (SavePolicy(best_only=True), [8], []),
    (SavePolicy(last_only=True), [14], []),
    (SavePolicy(best_only=True, last_only=True), [8, 14], []),
    (SavePolicy(above_score=100.0), [], []),
    (SavePolicy(resumable=True), [4, 8, 12, 14], [12, 14]),
    (SavePolicy(resumable=True, every_state=True), [4, 8, 12, 14], [4, 8, 12, 14]),
    (SavePolicy(best_only=True, resumable=True), [8], [12, 14]),
    (SavePolicy(last_only=True, resumable=True, interval=5), [14], [12, 14]),
])  # fmt: skip
def test_each_policy_keeps_what_it_promises(
    trial: Callable[[str], Trial], policy: SavePolicy, weights: list[int], states: list[int]
) -> None:
    run = trial("run")
    session = run.begin(policy)
    assert session.progress.best_step == 8
    assert run.steps() == (weights, states)


@pytest.mark.parametrize("interrupt", [1, 3, 4, 7, 8, 11, 13])
def test_interrupted_anywhere_and_resumed_everything_equals_the_undisturbed_run(
    trial: Callable[[str], Trial], interrupt: int
) -> None:
    policy = SavePolicy(best_only=True, last_only=True, resumable=True)
    straight, broken = trial("straight"), trial("broken")
    whole = straight.begin(policy)
    assert broken.begin(policy, interrupt=interrupt).number == interrupt
    resumed = broken.resume(policy)
    assert resumed.state == whole.state
    assert broken.steps()[0] == straight.steps()[0]
    assert broken.log("train") == straight.log("train")
    assert broken.log("valid") == straight.log("valid")
    ignored = {"train_seconds": 0.0}
    assert {**resumed.progress.as_dict(), **ignored} == {**whole.progress.as_dict(), **ignored}


def test_an_interrupted_run_leaves_a_state_even_when_none_was_asked_for(trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    run.begin(SavePolicy(), interrupt=6)
    assert run.steps() == ([4], [6])


def test_states_between_evaluations_are_saved_at_their_interval(trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    run.begin(SavePolicy(resumable=True, every_state=True, interval=5), until=11, interval=-1)
    assert run.steps() == ([11], [5, 10, 11])


def test_a_state_saved_at_the_last_update_knows_the_final_score(trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    run.begin(SavePolicy(resumable=True, interval=5), until=10, interval=-1)
    assert run.checkpointer.load_state(10)["progress"]["last_eval_step"] == 10
    before = run.log("valid")
    run.resume(SavePolicy(resumable=True, interval=5), until=10)
    assert run.log("valid") == before


def test_when_every_score_is_nan_the_last_weights_are_kept_all_the_same(
    trial: Callable[[str], Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trial("run")
    monkeypatch.setattr(run.loss, "scores", lambda gathered: {"closeness": float("nan")}, raising=False)
    run.begin(SavePolicy(best_only=True))
    assert run.steps() == ([14], [])


def test_weights_that_are_no_numbers_are_never_saved(
    trial: Callable[[str], Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trial("run")
    update = run.engine.update

    def spoilt(state: Any, group: Any) -> Any:
        state, facts = update(state, group)
        return state, {**facts, "loss_sum": float("nan")} if state["weight"] and group[0]["value"][0] > 0.5 else facts

    monkeypatch.setattr(type(run.engine), "update", lambda self, state, group: spoilt(state, group))
    with pytest.raises(Diverged):
        run.begin(SavePolicy(resumable=True, every_state=True, interval=1))
    assert run.steps()[1] == list(range(1, len(run.steps()[1]) + 1))


def test_a_state_of_other_callbacks_is_refused_by_name(trial: Callable[[str], Trial]) -> None:
    run = trial("run")
    run.begin(SavePolicy(resumable=True))
    saved = run.checkpointer.load_state(14)
    saved["callbacks"]["gardening"] = {}
    with pytest.raises(ValueError, match="gardening"):
        restore(saved, run.callbacks(SavePolicy()))
