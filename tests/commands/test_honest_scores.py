"""Intervals, calibration, comparisons of real runs, seeds, and why x-eval gives another score than training logged."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from xdpx.commands.script import main as script
from xdpx.run import main

TRAIN: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_epoch": 3,
    "batch_size": 32, "learning_rate": 0.02, "eval_interval": 20, "major_metric": "acc", "log_interval": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed texts of two classes, and trainings with three seeds."""
    root = tmp_path_factory.mktemp("desk")
    drawn = random.Random(0)
    (root / "raw").mkdir()
    for name, count in (("train", 320), ("dev", 200)):
        rows = []
        for _ in range(count):
            label = drawn.randint(0, 1)
            words = [
                f"w{drawn.randrange(30) + (8 * label if drawn.random() < 0.7 else 4)}"
                for _ in range(drawn.randint(2, 12))
            ]
            rows.append(f"{' '.join(words)}\t{'ab'[label]}\n")
        (root / "raw" / f"{name}.txt").write_text("".join(rows))
    prepro = {"data_source": f"{root}/raw", "data_dir": f"{root}/data", "processor": "single", "loader": "single"}
    write(root / "prepro.json", {**prepro, "tokenizer": "space", "max_len": 16})
    assert main(["x-prepro", f"{root}/prepro.json"]) == 0
    for seed in (1, 2, 3):
        train(root, f"run{seed}", seed=seed)
    return root


def write(path: Path, values: dict[str, Any]) -> str:
    path.write_text(json.dumps(values))
    return str(path)


def train(root: Path, name: str, **keys: Any) -> int:
    values = {
        "__parent__": f"{root}/data/meta",
        "data_dir": f"{root}/data",
        "save_dir": f"{root}/{name}",
        **TRAIN,
        **keys,
    }
    return main(["x-train", write(root / f"{name}.json", values)])


def evaluated(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["x-eval", f"save_dir={root}/run1", "valid_subset=dev", *words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out)["inputs"][0])


