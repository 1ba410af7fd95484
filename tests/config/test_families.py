"""Shipped families by name, from any folder; and data given for a config are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.families import families, family_path
from xdpx.config.faults import ConfigError
from xdpx.config.reading import read_runs


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_family_is_a_parent_by_its_name_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/meta.hjson").write_text('{"processor": "single"}')
    (tmp_path / "c.hjson").write_text("__parent__: families/bow\ndata_dir: data\nmax_epoch: 2\n")
    (run,) = read_runs("c")
    assert (run.values["model"], run.values["max_epoch"], run.values["lr_scheduler"]) == ("bow", 2, "one_cycle")


def test_a_file_of_the_user_comes_before_a_family_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "families").mkdir()
    (tmp_path / "families/bow.hjson").write_text("model: mine")
    assert read_runs("families/bow")[0].values == {"model": "mine"}


def test_an_unknown_family_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'families/cls_cnn'\? `x-init --list` shows all"):
        read_runs("families/cls_cn")
    assert family_path("families/../families/bow") == ""


def test_every_family_says_in_a_line_what_it_is_for() -> None:
    assert len(families()) > 60
    assert [name for name, purpose in families().items() if not 10 < len(purpose) < 400] == []


def test_data_in_the_place_of_a_config_lead_to_x_run(tmp_path: Path) -> None:
    for name in ("reviews.csv", "rows.jsonl.gz"):
        (tmp_path / name).write_text("text,label\n")
        with pytest.raises(ConfigError, match=f"'{name}' holds data, not a config. Write: x-run {name}"):
            read_runs(name)
