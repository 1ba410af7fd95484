"""Every config of the examples is run on a handful of real rows, from a folder as a user starts it in."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import tiers
from xdpx.commands.train import Train
from xdpx.config import catalogue
from xdpx.config.loading import Run, load
from xdpx.config.reading import read_runs
from xdpx.run import main

_spec = importlib.util.spec_from_file_location("example_rows", Path(__file__).with_name("example_rows.py"))
assert _spec
assert _spec.loader
rows = importlib.util.module_from_spec(_spec)
sys.modules["example_rows"] = rows
_spec.loader.exec_module(rows)

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = {str(path.relative_to(EXAMPLES).with_suffix("")) for path in EXAMPLES.rglob("*.hjson")}
MARKS = {"sst2/bert_jax": pytest.mark.slow}
FAMILIES = (
    *("bert_dpr_qa", "bert_lm", "bert_mix", "bert_pkm", "bert_pretrain", "bert_qa", "bert_r_drop"),
    *("bert_several_labels", "bert_token", "cnn_regression", "fewshot", "listnet", "match_lstm", "minilm"),
    *("rmr_bert", "sbert_nli", "simcse", "static_distill", "t5", "tinybert_td"),
)
OTHERS = ("chnsenticorp/cnn", "lcqmc/re2", "results/sst2_cnn_distill", "sst2/grid")
TRAINED = tiers.some(sorted(rows.TRAINED), [*(f"families/{name}" for name in FAMILIES), *OTHERS])
"""In the short form: a family for each kind of rows, of loss and of teacher, and other examples for their languages
and loops. test_every_name.py trains more families, tests/journeys/test_engines.py trains a BERT on JAX, and every
example is prepared and checked."""
FEW: dict[str, Any] = {"batch_size": 4, "max_update": 2, "max_epoch": None}


class Workplace:
    """A folder with raw data, in which each example is run once, after those that it needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prepare = cache(self._prepare)
        self.checked = cache(self._checked)
        self.train = cache(self._train)

    def _prepare(self, name: str) -> Path:
        """Run x-prepro, and return the data_dir."""
        one = rows.PREPARED[name]
        if "logits" in name:
            self.write_logits()
        if one.source == "raw/saved":
            self.save_dataset()
        keys = {"__parent__": str(EXAMPLES / one.example), **one.keys, "workers": 1}
        if one.source:
            keys |= {"data_source": one.source, "data_dir": f"out/data/{name}"}
        run = self.config(f"prepro {name}", keys)
        assert main(["x-prepro", run]) == 0
        return Path(read_runs(run)[0].values["data_dir"])

    def _checked(self, name: str) -> list[Run]:
        """Return the runs of a config of x-train, none of which has a fault."""
        one = rows.TRAINED[name]
        data_dir = self.prepare(one.data)
        if one.teacher:
            self.train(one.teacher)
        keys: dict[str, Any] = {**FEW, **one.keys}
        if name.startswith("families/"):
            keys |= {"data_dir": str(data_dir), "save_dir": f"out/{name}"}
        config = self.config(name, {"__parent__": str(EXAMPLES / name), **keys})
        runs = load(self.config(name, {**json.loads(Path(config).read_text()), **self.tiny(config)}), "x-train")
        assert [str(fault) for run in runs for fault in Train(run).check()] == []
        return runs

    def _train(self, name: str) -> str:
        """Run x-train, the first run of a loop, and return its save_dir."""
        run = self.checked(name)[0]
        assert Train(run).run() == 0
        return str(run.values["save_dir"])

    def raw_rows(self, name: str) -> Path | None:
        """Return the rows of dev as a file, None where lines are joined, so that none is predicted by itself."""
        values = read_runs(f"prepro {name}.json".replace("/", "-"))[0].values
        joined = "corpus" in values["loader"]
        return next((path for path in Path(values["data_source"]).glob("dev.*") if not joined), None)

    def tiny(self, config: str) -> dict[str, Any]:
        """Return small sizes for each model that a config names."""
        values = read_runs(config)[0].values
        found = {}
        for prefix in ("", "teacher_", "student_"):
            if name := values.get(f"{prefix}model"):
                declared = {item.key for item in catalogue.entry("model", name).parameters}
                found |= {f"{prefix}{key}": size for key, size in rows.TINY.items() if key in declared}
        return found

    def write_logits(self) -> None:
        """Let the teacher write down what it thinks, as examples/results/run.py does."""
        self.train("results/sst2_bert")
        Path("data/sst2_logits").mkdir(exist_ok=True)
        for split in ("dev", "test"):
            shutil.copy(f"data/sst2/{split}.tsv", "data/sst2_logits")
        assert main(["x-pred", str(EXAMPLES / "results/sst2_logits_pred")]) == 0

    @staticmethod
    def save_dataset() -> None:
        """Save the rows as `datasets` does."""
        datasets: Any = pytest.importorskip("datasets")
        found = dict(zip(("text", "label"), map(list, zip(*rows.ENGLISH * 2, strict=True)), strict=True))
        both = datasets.DatasetDict({split: datasets.Dataset.from_dict(found) for split in ("train", "dev")})
        both.save_to_disk("raw/saved")

    @staticmethod
    def config(name: str, keys: dict[str, Any]) -> str:
        """Write a config that inherits an example."""
        path = Path(f"{name.replace('/', '-')}.json")
        path.write_text(json.dumps(keys))
        return str(path)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("examples")
    rows.write(folder)
    return Workplace(folder)


