import json
import os

from xdpx.board.finding import runs_below, runs_in
from xdpx.board.logs import borders_of, read_rows
from xdpx.board.summary import summary_of


def test_runs_of_every_door_are_found_and_nothing_else(root):
    found = {os.path.relpath(run.path, root): run.door for run in runs_below(str(root))}
    assert found == {
        "sweep/run0": "x-train", "sweep/run1": "x-train", "sweep/run2": "x-train", "中文/实验": "x-train",
        "hf": "Trainer", "<script>alert(1)": "x-exp", "damaged": "x-train",
    }  # fmt: skip
    assert runs_in(f"{root}/sweep/*") == [str(root / f"sweep/run{number}") for number in range(3)]
    assert len(runs_in(f"{root}/**/*")) == 7


def summaries(root):
    return {os.path.relpath(run.path, root): summary_of(run, str(root)) for run in runs_below(str(root))}


def test_the_row_of_a_run_tells_how_it_stands(root):
    row = summaries(root)["sweep/run1"]
    assert (row.name, row.state, row.step, row.total, row.epoch) == ("sweep/run1", "finished", 400, 500, 4)
    assert (row.metric, row.ascending, row.samples) == ("acc", True, 64)
    assert row.score == 0.89
    assert row.settings["dropout"] == "0.1"
    assert row.last[row.valid.index("valid_loss")] == 1 - (0.5 + 0.4 * (1 - 100 / 300) - 0.01)


def test_a_run_that_was_resumed_with_another_batch_size_keeps_the_samples_of_its_steps_before(root):
    assert summaries(root)["sweep/run0"].paces == [[0, 32]]
    for step, size in (100, 20), (1000, 30):
        (root / f"sweep/run0/args.resume-{step}.py").write_text(f"{{\n    'batch_size*': {size},\n}}\n")
    row = summaries(root)["sweep/run0"]
    assert (row.samples, row.paces) == (30, [[0, 32], [100, 20], [1000, 30]])
    (root / "sweep/run0/args.resume-100.py").write_bytes(b"\xff\x00{")
    assert summaries(root)["sweep/run0"].paces == [[0, 30]]


def test_the_row_of_a_trainer_comes_from_its_newest_checkpoint(root):
    row = summaries(root)["hf"]
    assert (row.score, row.metric, row.samples, row.total, row.step) == (0.8, "accuracy", 16, 40, 40)
    assert {"valid_accuracy", "valid_loss"} <= set(row.valid)
    assert {"loss", "lr"} <= set(row.train)


def test_the_samples_of_a_trainer_are_those_of_all_its_processes(root):
    progress = root / "hf/checkpoint-20/progress.json"
    for told, samples in ('{"samples_per_batch": 64}', 128), ('{"samples_per_batch": null}', 16), ("{", 16), ("[]", 16):
        progress.write_text(told)
        row = summaries(root)["hf"]
        assert (row.samples, row.paces) == (samples, [[0, samples]])


def test_half_written_and_damaged_files_are_told_and_hide_nothing(root):
    rows = summaries(root)
    assert rows["<script>alert(1)"].score == 1.5
    assert "train.log.tsv is damaged" in rows["damaged"].trouble
    assert rows["damaged"].settings == {}


def test_a_run_that_says_it_runs_but_has_long_been_quiet_is_silent(root):
    from tests.board.conftest import write_run

    write_run(root / "quiet", 4, status="running")
    assert summaries(root)["quiet"].state == "running"
    for name in (root / "quiet").iterdir():
        os.utime(name, (1, 1))
    assert summaries(root)["quiet"].state == "silent"


def test_rows_of_every_door_are_read_by_the_same_names(root):
    runs = {os.path.relpath(run.path, root): run for run in runs_below(str(root))}
    table = read_rows(runs["sweep/run0"], "train", ["loss"], "", root=str(root))
    state = read_rows(runs["hf"], "train", ["loss"], "", root=str(root))
    assert table is not None
    assert state is not None
    assert len(table.columns["loss"]) == len(state.columns["loss"]) == 40
    assert read_rows(runs["hf"], "train", ["loss"], state.at, root=str(root)) is None
    assert borders_of(runs["sweep/run0"], str(root)) == [100, 200, 300]
    assert borders_of(runs["damaged"], str(root)) == []


def test_a_log_that_is_a_link_out_of_the_folder_is_not_read(root, tmp_path):
    secret = tmp_path / "secret.tsv"
    secret.write_text("epoch\tstep\tloss\n1\t1\t1\n")
    (root / "thief").mkdir()
    (root / "thief" / "train.log.tsv").symlink_to(secret)
    [run] = [run for run in runs_below(str(root)) if run.path.endswith("thief")]
    assert read_rows(run, "train", ["loss"], "", root=str(root)) is None
    assert "link" in summary_of(run, str(root)).trouble


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(root):
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "valid.log.tsv")
    [run] = [run for run in runs_below(str(root)) if run.path.endswith("pipe")]
    assert "not a plain file" in summary_of(run, str(root)).trouble


def test_a_trainer_that_has_saved_nothing_yet_is_seen_by_its_lines(root):
    (root / "young").mkdir()
    lines = [
        {"phase": "train", "step": 5, "loss": 2.0, "learning_rate": 0.1, "epoch": 0.5},
        {"phase": "valid", "step": 10, "eval_loss": 1.5, "epoch": 1.0},
    ]
    (root / "young" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"phase"')
    row = summaries(root)["young"]
    assert (row.door, row.step, row.score, row.train, row.valid) == (
        "Trainer", 10, 1.5, ["epoch", "step", "loss", "lr"], ["epoch", "step", "valid_loss"],
    )  # fmt: skip