@pytest.mark.usefixtures("all_draws")
def test_every_score_of_rows_has_an_interval_around_it(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(desk, capsys)
    assert found["intervals"].keys() == found["scores"].keys() == {
        "acc", "auc", "f1", "loss", "precision", "recall", "macro_f1"
    }  # fmt: skip
    for name, (low, high) in found["intervals"].items():
        assert low < found["scores"][name] < high, name


def test_the_ends_stand_in_the_table_where_they_are_asked_for(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["x-eval", f"save_dir={desk}/run1", "valid_subset=dev", "intervals=true"]) == 0
    header, row = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    found = dict(zip(header, row, strict=True))
    assert float(found["acc_low"]) < float(found["acc"]) < float(found["acc_high"])


def test_a_fitted_temperature_is_used_only_where_it_is_asked_for(
    desk: Path, capsys: pytest.CaptureFixture[str], figures: None
) -> None:
    before = evaluated(desk, capsys)
    assert main(["x-eval", f"save_dir={desk}/run1", "valid_subset=dev", "temperature=fitted"]) == 2
    assert "Run: x-script calibrate" in capsys.readouterr().err
    assert script(["calibrate", f"{desk}/run1"]) == 0
    assert "x-eval and x-pred use it with temperature=fitted" in capsys.readouterr().out
    fitted = json.loads((desk / "run1/temperature.json").read_text())
    assert evaluated(desk, capsys)["scores"] == before["scores"]
    after = evaluated(desk, capsys, "temperature=fitted")
    assert after["scores"]["acc"] == before["scores"]["acc"]
    assert after["scores"]["loss"] == pytest.approx(fitted["after"]["nats"], rel=1e-3)
    assert before["scores"]["loss"] == pytest.approx(fitted["before"]["nats"], rel=1e-3)
    assert after["calibration"]["ece"] == pytest.approx(fitted["after"]["ece"], abs=1e-3)
    assert after["scores"]["loss"] <= before["scores"]["loss"]
    (picture,) = (desk / "run1/eval").glob("*.reliability.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_temperature_of_other_weights_is_refused(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(desk / "run3", desk / "other")
    script(["calibrate", f"{desk}/other", "checkpoint=<best>"])
    stored = json.loads((desk / "other/temperature.json").read_text())
    write(desk / "other/temperature.json", {**stored, "checkpoint": "checkpoint-1.pt"})
    capsys.readouterr()
    assert main(["x-eval", f"save_dir={desk}/other", "valid_subset=dev", "temperature=fitted"]) == 2
    assert "was fitted for checkpoint-1.pt, not for" in capsys.readouterr().err


def test_two_runs_are_compared_on_the_same_rows(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    runs = [f"{desk}/run1", f"{desk}/run2"]
    assert script(["compare_runs", *runs, "draws=100", "--json"]) == 0
    split = json.loads(capsys.readouterr().out)
    assert script(["compare_runs", *runs, f"on={desk}/raw/dev.txt", "draws=100", "--json"]) == 0
    file = json.loads(capsys.readouterr().out)
    assert split["comparisons"][0]["metrics"].keys() >= {"acc", "f1", "auc", "loss"}
    for name, each in split["comparisons"][0]["metrics"].items():
        assert each["p"] == pytest.approx(file["comparisons"][0]["metrics"][name]["p"])
    assert split["comparisons"][0]["metrics"]["acc"]["test"] == "McNemar, mid-p"
    assert split["rows"] == 200


def test_trainings_with_several_seeds_end_with_their_mean_and_spread(
    desk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loop = {"__parent__": f"{desk}/data/meta", "data_dir": f"{desk}/data", **TRAIN}
    values = [{**loop, "seed": seed, "save_dir": f"{desk}/run{seed}"} for seed in (1, 2, 3)]
    config = write(desk / "loop.json", {"__parent__": [values]})
    assert main(["x-train", config]) == 0  # all have finished before
    told = capfd.readouterr().err
    assert "over seeds" in told
    assert "95 % interval" in told


def test_compare_origin_names_the_cause(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(name: str, *words: str) -> str:
        capsys.readouterr()
        assert main(["x-eval", f"save_dir={desk}/{name}", "valid_subset=dev", "compare_origin=true", *words]) == 1
        return capsys.readouterr().err

    assert main(["x-eval", f"save_dir={desk}/run1", "valid_subset=dev", "compare_origin=true"]) == 0
    assert "max_eval_steps: None in training, 2 here" in told("run1", "max_eval_steps=2")
    shutil.copytree(desk / "run1", desk / "moved")
    log = desk / "moved/valid.log.tsv"
    header, *rows = log.read_text().splitlines()
    place = header.split("\t").index("valid_acc")
    log.write_text("\n".join([header, *("\t".join([*r[:place], "0.123", *r[place + 1 :]]) for r in (
        row.split("\t") for row in rows))]) + "\n")  # fmt: skip
    said = told("moved")
    assert "checked, no difference found: settings, code, versions, data, weights, precision, chance, padding" in said
    change_snapshot(desk / "moved/snapshot.zip")
    text = (desk / "moved/log.txt").read_text()
    (desk / "moved/log.txt").write_text(text.replace("numpy ", "numpy 1.0.0 numpy "))
    said = told("moved")
    assert "code: 1 files differ from snapshot.zip: xdpx/run.py" in said


def change_snapshot(path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data + b"# changed\n" if name == "xdpx/run.py" else data)


def test_a_model_that_reads_its_padding_is_found_out(
    desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from xdpx.models import models
    from xdpx.models.pytorch.convolutional import ClsCnn

    class Leaky(ClsCnn):
        """Reads its padding: each row is shifted by the width of the batch."""

        def forward(self, tokens: Any, mask: Any) -> Any:
            return super().forward(tokens, mask) + tokens.new_tensor([0.0, 1.0]).float() * tokens.shape[1] / 4

    monkeypatch.setitem(models._loaded, "leaky", Leaky)
    assert train(desk, "leaky", model="leaky") == 0
    capsys.readouterr()
    words = [f"save_dir={desk}/leaky", "valid_subset=dev", "compare_origin=true", "batch_size=1"]
    assert main(["x-eval", *words]) == 1
    assert "padding: a row alone and the same row beside longer ones" in capsys.readouterr().err
