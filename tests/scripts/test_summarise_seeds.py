"""summarise_seeds: runs of one setting together, whatever their seed, and groups against each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xdpx.commands.script import main
from xdpx.training.status import Status


def a_run(folder: Path, seed: int, score: float, **settings: object) -> None:
    folder.mkdir(parents=True)
    values = {"seed": seed, "save_dir": str(folder), "major_metric": "acc", "ascending_metric": True, **settings}
    (folder / "args.py").write_text(repr(values))
    rows = f"epoch\tstep\tvalid_acc\tbest_score\n1\t10\t{score - 0.1}\t{score - 0.1}\n2\t20\t{score}\t{score}\n"
    (folder / "valid.log.tsv").write_text(rows)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed, score in ((1, 0.80), (2, 0.82), (3, 0.81)):
        a_run(tmp_path / f"slow.{seed}", seed, score, learning_rate=0.1)
        a_run(tmp_path / f"fast.{seed}", seed, score + 0.08, learning_rate=0.3)
    a_run(tmp_path / "single", 1, 0.5, learning_rate=0.9)
    return tmp_path


def test_each_group_has_its_mean_interval_and_spread(runs: Path, capsys) -> None:
    assert main(["summarise_seeds", str(runs), "--json"]) == 0
    told = {each["settings"]["learning_rate"]: each for each in json.loads(capsys.readouterr().out)["groups"]}
    slow = told[0.1]
    assert (slow["mean"], slow["deviation"]) == pytest.approx((0.81, 0.01))
    assert slow["interval"] == pytest.approx([0.81 - 4.303 * 0.01 / 3**0.5, 0.81 + 4.303 * 0.01 / 3**0.5])
    assert sorted(each["seed"] for each in slow["runs"]) == [1, 2, 3]
    assert told[0.9]["interval"] is None


def test_groups_are_held_against_the_first_in_words(runs: Path, capsys) -> None:
    assert main(["summarise_seeds", str(runs)]) == 0
    told = capsys.readouterr().out
    assert "learning_rate=0.1 against learning_rate=0.3: -0.08" in told
    assert ": significant" in told
    assert "one seed" in told


def test_a_seed_that_was_run_twice_counts_once_and_a_run_that_has_not_ended_is_named(runs: Path, capsys) -> None:
    a_run(runs / "copies" / "slow.2", 2, 0.82, learning_rate=0.1)
    Status("preempted", 10, 20, "", until=20).write(str(runs / "slow.3"))
    Status("finished", 10, 20, "", until=20).write(str(runs / "slow.1"))  # by its tolerance
    assert main(["summarise_seeds", str(runs), "--json"]) == 0
    printed = capsys.readouterr()
    told = next(each for each in json.loads(printed.out)["groups"] if each["settings"]["learning_rate"] == 0.1)
    assert (told["mean"], told["deviation"]) == pytest.approx((0.81, 0.01))
    assert len(told["runs"]) == 4
    assert "seed 2 has 2 runs with the same settings, which count as one" in printed.err
    assert "slow.3: preempted at step 10 of 20" in printed.err
    assert "slow.1:" not in printed.err


def test_data_that_were_rebuilt_between_runs_are_told(runs: Path, capsys) -> None:
    for name, digest in (("slow.1", "1"), ("slow.2", "1"), ("fast.1", "2")):
        Status("finished", 20, 20, "", until=20, data={"dev.pt": digest, "train.pt": "3"}).write(str(runs / name))
    assert main(["summarise_seeds", str(runs)]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "rebuilt" in line]
    assert len(told) == 1
    assert "dev.pt was rebuilt between runs, whose scores do not compare: " in told[0]


def test_where_there_is_no_run_it_says_so(tmp_path: Path, capsys) -> None:
    assert main(["summarise_seeds", str(tmp_path)]) == 1
    assert "no evaluated runs" in capsys.readouterr().err
