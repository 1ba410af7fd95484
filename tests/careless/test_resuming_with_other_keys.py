"""Whoever types a new value and resumes gets it, or is told before anything is touched that it cannot be."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.careless.two_classes import prepare, rows, train
from tests.tiers import some
from xdpx import TrainerCallback
from xdpx.config.loading import resolve
from xdpx.config.stored_args import read_args
from xdpx.runs.changed_keys import changes, in_its_own_unit, lasting
from xdpx.trainer.files.state import ExportableState
from xdpx.trainer.hooks import callbacks

ADAM = {"weight_decay": 0.1, "adam_betas": [0.9, 0.99], "lr_scheduler": "one_cycle", "warmup_steps": 0.25,
        "cycle_momentum": True, "clip_norm": 0.2, "dropout": 0.3, "resume": "auto", "save_interval": 3}  # fmt: skip
BASES = {"plain": ADAM, "ema": {**ADAM, "ema_decay": 0.9}, "swa": {**ADAM, "swa_start": 2}}
DONE = 6

TAKES_EFFECT = {
    "learning_rate": 0.1, "weight_decay": 0.9, "adam_eps": 0.1, "adam_betas": [0.9, 0.5], "div_factor": 2.0,
    "cycle_momentum": False, "warmup_steps": 0.9, "clip_norm": 0.001, "max_epoch": 3, "batch_size": 8,
    "update_freq": 2, "seed": 7, "dropout": 0.0, "bf16": True, "use_r_dropout": True, "class_weights": [1.0, 9.0],
    "fix_embeddings": True, "batch_by_len": True,
}  # fmt: skip
"""One of each class of keys that move weights: each gives other weights than without it."""
BY_DAY = ("weight_decay", "adam_betas", "warmup_steps", "clip_norm", "batch_size", "seed", "dropout", "fix_embeddings")

REFUSED = [
    ("plain", {"optimizer": "lamb"}, "is Lamb here, but Adam in the checkpoint"),
    ("plain", {"hidden_size": 12}, "has other sizes"),
    ("plain", {"lazy_load": True}, "was False, and is True now, but it decides what an epoch is"),
    (
        "plain",
        {"pretrained_model": "{here}/copy0/checkpoint-6.pt"},
        "it is read when a run starts; this one has started",
    ),
    ("plain", {"ema_decay": 0.9}, "is 0.9, but the checkpoint has no averaged weights"),
    ("ema", {"ema_decay": 1.0}, "is 1.0, but the checkpoint has averaged weights"),
    ("swa", {"swa_interval": 2}, "has begun with update 2"),
    ("swa", {"swa_start": None, "ema_decay": 0.9}, "what the checkpoint averages is SWA from update 2"),
    ("plain", {"loss_unit": "bits"}, "was 'nats', and is 'bits' now, but it is the unit of the logs"),
    ("plain", {"max_epoch": 1}, "no updates are left: the run is at step 6 of 6"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("changed"))


@pytest.fixture(scope="module")
def begun(data, tmp_path_factory):
    """Runs that stand at update 6 of 12, one of each base."""
    folder = tmp_path_factory.mktemp("begun")
    for name, keys in BASES.items():
        assert train(data, folder / name, train_steps=DONE, **keys) == 0
    return folder


@pytest.fixture
def resume(data, begun, tmp_path):
    """Resume a copy of a base with other keys; return its exit code and folder."""

    def go(base="plain", **keys):
        copy = tmp_path / f"copy{len(list(tmp_path.iterdir()))}"
        shutil.copytree(begun / base, copy)
        return train(data, copy, **{**BASES[base], **keys}), copy

    return go


def weights(folder):
    return torch.load(max(folder.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.split("-")[1])))


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def unchanged(data, begun, tmp_path_factory):
    copy = tmp_path_factory.mktemp("unchanged") / "run"
    shutil.copytree(begun / "plain", copy)
    assert train(data, copy, **ADAM) == 0
    return copy


def test_nothing_changed_is_one_training(data, unchanged, tmp_path):
    assert train(data, tmp_path / "whole", **ADAM) == 0
    assert same(weights(tmp_path / "whole"), weights(unchanged))


@pytest.mark.parametrize("key", some(TAKES_EFFECT, BY_DAY))
def test_a_key_that_moves_weights_takes_effect(resume, unchanged, capfd, key):
    code, folder = resume(**{key: TAKES_EFFECT[key]})
    assert code == 0
    assert f"+- {key}: " in capfd.readouterr().err
    assert not same(weights(folder), weights(unchanged))


def test_the_learning_rate_is_the_one_that_was_typed(resume, unchanged):
    _, folder = resume(learning_rate=0.1)
    new, old = rows(folder), rows(unchanged)
    assert all(float(new[step]["lr"]) == pytest.approx(float(old[step]["lr"])) for step in range(1, DONE + 1))
    assert all(float(new[step]["lr"]) == pytest.approx(10 * float(old[step]["lr"])) for step in range(DONE + 1, 13))


@pytest.mark.parametrize(
    ("keys", "until"), [({"batch_size": 8}, 6 + 12), ({"update_freq": 2}, 6 + 3), ({"max_epoch": 4}, 24)]
)
def test_what_is_left_of_the_epochs_is_counted_as_it_is_cut_now(resume, keys, until):
    assert max(rows(resume(**keys)[1])) == until


def test_another_schedule_takes_effect(resume):
    _, folder = resume(lr_scheduler="constant", warmup_steps=None, cycle_momentum=None)
    assert {float(row["lr"]) for step, row in rows(folder).items() if step > DONE} == {0.01}


def test_how_fast_the_average_moves_takes_effect(resume):
    (_, slow), (_, fast) = resume("ema"), resume("ema", ema_decay=0.1)
    assert not same(weights(slow), weights(fast))


def test_a_beta_that_the_schedule_moved_goes_back_when_it_moves_no_more(resume):
    _, folder = resume(cycle_momentum=False)
    state = torch.load(folder / "checkpoint-12.pts", weights_only=True)
    assert state["engine"]["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.99)


def test_when_to_log_to_score_and_to_save_takes_effect(resume):
    _, folder = resume(log_interval=4, eval_interval=5, save_interval=2)
    assert sorted(rows(folder)) == [*range(1, DONE + 1), 8, 12]
    assert sorted(rows(folder, "valid.log.tsv")) == [6, 10, 12]


def test_a_new_limit_stops_the_run(resume, capfd):
    assert resume(min_lr=0.005)[0] == 0
    assert "reached min_lr 0.005" in capfd.readouterr().err


@pytest.mark.parametrize("keys", [{"major_metric": "loss", "ascending_metric": False}, {"max_eval_steps": 1}])
def test_scores_that_mean_something_else_are_not_compared(resume, capfd, keys):
    """Else no loss is ever "better" than the accuracy of before, and the weights of before stay the best."""
    code, folder = resume(save_best_only=True, **keys)
    assert code == 0
    assert "scores cannot be compared, so the best score is reset" in capfd.readouterr().err
    assert (
        rows(folder, "valid.log.tsv")[12]["best_score"]
        == rows(folder, "valid.log.tsv")[12][f"valid_{keys.get('major_metric', 'acc')}"]
    )
    assert [path.name for path in folder.glob("checkpoint-*.pt")] == ["checkpoint-12.pt"]


def test_metrics_that_are_logged_besides_do_not_reset_the_best_score(resume, capfd):
    code, folder = resume(metrics=["mcc"])
    assert code == 0
    assert "the best score is reset" not in capfd.readouterr().err
    found = rows(folder, "valid.log.tsv")
    assert found[12]["best_score"] == max(row["valid_acc"] for row in found.values())


@pytest.mark.parametrize(("base", "keys", "told"), REFUSED)
def test_what_cannot_take_effect_is_refused_and_nothing_is_touched(resume, begun, capfd, tmp_path, base, keys, told):
    keys = {key: value.format(here=tmp_path) if isinstance(value, str) else value for key, value in keys.items()}
    code, folder = resume(base, **keys)
    assert code == 2
    error = capfd.readouterr().err
    assert told in error
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == {
        path.name: path.read_bytes() for path in (begun / base).iterdir() if path.is_file()
    }


def test_data_whose_numbers_mean_other_words_is_refused(resume, tmp_path, capfd):
    other = prepare(tmp_path / "other", seed=5)
    code, _ = resume(data_dir=str(other), __parent__=f"{other}/meta")
    assert code == 2
    assert "whose vocab.txt differs from that of this run" in capfd.readouterr().err


def test_a_key_without_effect_is_said_to_have_none(resume, capfd):
    assert resume(empty_cache_freq=3)[0] == 0
    assert "+- empty_cache_freq: 0 -> 3 (has no effect)" in capfd.readouterr().err


def test_a_change_is_measured_against_the_state_that_is_used_not_against_a_stretch_that_failed(resume, data, capfd):
    """The first attempt wrote the new value down, and died before it saved anything."""
    _, folder = resume(
        learning_rate=0.1, major_metric="loss", ascending_metric=False, train_steps=1, save_interval=None
    )
    for left in (*folder.glob("checkpoint-7*"), *folder.glob("checkpoint-9*"), *folder.glob("checkpoint-12*")):
        left.unlink()
    facts = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**facts, "status": "failed", "step": 6}))
    capfd.readouterr()
    assert train(data, folder, **{**ADAM, "learning_rate": 0.1, "major_metric": "loss", "ascending_metric": False}) == 0
    assert "the best score is reset" in capfd.readouterr().err


class Patient(TrainerCallback, ExportableState):
    """Stops after so many updates; counts over resumes."""

    def __init__(self, patience=100):
        self.patience, self.seen = patience, 0

    def on_step_end(self, args, state, control, **_):
        self.seen += 1
        control.should_training_stop = self.seen >= self.patience

    def state(self):
        return {"args": {"patience": self.patience}, "attributes": {"seen": self.seen}}


def test_the_arguments_of_a_callback_are_those_of_the_config_and_what_it_counts_is_that_of_the_run(
    data, tmp_path, monkeypatch
):
    monkeypatch.setitem(callbacks._loaded, "patient", Patient)
    keys = {**ADAM, "callbacks": [{"patient": {"patience": 100}}]}
    assert train(data, tmp_path / "run", train_steps=DONE, **keys) == 0
    assert train(data, tmp_path / "run", **{**keys, "callbacks": [{"patient": {"patience": DONE + 2}}]}) == 0
    assert max(rows(tmp_path / "run")) == DONE + 2


@pytest.mark.parametrize("optim", ["sgd", "adafactor", "rmsprop"])
def test_a_trainer_says_that_the_state_is_of_another_optimizer(tmp_path, optim):
    from tests.careless.test_weights_that_are_not_finite import trainer

    trainer(tmp_path / "run", poisoned=False, max_steps=2).train()
    with pytest.raises(ValueError, match="it belongs to another optimizer. Resume with the original `optim`"):
        trainer(tmp_path / "run", poisoned=False, optim=optim).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(("key", "value"), [("learning_rate", 0.5), ("weight_decay", 0.9), ("adam_beta1", 0.5)])
def test_a_trainer_does_what_its_warning_says_with_each_choice(tmp_path, caplog, key, value):
    from tests.careless.test_weights_that_are_not_finite import trainer

    begun = {"poisoned": False, "weight_decay": 0.1, "save_total_limit": None}
    trainer(tmp_path / "run", **begun).train()
    path, found = str(tmp_path / "run/checkpoint-3"), {}
    for choice, words in (("saved", "stay as they were"), ("given", "so do learning rate, weight decay and betas")):
        for keys in ({}, {key: value}):
            again = trainer(tmp_path / "other", **{**begun, **keys}, resume_hyperparameters=choice, save_strategy="no")
            caplog.clear()
            again.train(resume_from_checkpoint=path)
            assert any(words in record.message for record in caplog.records) or not keys
            found[choice, bool(keys)] = again.model.line.weight.detach().clone()
    assert torch.equal(found["saved", False], found["saved", True])
    assert not torch.equal(found["given", False], found["given", True])


def test_a_job_of_x_exp_takes_what_is_typed_and_says_so(tmp_path, caplog):
    import numpy as np

    from tests.experiments.running import tiny
    from xdpx.config.faults import ConfigError
    from xdpx.experiments.running import run

    def go(folder, **fields):
        kept = {"EVAL": 0, "SAVE": 1, "KEEP": None}
        return run(tiny.Tiny(**kept, **fields), job_log_dir=str(folder), plots=False, enable_summary_writer=False)

    assert go(tmp_path / "job", STEPS=1) == 0
    shutil.copytree(tmp_path / "job", tmp_path / "other")
    with pytest.raises(ConfigError, match="is only read when a job starts; this one has started"):
        go(tmp_path / "other", STEPS=2, INIT={str(tmp_path / "job"): {"load_rules": [["(.*)", "{}"]]}})
    assert go(tmp_path / "job", STEPS=2) == 0
    caplog.clear()
    assert go(tmp_path / "other", STEPS=2, RATE=0.5) == 0
    told = [record.message for record in caplog.records if "has changed, and applies" in record.message]
    assert any("+- task.train.learner.optimizer.learning_rate: '0.01' -> '0.5'" in line for line in told)
    same, other = (tiny.state_of(str(tmp_path / name), 2) for name in ("job", "other"))
    assert any(not np.array_equal(same[name], other[name]) for name in same if name.startswith("params"))


def test_a_run_that_began_in_bits_goes_on_in_bits(begun, tmp_path):
    values = read_args(str(begun / "plain" / "args.py"))
    run = resolve(values, "x-train", source="test", strict=False, paths=False)
    assert in_its_own_unit(run, str(begun / "plain")).values["loss_unit"] == "nats"
    old = {key: value for key, value in values.items() if key != "loss_unit"}
    (tmp_path / "args.py").write_text(repr(old))
    mine = in_its_own_unit(run, str(tmp_path))
    assert mine.values["loss_unit"] == "bits"
    assert "loss_unit" not in changes(mine, {"values": lasting(old)}, str(tmp_path))
    assert "loss_unit" in changes(run, {"values": lasting(old)}, str(tmp_path))