@pytest.fixture
def run(workplace: Workplace) -> Iterator[Workplace]:
    """The workplace, as the current folder."""
    with contextlib.chdir(workplace.folder):
        yield workplace


def test_no_example_is_passed_over() -> None:
    prepared = {one.example for one in rows.PREPARED.values()}
    searched = set(rows.SEARCHED) | {name for names in rows.SEARCHED.values() for name in names}
    assert prepared | set(rows.TRAINED) | set(rows.USED_WITH_A_RUN) | searched == CONFIGS


@pytest.mark.parametrize("name", sorted(set(rows.PREPARED) - {one.data for one in rows.TRAINED.values()}))
def test_an_example_preprocesses_real_rows(run: Workplace, name: str) -> None:
    assert (run.prepare(name) / "train.pt").is_file()


@pytest.mark.parametrize("name", sorted(rows.TRAINED))
def test_an_example_of_training_has_no_fault(run: Workplace, name: str) -> None:
    assert run.checked(name)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in TRAINED])
def test_an_example_is_trained_on_real_rows_scored_alike_when_it_is_read_back_and_predicts(
    run: Workplace, name: str
) -> None:
    save_dir = run.train(name)
    scored = run.config("eval", {"save_dir": save_dir, "valid_subset": "dev", "compare_origin": True})
    assert main(["x-eval", scored]) == 0
    raw = run.raw_rows(rows.TRAINED[name].data)
    if raw is not None and name not in rows.PREDICTS_NOTHING:
        predicted = run.config("pred", {"save_dir": save_dir, "predict_file_map": {str(raw): "out/predicted.tsv"}})
        assert main(["x-pred", predicted]) == 0
        assert Path("out/predicted.tsv").read_text("utf-8").count("\n") > 2


@pytest.mark.parametrize("name", sorted(rows.USED_WITH_A_RUN))
def test_an_example_of_use_runs_on_the_run_that_it_names(run: Workplace, name: str) -> None:
    run.train(rows.USED_WITH_A_RUN[name])
    command = "x-eval" if name.endswith("eval") else "x-pred"
    assert main([command, str(EXAMPLES / name)]) == 0


@pytest.mark.parametrize("name", sorted(rows.SEARCHED))
def test_an_example_of_a_search_finds_a_config_that_trains(
    run: Workplace, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.tuning.executors.local.START", "fork")
    base, _ = rows.SEARCHED[name]
    run.train(base)
    config = run.config(
        f"base {name}", {**FEW, "max_update": 10, "__parent__": str(EXAMPLES / base), "embedding_dim": 8}
    )
    assert main(["x-tune", str(EXAMPLES / name), f"base_config={config}", "max_trials=3", "parallel_runs=3"]) == 0
    assert len(Path("out/tuned/results.tsv").read_text().splitlines()) == 4
    assert main(["x-train", "out/tuned/best.hjson", "plots=false"]) == 0
