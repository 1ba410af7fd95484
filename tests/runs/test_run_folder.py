import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

from xdpx.runs import run_folder, side_files
from xdpx.tokenizers.base import TAKEN
from xdpx.training.status import Status, read_status, trouble_of_status
from xdpx.utils import commit


def finished(folder: Path) -> Path:
    folder.mkdir()
    Status("finished", 10, 10, "abc", best_score=0.5, reason="reached step 10").write(str(folder))
    return folder


def test_what_is_in_a_folder_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".lease").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for name in ("args.py", "meta.hjson", "vocab.txt"):
        (tmp_path / "data" / name).touch()
    (tmp_path / "file").touch()
    found = {name: run_folder.content(str(tmp_path / name)) for name in ("absent", "empty", "data", "file")}
    assert found == {"absent": "nothing", "empty": "nothing", "data": "something else", "file": "something else"}
    assert run_folder.content(str(finished(tmp_path / "run"))) == "run"


def test_clearing_takes_a_run_away_and_nothing_else(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    (run / "plots").mkdir()
    for name in ("checkpoint-5.pt", "checkpoint-5.manifest.json", "log.txt", "plots/loss.png", "notes.md", "my.pt"):
        (run / name).touch()
    assert run_folder.clear(str(run), but=("status.json",)) == ["my.pt", "notes.md"]
    assert sorted(path.name for path in run.iterdir()) == ["my.pt", "notes.md", "status.json"]


@pytest.mark.parametrize("name", run_folder.FOLDERS)
def test_a_run_that_continues_keeps_its_folders(tmp_path: Path, name: str) -> None:
    page = finished(tmp_path / "run") / name / "page.html"
    page.parent.mkdir()
    page.touch()
    side_files.mend(str(tmp_path / "run"))
    assert page.exists()


def test_a_suffix_is_added_only_when_there_is_something(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert next(run_folder.with_suffix(str(path))) == str(path)
    finished(path)
    (tmp_path / "run-1").mkdir()
    assert next(run_folder.with_suffix(f"{path}/")) == f"{path}-2"


def test_a_status_comes_back_as_it_was_and_a_damaged_one_counts_as_none(tmp_path: Path) -> None:
    status = Status("preempted", 3, 10, "abc", train_steps=0.5, reason="SIGTERM")
    status.write(str(tmp_path))
    assert read_status(str(tmp_path)) == status
    facts = json.loads((tmp_path / "status.json").read_text())
    (tmp_path / "status.json").write_text(json.dumps({**facts, "of_a_later_version": [1]}))
    assert read_status(str(tmp_path)) == status
    assert not trouble_of_status(str(tmp_path / "status.json"))
    (tmp_path / "status.json").write_text('{"status": "fin')
    assert read_status(str(tmp_path)) is None


@pytest.mark.parametrize("found", ["run", "something else"])
def test_an_occupied_folder_is_refused_with_a_way_out(found: run_folder.Content) -> None:
    text = str(run_folder.occupied("out/run", found))
    assert "out/run" in text
    assert ("overwrite: true" in text) == (found == "run")


def test_pages_of_scores_go_with_the_run_that_they_are_of(tmp_path):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "checkpoint-5-dev.html").write_text("<!doctype html>")
    assert run_folder.clear(str(tmp_path)) == []
    assert not (tmp_path / "eval").exists()


def test_files_of_a_users_own_tokenizer_travel_with_the_run_and_are_its_own(tmp_path: Path) -> None:
    data, run = tmp_path / "data", finished(tmp_path / "run")
    data.mkdir()
    for name in ("args.py", "vocab.txt", "rules.json"):
        (data / name).write_text("{}")
    commit.seal(data, "resources", ["args.py", "vocab.txt", "rules.json"])
    side_files.seal(str(run), side_files.keep(str(run), str(data)))
    assert {"vocab.txt", "rules.json", "prepro.args.py"} <= run_folder.listed(str(run))
    assert run_folder.clear(str(run)) == []
    assert not (run / "rules.json").exists()


def test_what_a_run_writes_is_taken_for_files_of_tokenizers() -> None:
    free = [name for name in run_folder.OWN if not any(fnmatch(name, pattern) for pattern in TAKEN)]
    assert free == ["tokenizer.json"]
