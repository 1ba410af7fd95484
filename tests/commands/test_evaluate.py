import pytest

from xdpx.config.faults import ConfigError


def scores(capsys):
    header, *rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_raw_file_with_labels_is_scored(finished_run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"))
    row = scores(capsys)[0]
    assert list(row)[:2] == ["checkpoint", "split"]
    assert float(row["acc"]) in {0, 0.25, 0.5, 0.75, 1}
    assert list(row)[2:] == sorted(list(row)[2:])


def test_batches_do_not_change_the_scores(finished_run, capsys):
    for size in (1, 2, 50):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), batch_size=size)
    rows = [float(row["loss"]) for row in scores_of_all(capsys)]
    assert rows == pytest.approx([rows[0]] * 3, abs=1e-6)


def scores_of_all(capsys):
    lines = capsys.readouterr().out.splitlines()
    header = lines[0].split("\t")
    return [dict(zip(header, line.split("\t"), strict=True)) for line in lines if line.split("\t") != header]


def test_a_label_that_training_never_saw_is_named_with_its_file_and_line(finished_run):
    path = finished_run.root / "new.txt"
    path.write_text("good film\tpos\nbad film\tmixed\n")
    with pytest.raises(ConfigError, match=r"new\.txt.*\n.*line 2.*'mixed'"):
        finished_run.perform("x-eval", valid_subset=str(path))


def test_labels_that_training_never_saw_can_count_as_class_0(finished_run, capsys):
    path = finished_run.root / "new.txt"
    path.write_text("good film\tpos\nbad film\tmixed\n")
    finished_run.perform("x-eval", valid_subset=str(path), ignore_novel_target=True)
    (finished_run.root / "same.txt").write_text("good film\tpos\nbad film\tneg\n")
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "same.txt"))
    first, second = scores_of_all(capsys)
    assert first["loss"] == second["loss"]


def test_a_file_without_labels_cannot_be_scored(finished_run):
    with pytest.raises(ConfigError, match="has no labels"):
        finished_run.perform("x-eval", valid_subset=str(finished_run.root / "plain.txt"))


def test_scores_are_added_to_a_file_under_one_header(finished_run, capsys):
    kept = finished_run.root / "scores.tsv"
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "save_to_file": str(kept)}
    finished_run.perform("x-eval", **keys)
    finished_run.perform("x-eval", **keys)
    assert len(kept.read_text().splitlines()) == 3
    finished_run.perform("x-eval", **keys, save_mode="w")
    assert len(kept.read_text().splitlines()) == 2


def test_an_unlabelled_and_an_unknown_input_are_refused_before_the_model_is_built(finished_run):
    with pytest.raises(ConfigError, match="'dve' is neither a split"):
        finished_run.perform("x-eval", valid_subset="dve")


def test_max_eval_steps_counts_batches(finished_run, capsys):
    (finished_run.root / "one.txt").write_text(
        "".join((finished_run.root / "dev.txt").read_text().splitlines(True)[:2])
    )
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), max_eval_steps=99)
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"), max_eval_steps=1)
    whole, part = scores_of_all(capsys)
    assert whole["loss"] != part["loss"]


def test_compare_origin_needs_a_finished_run_and_a_logged_step(finished_run):
    config = finished_run.config("train.hjson", **finished_run.values)
    with pytest.raises(ConfigError, match="compare_origin.*Give its save_dir"):
        finished_run.perform("x-eval", valid_subset="dev", config=config, compare_origin=True)
    weights = finished_run.run / "mine.pt"
    (finished_run.run / "checkpoint-10.pt").rename(weights)
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "compare_origin": True, "checkpoint": str(weights)}
    with pytest.raises(ConfigError, match="has no row for this checkpoint"):
        finished_run.perform("x-eval", **keys)


def test_compare_origin_fails_where_a_score_is_another_one(finished_run, capsys):
    finished_run.perform("x-eval", valid_subset=str(finished_run.root / "dev.txt"))
    row = scores(capsys)[0]
    log = finished_run.run / "valid.log.tsv"
    log.write_text(f"epoch\tstep\tvalid_acc\tvalid_loss\tbest_score\n1\t10\t{row['acc']}\t{row['loss']}\t0.5\n")
    keys = {"valid_subset": str(finished_run.root / "dev.txt"), "compare_origin": True}
    finished_run.perform("x-eval", **keys)
    log.write_text("epoch\tstep\tvalid_acc\tvalid_loss\tbest_score\n1\t10\t0.123\t9\t0.5\n")
    with pytest.raises(SystemExit, match="2 metrics differ"):
        finished_run.perform("x-eval", **keys)
