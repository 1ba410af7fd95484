from pathlib import Path

import pytest

from xdpx.commands.script import main
from xdpx.utils import commit

SCORES = {10: 0.5, 20: 0.9, 30: 0.7, 40: 0.6, 50: 0.55}


@pytest.fixture
def make_run(tmp_path):
    """A run of five evaluations with the weights of all and the full states of some."""

    def make(name="run", *, states=(), ascending=True, weights=tuple(SCORES)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "args.py").write_text(repr({"major_metric": "loss", "ascending_metric": ascending}))
        best = max if ascending else min
        rows = [
            f"1\t{step}\t{score}\t{best(value for key, value in SCORES.items() if key <= step)}\n"
            for step, score in SCORES.items()
        ]
        (folder / "valid.log.tsv").write_text("epoch\tstep\tvalid_loss\tbest_score\n" + "".join(rows))
        for step in weights:
            save(folder, f"checkpoint-{step}", f"checkpoint-{step}.pt")
        for step in states:
            save(folder, f"checkpoint-{step}.pts", f"checkpoint-{step}.pts")
        (folder / "embeddings.pt").write_text("not a checkpoint")
        (folder / "checkpoint-notes.pt.txt").write_text("not a checkpoint")
        return folder

    return make


def save(folder, name, file_name):
    with commit.Commit(folder, name) as opened, opened.open(file_name) as target:
        target.write(b"weights " * 100)


def checkpoints(folder):
    return {path.name for path in folder.iterdir() if path.suffix in {".pt", ".pts"}} - {"embeddings.pt"}


def test_best_and_last_stay_and_no_other_kind_of_file_goes(make_run, capsys):
    run = make_run()
    assert main(["clean_checkpoints", str(run)]) == 0
    assert checkpoints(run) == {"checkpoint-20.pt", "checkpoint-50.pt"}
    assert (run / "embeddings.pt").exists()
    assert (run / "checkpoint-notes.pt.txt").exists()
    assert not commit.problems(run, "checkpoint-20", hashes=True)
    assert commit.manifests(run) == ["checkpoint-20", "checkpoint-50"]
    assert "freed 2.3 KiB in 1 run" in capsys.readouterr().out


def test_lower_is_better_where_the_run_said_so(make_run):
    run = make_run(ascending=False)
    main(["clean_checkpoints", str(run)])
    assert checkpoints(run) == {"checkpoint-10.pt", "checkpoint-50.pt"}


def test_the_two_newest_full_states_stay_with_their_weights(make_run):
    run = make_run(states=(10, 20, 30, 40))
    main(["clean_checkpoints", str(run)])
    states = {"checkpoint-30.pts", "checkpoint-40.pts"}
    assert checkpoints(run) == {f"checkpoint-{step}.pt" for step in (20, 30, 40, 50)} | states


def test_dry_deletes_nothing_and_says_what_would_go(make_run, capsys):
    run = make_run()
    before = {path: path.read_bytes() for path in run.iterdir()}
    assert main(["clean_checkpoints", str(run), "--dry"]) == 0
    assert {path: path.read_bytes() for path in run.iterdir()} == before
    assert "would delete checkpoint-10.pt" in capsys.readouterr().out


def test_a_run_in_use_is_left_alone(make_run, capsys):
    run = make_run()
    with commit.Lease(run):
        main(["clean_checkpoints", str(run)])
    assert len(checkpoints(run)) == 5
    assert "left alone, it is in use" in capsys.readouterr().out


def test_nothing_goes_where_the_best_cannot_be_told(make_run, capsys):
    run = make_run()
    (run / "valid.log.tsv").unlink()
    main(["clean_checkpoints", str(run)])
    assert len(checkpoints(run)) == 5
    assert "the best one is not known" in capsys.readouterr().out


def test_nothing_goes_while_what_would_be_kept_is_damaged(make_run, capsys):
    run = make_run()
    (run / "checkpoint-20.pt").write_bytes(b"weights " * 99 + b"WEIGHTS ")
    main(["clean_checkpoints", str(run)])
    assert len(checkpoints(run)) == 5
    assert "incomplete or damaged" in capsys.readouterr().out


def test_the_best_of_what_was_saved_stays_where_the_best_was_not_saved(make_run):
    run = make_run(weights=(30, 40, 50))
    main(["clean_checkpoints", str(run)])
    assert checkpoints(run) == {"checkpoint-30.pt", "checkpoint-50.pt"}


def test_checkpoints_without_a_manifest_are_not_taken_for_whole(make_run):
    run = make_run()
    for path in run.glob("*.manifest.json"):
        path.unlink()
    main(["clean_checkpoints", str(run)])
    assert len(checkpoints(run)) == 5


def test_keywords_choose_runs_and_no_run_is_exit_code_1(make_run, tmp_path):
    first, second = make_run("first"), make_run("second")
    main(["clean_checkpoints", str(tmp_path), "-first"])
    assert (len(checkpoints(first)), len(checkpoints(second))) == (2, 5)
    assert main(["clean_checkpoints", str(tmp_path), "-third"]) == 1
    with pytest.raises(FileNotFoundError):
        main(["clean_checkpoints", str(Path(tmp_path, "nowhere"))])
