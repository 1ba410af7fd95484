from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from xdpx.reports.run_logs import read_run
from xdpx.reports.trackers.tables import RunTables
from xdpx.utils.local_files import LocalFiles


def args_of(folder, **more):
    plain = {"output_dir": str(folder), "train_batch_size": 4, "world_size": 2, "gradient_accumulation_steps": 3}
    plain |= {"learning_rate": 0.1, "logging_steps": 2, "seed": 7, "max_grad_norm": 1.0}
    return SimpleNamespace(**plain, **{"metric_for_best_model": "acc", "greater_is_better": True, **more})


def state_at(step, *, first=True):
    return SimpleNamespace(is_world_process_zero=first, global_step=step, epoch=step / 4)


class Run:
    """Speaks the events of a training to a tracker."""

    def __init__(self, args, *, start=0, tracker=None):
        self.args, self.tracker = args, tracker or RunTables()
        self.tracker.on_train_begin(args, state_at(start), None)

    def log(self, step, loss, **more):
        logs = {
            "loss": loss,
            "grad_norm": 2.0,
            "learning_rate": 0.1,
            "steps_per_second": 4.0,
            "epoch": step / 4,
            **more,
        }
        self.tracker.on_log(self.args, state_at(step), None, logs=logs)

    def evaluate(self, step, **metrics):
        metrics = {f"eval_{name}": value for name, value in metrics.items()} | {"eval_runtime": 1.0, "epoch": 1.0}
        self.tracker.on_evaluate(self.args, state_at(step), None, metrics=metrics)

    def end(self, step):
        self.tracker.on_train_end(self.args, state_at(step), None)


def cells(table, index):
    return {name: round(value, 6) for name, value in table.row(index).items()}


def test_what_is_logged_stands_in_the_columns_of_x_train(tmp_path):
    run = Run(args_of(tmp_path))
    run.log(2, 0.5, gate=0.25, tokens_per_second=100.0)
    run.log(4, 0.25)
    assert (tmp_path / "train.log.tsv").read_text().splitlines() == [
        "epoch\tstep\tloss\tgnorm\tclip\twps\tups\tgate\tlr",
        "1\t2\t0.5\t2\t1\t100\t4\t0.25\t0.1",
        "1\t4\t0.25\t2\t1\t0\t4\t\t0.1",
    ]


def test_an_evaluation_says_what_training_gave_since_the_one_before(tmp_path):
    run = Run(args_of(tmp_path))
    run.log(2, 0.5)
    run.log(6, 0.2)
    run.evaluate(8, acc=0.75, loss=1.0)
    run.log(10, 0.1)
    run.evaluate(10, acc=0.5, loss=2.0)
    first, second = (cells(read_run(str(tmp_path)).valid, index) for index in (0, 1))
    assert first == {
        "epoch": 2, "step": 8, "ups": 4, "wps": 0, "train_wall": 2, "train_loss": 0.3, "gnorm": 2, "clip": 1,
        "valid_acc": 0.75, "valid_loss": 1, "best_score": 0.75,
    }  # fmt: skip
    assert (second["train_loss"], second["train_wall"], second["best_score"]) == (0.1, 2.5, 0.75)


def test_several_held_out_sets_share_a_row(tmp_path):
    run = Run(args_of(tmp_path, metric_for_best_model="eval_b_acc"))
    run.evaluate(2, a_acc=0.1, a_runtime=3.0)
    run.evaluate(2, b_acc=0.9)
    table = read_run(str(tmp_path)).valid
    assert len(table) == 1
    assert {name: table[name][0] for name in ("valid_a_acc", "valid_b_acc", "best_score")} == {
        "valid_a_acc": 0.1, "valid_b_acc": 0.9, "best_score": 0.9,
    }  # fmt: skip
    assert "valid_a_runtime" not in table


def test_a_resumed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    def walk(run, steps):
        for step in steps:
            run.log(step, 1 / step)
            if step % 4 == 0:
                run.evaluate(step, acc=1 - 1 / step)

    straight, broken = args_of(tmp_path / "straight"), args_of(tmp_path / "broken")
    walk(Run(straight), range(2, 17, 2))
    walk(Run(broken), range(2, 13, 2))
    walk(Run(broken, start=6), range(8, 17, 2))
    for name in ("train.log.tsv", "valid.log.tsv"):
        assert (tmp_path / "straight" / name).read_text() == (tmp_path / "broken" / name).read_text()


def test_a_run_that_begins_anew_leaves_nothing_of_the_one_before(tmp_path):
    run = Run(args_of(tmp_path))
    run.evaluate(0, acc=0.5)
    run.log(2, 0.5)
    Run(args_of(tmp_path)).log(2, 0.25)
    logs = read_run(str(tmp_path))
    assert len(logs.valid) == 0
    assert logs.train["loss"].tolist() == [0.25]


def test_readers_of_the_tables_find_what_they_must_know(tmp_path):
    run = Run(args_of(tmp_path, metric_for_best_model=None, greater_is_better=None))
    run.evaluate(2, loss=2.0)
    run.evaluate(4, loss=1.0)
    logs = read_run(str(tmp_path))
    assert (logs.samples_per_step, logs.ascending, logs.best_row) == (24, False, 1)
    assert logs.major_scores.tolist() == [2.0, 1.0]


def test_what_is_evaluated_outside_of_a_training_is_no_row(tmp_path):
    run = Run(args_of(tmp_path))
    run.end(2)
    run.evaluate(2, acc=1.0)
    assert len(read_run(str(tmp_path)).valid) == 0


def test_only_the_first_process_writes(tmp_path):
    tracker = RunTables(tmp_path / "mine")
    tracker.on_train_begin(args_of(tmp_path), state_at(0, first=False), None)
    tracker.on_log(args_of(tmp_path), state_at(2, first=False), None, logs={"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_remote_folder_holds_them_too():
    run = Run(args_of("memory://tables/run"))
    run.log(2, 0.5)
    run.evaluate(2, acc=0.5)
    run.end(2)
    logs = read_run("memory://tables/run")
    assert (len(logs.train), len(logs.valid)) == (1, 1)


@pytest.mark.parametrize("name", ["args.py", "train.log.tsv"])
def test_a_disk_that_refuses_is_said_once_and_training_goes_on(tmp_path, capsys, monkeypatch, name):
    def refuse(self, path, mode="rb", _open=LocalFiles.open, **text):
        if mode[0] in "wax" and name in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return _open(self, path, mode, **text)

    monkeypatch.setattr(LocalFiles, "open", refuse)
    run = Run(args_of(tmp_path))
    run.log(2, 0.5)
    run.evaluate(2, acc=1.0)
    assert capsys.readouterr().err.count("Nothing more is written to train.log.tsv and valid.log.tsv") == 1


@pytest.mark.parametrize("name", ["args.py", "train.log.tsv", "valid.log.tsv"])
def test_a_folder_in_the_place_of_a_table_is_set_aside_and_the_table_is_written(tmp_path, name):
    (tmp_path / name).mkdir()
    run = Run(args_of(tmp_path))
    run.log(2, 0.5)
    run.evaluate(2, acc=1.0)
    run.end(2)
    logs = read_run(str(tmp_path))
    assert (len(logs.train), len(logs.valid), logs.samples_per_step is None) == (1, 1, False)
    assert (tmp_path / f"{name}.damaged-1").is_dir()
