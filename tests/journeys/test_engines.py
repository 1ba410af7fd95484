"""One config on two engines: the same batches, losses, predictions and files; each opens what the other has saved."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiers import nightly, some
from xdpx.checkpoints.trusted import load_tensors
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.spmd.paired import PairedEngine
from xdpx.run import main

ENGINES = ("pytorch", "spmd")
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SURE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}
COMMON = {"learning_rate": 0.002, "weight_decay": 0.1, "batch_size": 8, "log_interval": 1, "major_metric": "acc",
          "max_update": 20, "eval_interval": 10, "clip_norm": 1.0, "lr_scheduler": "one_cycle", "warmup_steps": 0.2,
          "seed": 7, "save_full_checkpoint": True}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "bert_classification": {"loss": "cross_entropy", "data_dir": "pairs", "layer_lr_decay": 0.8, "ema_decay": 0.9,
                            "cycle_momentum": True, "pretrained_model": None, "update_freq": 2, **SURE},
    "bert_lm": {"loss": "masked_lm", "data_dir": "masked", "optimizer": "lamb", "pretrained_model": None, **SURE},
    "causal_lm": {"loss": "causal_lm", "data_dir": "running", "num_key_value_heads": 1, "tie_word_embeddings": True},
}  # fmt: skip
WORDS = "the a king queen sea speaks sleeps sings to of and old young wild calm ##ly ##s".split()  # noqa: SIM905


def x(command: str, name: str = "config", **keys: object) -> int:
    """Run one command with these keys."""
    Path(f"{name}.json").write_text(json.dumps(keys))
    return main([command, f"{name}.json"])


def train(model: str, engine: str, save_dir: str, **keys: object) -> dict[str, Any]:
    """Train on one engine, and return the keys that it was done with."""
    data = MODELS[model]["data_dir"]
    values = {
        "__parent__": f"{data}/meta",
        "model": model,
        **SHAPE,
        **COMMON,
        **MODELS[model],
        "engine": engine,
        **keys,
    }
    assert x("x-train", f"{save_dir}", save_dir=save_dir, **values) == 0
    return values


def table(path: str) -> list[dict[str, str]]:
    """Return the rows of a log."""
    with Path(path).open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with small real data for every model."""
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        dice = random.Random(3)
        Path("vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
        for split, count in (("train", 400), ("dev", 45)):
            texts = [" ".join(dice.choices(WORDS[:15], k=dice.randint(2, 8))) for _ in range(2 * count)]
            rows = zip(texts[::2], texts[1::2], strict=True)
            Path("raw").mkdir(exist_ok=True)
            Path("text").mkdir(exist_ok=True)
            Path(f"raw/{split}.txt").write_text("".join(f"{a}\t{b}\t{'king' in a}\n" for a, b in rows))
            Path(f"text/{split}.txt").write_text("\n".join(texts) + "\n")
        usual = {"tokenizer": "bert", "vocab_file": "vocab.txt", "max_len": 16}
        pairs = {"data_source": "raw", "loader": "pair", "parser": "csv", "processor": "bert_pair"}
        corpus = {"data_source": "text", "loader": "corpus", "parser": "none"}
        assert x("x-prepro", data_dir="pairs", **usual, **pairs) == 0
        assert x("x-prepro", data_dir="masked", processor="bert_lm", **usual, **corpus) == 0
        assert x("x-prepro", data_dir="running", processor="causal_lm", **usual, **corpus) == 0
        yield folder


@pytest.fixture(scope="module", params=some(sorted(MODELS), ["bert_classification"]))
def trained(desk: Path, request: pytest.FixtureRequest) -> str:
    """The name of a model, trained on both engines from the same config; and every batch that they saw."""
    model = request.param
    seen: dict[str, list[list[int]]] = {engine: [] for engine in ENGINES}
    with pytest.MonkeyPatch.context() as patch:
        for engine, kind in zip(ENGINES, (PyTorchEngine, PairedEngine), strict=True):
            plain = kind.update

            def noting(self: Any, state: Any, group: Any, *, plain: Any = plain, engine: str = engine) -> Any:
                seen[engine].append([row for batch in group for row in batch["id"].tolist()])
                return plain(self, state, group)

            patch.setattr(kind, "update", noting)
            train(model, engine, f"{model}-{engine}")
    assert seen["pytorch"] == seen["spmd"]
    assert len(seen["spmd"]) == 20
    return model


def test_losses_and_scores_of_twenty_updates_are_the_same(trained: str) -> None:
    for log, keys in (("train.log.tsv", ("loss", "gnorm", "lr")), ("valid.log.tsv", ("valid_loss", "valid_acc"))):
        ours, theirs = (table(f"{trained}-{engine}/{log}") for engine in ENGINES)
        assert [row["step"] for row in ours] == [row["step"] for row in theirs]
        assert set(ours[0]) == set(theirs[0])
        for key in keys:
            both = [[float(row[key]) for row in rows] for rows in (ours, theirs)]
            np.testing.assert_allclose(*both, rtol=1e-4, atol=1e-4, err_msg=key)
    assert len(table(f"{trained}-spmd/train.log.tsv")) == 20
    assert float(theirs[-1]["valid_loss"]) != float(theirs[0]["valid_loss"])


def test_checkpoints_have_the_same_names_and_numbers(trained: str) -> None:
    ours, theirs = (load_tensors(f"{trained}-{engine}/checkpoint-20.pt") for engine in ENGINES)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype == torch.float32
        torch.testing.assert_close(theirs[name], value, rtol=1e-3, atol=1e-4, msg=name)
    files = [sorted(path.name for path in Path(f"{trained}-{engine}").glob("*.*")) for engine in ENGINES]
    assert files[0] == files[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_one_engine_trained_the_other_scores_alike(trained: str, engine: str) -> None:
    other = ENGINES[ENGINES.index(engine) - 1]
    mesh = {"mesh": [2, 2, 2]} if other == "spmd" else {}
    keys = {"save_dir": f"{trained}-{engine}", "valid_subset": "dev", "save_mode": "w"}
    for chosen in (engine, other):
        assert (
            x("x-eval", engine=chosen, save_to_file=f"{chosen}.tsv", **keys, **(mesh if chosen == other else {})) == 0
        )
    ours, theirs = (table(f"{chosen}.tsv")[0] for chosen in (engine, other))
    numbers = [name for name in ours if name not in {"checkpoint", "split"}]
    assert ours.keys() == theirs.keys()
    assert len(numbers) >= 3
    for name in numbers:
        assert float(ours[name]) == pytest.approx(float(theirs[name]), abs=1e-5, rel=1e-5), name


@pytest.mark.parametrize("engine", ENGINES)
def test_predictions_of_both_engines_are_equal_row_by_row(desk: Path, trained: str, engine: str) -> None:
    if trained != "bert_classification":
        pytest.skip("predicts no classes")
    found = []
    for chosen in ENGINES:
        out = {"predict_file_map": {"raw/dev.txt": f"{chosen}.out"}, "binary": True, "concat_origin": False}
        assert x("x-pred", save_dir=f"{trained}-{engine}", engine=chosen, **out) == 0
        found.append(load_tensors(f"{chosen}.out"))
    assert set(found[0]) == set(found[1])
    assert torch.equal(found[0]["pred"], found[1]["pred"])
    torch.testing.assert_close(found[0]["prob"], found[1]["prob"], rtol=0, atol=1e-5)
    assert found[0]["prob"].shape == (45, 2)


def test_few_shapes_are_compiled_and_the_log_says_how_many(trained: str) -> None:
    log = Path(f"{trained}-spmd/log.txt").read_text()
    assert "mesh replica 8 x data 1 x mdl 1" in log
    told = [line for line in log.splitlines() if "compiled " in line][-1]
    count = int(told.split("compiled ")[1].split()[0])
    assert 2 <= count <= 8
    assert log.count("compilation ") == count


@nightly("test_a_signal_in_an_evaluation_with_jax_changes_nothing_in_the_end")
@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(desk: Path) -> None:
    drops = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "eval_interval": 4, "max_update": 12}
    values = train("bert_classification", "spmd", "whole", **drops)
    config = {**values, "save_dir": "killed", "resume": "auto"}
    Path("killed.json").write_text(json.dumps(config))
    script = (
        "import os\nfrom xdpx.engines.spmd.paired import PairedEngine\nplain = PairedEngine.update\n"
        "def update(self, state, group):\n"
        "    os._exit(9) if state.num_updates == 6 else None\n    return plain(self, state, group)\n"
        "PairedEngine.update = update\nfrom xdpx.run import main\nmain(['x-train', 'killed.json'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr[-2000:]
    assert not Path("killed/checkpoint-8.pt").exists()
    assert x("x-train", "killed", **config) == 0
    for file in ("checkpoint-12.pt", "checkpoint-12.pts"):
        ours, theirs = (load_tensors(f"{folder}/{file}") for folder in ("whole", "killed"))
        ours, theirs = (saved.get("engine", {}).get("tensors", saved) for saved in (ours, theirs))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), file
    rows = [[row["loss"] for row in table(f"{folder}/train.log.tsv")] for folder in ("whole", "killed")]
    assert rows[0] == rows[1]


ENDS_AT_SIX = {"max_update": 6, "eval_interval": 3, "major_metric": "loss", "ascending_metric": False, "resume": "auto"}


@pytest.fixture(scope="module")
def uncut(desk: Path) -> dict[str, Any]:
    """The keys of an undisturbed run in the folder `uncut`."""
    return train("causal_lm", "spmd", "uncut", **ENDS_AT_SIX)


def test_a_state_of_one_engine_is_refused_by_the_other(
    uncut: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("uncut", "second")
    keys = {**uncut, "engine": "pytorch", "max_update": 8, "save_dir": "second", "resume": True}
    assert x("x-train", "second", **keys) == 2
    assert "xdpx-spmd-1" in capsys.readouterr().err


def test_pretrained_weights_are_taken_over_alike(desk: Path) -> None:
    train("bert_lm", "pytorch", "begun", max_update=1, eval_interval=1)
    firsts = []
    for engine in ENGINES:
        begin = {"pretrained_model": "begun/<best>", "max_update": 1, "eval_interval": -1}
        train("bert_classification", engine, f"tuned-{engine}", **begin)
        firsts.append(float(table(f"tuned-{engine}/train.log.tsv")[0]["loss"]))
        log = Path(f"tuned-{engine}/log.txt").read_text()
        assert "weights loaded" in log
    assert firsts[0] == pytest.approx(firsts[1], rel=1e-5)


REFUSED = [
    ("bert_classification", {"fp16": True, "auto_ga": True, "device_id": 1, "pruned_heads": {"0": [1]}},
     ["fp16: is True", "Use bf16: true.", "auto_ga:", "device_id:", "pruned_heads:"]),
    ("bert_classification", {"mesh": [1, 2]}, ["mesh: is [1, 2]. Use three numbers"]),
    ("bert_classification", {"model": "cls_cnn", "embedding_dim": 4},
     ["model: is 'cls_cnn', which the engine spmd does not support. Use one of: bert_classification"]),
    ("bert_classification", {"engine": "pytorch", "mesh": [8, 1, 1]}, ["mesh"]),
    ("bert_classification", {"engine": "theano"}, ["engine: is 'theano'"]),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys", "told"), REFUSED)
def test_what_cannot_be_honoured_is_refused_before_anything_starts(
    desk: Path, capsys: pytest.CaptureFixture[str], model: str, keys: dict[str, Any], told: list[str]
) -> None:
    data = MODELS[model]["data_dir"]
    values = {
        "__parent__": f"{data}/meta",
        "model": model,
        **SHAPE,
        **COMMON,
        **MODELS[model],
        "engine": "spmd",
        **keys,
    }
    if values["model"] == "cls_cnn":
        dropped = {*SURE, "layer_lr_decay", "pretrained_model", "num_hidden_layers", "num_attention_heads",
                   "intermediate_size"}  # fmt: skip
        values = {key: value for key, value in values.items() if key not in dropped}
    assert x("x-train", "refused", save_dir="refused", **values) == 2
    said = capsys.readouterr().err.replace(" (refused.json:1)", "")
    assert all(each in said for each in told), said
    assert not Path("refused").exists()


def test_a_mesh_for_the_other_engine_is_refused_in_evaluation(trained: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"save_dir": f"{trained}-spmd", "valid_subset": "dev"}
    assert x("x-eval", "refused", engine="pytorch", mesh=[8, 1, 1], **keys) == 2
    assert "is given, but the engine is pytorch. Leave it out, or set engine: spmd." in capsys.readouterr().err


def test_a_config_is_checked_without_jax_and_a_missing_extra_is_one_sentence(desk: Path) -> None:
    values = {"__parent__": "pairs/meta", "model": "bert_classification", **SHAPE, **COMMON, "save_dir": "dry",
              **MODELS["bert_classification"], "engine": "spmd"}  # fmt: skip
    Path("dry.json").write_text(json.dumps(values))
    dry = "import sys\nfrom xdpx.run import main\nassert main(['x-train', 'dry.json', '--dry']) == 0\n"
    without = "from xdpx.config import spmd_keys\nspmd_keys.find_spec = lambda name: None\n"
    again = "code = main(['x-train', 'dry.json', '--dry'])\n"
    lighter = "heavy = {'jax', 'flax', 'torch'} & set(sys.modules)\nassert not heavy, heavy\nsys.exit(code)\n"
    line = [sys.executable, "-c", dry + without + again + lighter]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "is spmd, which needs jax, flax, optax, not installed here. Run: pip install 'xdpx[jax]'." in done.stderr


def test_a_signal_in_an_evaluation_with_jax_changes_nothing_in_the_end(
    uncut: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    score, at = PairedEngine.score, [3]  # the first batch is that of the trial before training

    def counted(self: Any, state: Any, batch: Any) -> Any:
        at[0] -= 1
        if at[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, state, batch)

    monkeypatch.setattr(PairedEngine, "score", counted)
    assert x("x-train", "cut", **{**uncut, "save_dir": "cut"}) == 85
    assert train("causal_lm", "spmd", "cut", **ENDS_AT_SIX) == uncut
    assert Path("cut/checkpoint-6.pt").read_bytes() == Path("uncut/checkpoint-6.pt").read_bytes()
    ours, theirs = table("cut/valid.log.tsv"), table("uncut/valid.log.tsv")
    assert [row["valid_loss"] for row in ours] == [row["valid_loss"] for row in theirs]
