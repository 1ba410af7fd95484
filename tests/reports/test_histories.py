import numpy as np
import pytest

from xdpx.reports.histories import history_of, records_of, tables_of

HISTORY = [
    {"loss": 2.0, "grad_norm": 1.5, "learning_rate": 1e-4, "epoch": 0.5, "step": 5},
    {"eval_loss": 1.8, "eval_accuracy": 0.5, "eval_runtime": 1.2, "epoch": 1.0, "step": 10},
    {"eval_other_f1": 0.3, "epoch": 1.0, "step": 10},
    {"loss": "nan", "note": "a text", "epoch": 1.5, "step": 15},
    {"train_runtime": 3.0, "train_loss": 1.1, "epoch": 2.0, "step": 20},
]


def test_a_history_becomes_the_two_tables_of_a_run():
    tables = tables_of(HISTORY)
    assert list(tables["train"]) == ["epoch", "step", "loss", "gnorm", "lr"]
    assert tables["train"]["step"].tolist() == [5, 15]
    assert tables["train"]["epoch"].tolist() == [1, 2]
    assert np.isnan(tables["train"]["loss"][1])
    assert tables["valid"]["valid_accuracy"].tolist() == [0.5]
    assert tables["valid"]["valid_other_f1"].tolist() == [0.3]


@pytest.mark.parametrize("epoch", [None, "nan", float("inf"), 10**400, "first"])
def test_a_record_of_no_known_epoch_keeps_its_step_and_its_loss(epoch):
    columns = tables_of([{"step": 5, "epoch": epoch, "loss": 2.0}])["train"]
    assert {name: values.tolist() for name, values in columns.items()} == {"epoch": [1], "step": [5], "loss": [2.0]}


def test_lines_that_tell_their_phase_keep_their_names():
    lines = [
        {"time": "2026", "phase": "train", "step": 5, "epoch": 1, "loss": 2.0, "wps": 9.0},
        {
            "time": "2026",
            "phase": "valid",
            "step": 5,
            "epoch": 1,
            "train_loss": 2.0,
            "valid_acc": 0.5,
            "best_score": 1,
        },
        {"time": "2026", "phase": "valid", "step": 9, "epoch": 1, "eval_acc": 0.6},
    ]
    tables = tables_of(lines)
    assert list(tables["train"]) == ["epoch", "step", "loss", "wps"]
    assert list(tables["valid"]) == ["epoch", "step", "train_loss", "valid_acc", "best_score"]
    assert tables["valid"]["valid_acc"].tolist() == [0.5, 0.6]


def test_what_is_no_record_is_left_out():
    assert records_of('{"step": 1, "loss": 2}\nzork\n[1]\n\n{"step": 2') == [{"step": 1, "loss": 2}]
    assert history_of([1]) == history_of({"log_history": 3}) == []
    assert tables_of([{"step": "x", "loss": 1}, {"loss": 1}, {"step": 1}]) == {"train": {}, "valid": {}}
