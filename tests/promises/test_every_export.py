"""Every model leaves in every format, equal to 1e-4 on real and odd rows, or says in a sentence why it cannot.

A few are tried at every run of the tests; `XDPX_EVERY_EXPORT=1 pytest tests/promises/test_every_export.py` tries all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.promises import name_recipes as recipes
from xdpx.config import catalogue
from xdpx.config.args_file import write_args
from xdpx.config.faults import ConfigError
from xdpx.config.loading import load
from xdpx.inference import probes
from xdpx.inference.exporting import export
from xdpx.inference.formats import format_named
from xdpx.inference.plan import InferenceParameters
from xdpx.run import main
from xdpx.trainer.files.model_files import write_weights

FIRST: dict[str, str] = {}
for _name, _recipe in recipes.RECIPES.items():
    if not _recipe.prefix and recipes.model_of(_name) != "torchscript":  # students are their teachers' kinds
        FIRST.setdefault(recipes.model_of(_name), _name)
FORMATS = ("torchscript", "onnx", "openvino", "pt2", "hf", "tf")
QUICK = {("cls_cnn", "onnx"), ("bert_classification", "pt2"), ("bert_token", "hf"), ("gru_token", "torchscript"),
         ("bow", "openvino")}  # fmt: skip
"""What is tried at every run of the tests: all take two minutes."""

NO_ONNX = {
    "bert_lm_lopkm": "Input rank must be known", "bert_lm_pkm": "Input rank must be known",
    "bert_pretrain_lopkm": "Input rank must be known", "bert_pretrain_pkm": "Input rank must be known",
    "bert_mix": "does not support include_self=False", "causal_lm": "operator 'aten::diff'",
    "electra_pretrain": "operator 'aten::searchsorted'", "rmr_bert": "computes other logits for an input of shape",
}  # fmt: skip
WRITTEN_OUT = (
    "dpcnn", "esim", "gru", "gru_token", "lstm", "lstm_token", "match_gru", "match_lstm", "rmr_bert",
)  # fmt: skip
REFUSED = {
    **{(model, name): why for model, why in NO_ONNX.items() for name in ("onnx", "openvino")},
    ("rmr_bert", "torchscript"): "computes other logits for an input of shape",
    ("bow", "openvino"): "differs by",
    ("bow", "pt2"): "fails for an input of shape",
    **{(model, "pt2"): "unrolls, which fixes axis" for model in WRITTEN_OUT},
    ("rmr_bert", "tf"): "unrolls, which fixes axis",
    ("bert_lm_lopkm", "pt2"): "fails for an input of shape",
    ("bert_pretrain_lopkm", "pt2"): "fails for an input of shape",
}
NO_ENCODER = "is not an encoder of transformers with a head"
EVERY = [(model, name) for model in sorted(FIRST) for name in FORMATS]
CASES = EVERY if os.environ.get("XDPX_EVERY_EXPORT") else sorted(QUICK)


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a run of a model, with weights as they begin: those are spread widely."""

    @cache
    def data(kind: str) -> Path:
        folder = tmp_path_factory.mktemp("data")
        (folder / "prepro.json").write_text(json.dumps(recipes.write_raw(kind, folder / "files")))
        assert main(["x-prepro", str(folder / "prepro.json")]) == 0
        return folder / "files/data"

    @cache
    def written(model: str) -> Path:
        folder, name = tmp_path_factory.mktemp("runs"), FIRST[model]
        declared = {item.key for item in catalogue.entry("model", model).parameters}
        values = recipes.train_config(name, data(recipes.RECIPES[name].data), folder / "run", declared)
        (folder / "train.json").write_text(json.dumps(values))
        run = load(str(folder / "train.json"), "x-train", paths=False)[0]
        (folder / "run").mkdir()
        write_args(run, str(folder / "run/args.py"))
        torch.manual_seed(5)
        torch.save(run.build("model").state_dict(), folder / "run/checkpoint-1.pt")
        return folder / "run"

    return written


@pytest.mark.parametrize(("model", "name"), CASES)
def test_a_model_leaves_equal_or_says_why_not(
    model: str, name: str, run_of: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, out = format_named(name), tmp_path / "out"
    for package in kind.packages:
        pytest.importorskip(package)
    monkeypatch.setattr(probes, "RUNS", 1)
    options = InferenceParameters(save_dir=str(run_of(model)), checkpoint="<last>")
    written = kind(write_weights) if name == "hf" else kind()  # type: ignore[call-arg]
    refused = ""
    try:
        export(written, options, str(out), source="test", rows=None, num_rows=200)
    except ConfigError as error:
        refused = str(error)
    if refused:
        assert REFUSED.get((model, name), NO_ENCODER if name == "hf" else "nothing") in refused
        assert not out.exists()
        return
    assert (model, name) not in REFUSED
    facts = json.loads((out / "export.json").read_text())
    if facts["of_format"].get("without_head"):
        assert name == "hf"
    else:
        assert facts["compared"]["outputs"] <= 1e-4
        assert facts["compared"]["predictions"] <= 1e-4
        assert facts["compared"]["rows"] > 0
