import shutil

import pytest

from tests.board.conftest import write_run
from xdpx.board import index as index_module
from xdpx.board import kept_rows
from xdpx.board.index import Index


def names(changes):
    return {row["name"] for row in changes.rows}


def test_rows_come_in_pages_and_then_only_those_that_changed(root):
    index = Index(str(root))
    index.refresh()
    first = index.since(0, most=4)
    second = index.since(first.version, most=4)
    assert (len(first.rows), first.more, len(second.rows), second.more, first.total) == (4, True, 3, False, 7)
    assert index.since(second.version).rows == []
    write_run(root / "sweep" / "run9", 9)
    with (root / "sweep" / "run1" / "valid.log.tsv").open("a") as file:
        file.write("5\t450\t10\t1000\t45\t1\t0.9\t0.95\t0.05\t0.95\n")
    index.refresh()
    changed = index.since(second.version)
    assert names(changed) == {"sweep/run1", "sweep/run9"}
    assert 0.95 in [row["score"] for row in changed.rows]


def test_a_run_that_is_gone_is_told_once(root):
    index = Index(str(root))
    index.refresh()
    before = index.since(0)
    shutil.rmtree(root / "sweep" / "run2")
    index.refresh_hot()
    [gone] = index.since(before.version).rows
    assert gone["gone"]
    assert index.find(str(gone["id"])) is None
    assert len(index.since(0).rows) == 6


def test_settings_are_told_as_differences_from_the_first_run_of_a_door(root):
    index = Index(str(root))
    index.refresh()
    changes = index.since(0)
    rows = {row["name"]: row["settings"] for row in changes.rows}
    assert changes.common["x-train"]["update_freq"] == "2"
    assert [row["name"] for row in changes.rows if not row["has_settings"]] == ["<script>alert(1)", "damaged"]
    assert sum("dropout" in settings for settings in rows.values()) == 3
    assert not any("save_dir" in settings or "update_freq" in settings for settings in rows.values())


def test_a_second_start_reads_only_the_runs_that_changed(root, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_rows, "file_of", lambda root: str(tmp_path / "kept" / "rows.json"))
    first = Index(str(root))
    first.refresh()
    read: list[str] = []
    whole = index_module.summary_of
    monkeypatch.setattr(index_module, "summary_of", lambda run, root: read.append(run.path) or whole(run, root))
    with (root / "sweep" / "run1" / "valid.log.tsv").open("a") as file:
        file.write("5\t450\t10\t1000\t45\t1\t0.9\t0.95\t0.05\t0.95\n")
    again = Index(str(root))
    again.refresh()
    fresh, kept = ({row["id"]: row for row in each.since(0).rows} for each in (first, again))
    assert str(root / "sweep" / "run1") in read
    assert len(read) < len(kept)
    same = [row for row in kept.values() if row["name"] != "sweep/run1"]
    assert all(row == fresh[row["id"]] for row in same)
    (tmp_path / "kept" / "rows.json").write_text('{"version": [')
    damaged = Index(str(root))
    damaged.refresh()
    assert len(damaged.since(0).rows) == len(kept)


FINISHED = '{"status": "finished", "step": 5, "fingerprint": "f", "total_steps": '


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"status": ["x"], "step": 5, "total_steps": 9, "fingerprint": "f"}',
        f"{FINISHED}true}}",
        f"{FINISHED}{'9' * 400}}}",
        f'{FINISHED}9, "best_score": {"9" * 400}}}',
        f'{FINISHED}9, "best_score": "0.9"}}',
    ],
)
def test_of_a_run_with_a_foreign_status_the_rest_is_shown(root, text: str) -> None:
    (root / "sweep" / "run0" / "status.json").write_text(text)
    index = Index(str(root))
    index.refresh()
    [row] = [row for row in index.since(0).rows if row["name"] == "sweep/run0"]
    assert (row["state"], row["step"], row["trouble"]) == ("", 400, "status.json is damaged")


@pytest.mark.parametrize(
    "text", ["# x-train a.hjson\n{\n    'batch_size': 8,\n    'learni", "{'deep': " + "[" * 3000 + "}", "8"]
)
def test_a_damaged_args_file_of_a_run_is_named(root, text: str) -> None:
    (root / "sweep" / "run0" / "args.py").write_text(text)
    index = Index(str(root))
    index.refresh()
    rows = {row["name"]: row["trouble"] for row in index.since(0).rows}
    assert rows["sweep/run0"] == "args.py is damaged: it is not the complete dict that x-train writes"
    assert rows["sweep/run1"] == ""
