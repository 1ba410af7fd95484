"""What may have changed between a run and its resumption: the data, the model it began with, the memory."""

from __future__ import annotations

import gc
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from xdpx import run as door
from xdpx.checkpoints import aliases
from xdpx.commands import batch
from xdpx.config.loading import load
from xdpx.models.pytorch.bert_classification import BertClassification

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(40))]
TRAIN: dict[str, Any] = {
    "model": "bert_classification", "loss": "cross_entropy", "pretrained_model": "hf", "max_update": 8,
    "batch_size": 8, "learning_rate": 0.01, "eval_interval": 4, "major_metric": "acc", "log_interval": 4,
    "save_full_checkpoint": True, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def preprocess(seed: int = 0, *, splits: tuple[str, ...] = ("train", "dev")) -> None:
    drawn = random.Random(seed)
    Path("raw").mkdir(exist_ok=True)
    for name in splits:
        labels = [drawn.randint(0, 1) for _ in range(60)]
        rows = (f"{' '.join(f'w{drawn.randint(20 * y, 19 + 20 * y)}' for _ in range(5))}\t{'ab'[y]}\n" for y in labels)
        Path(f"raw/{name}.txt").write_text("".join(rows))
    Path("vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    config = {"data_source": "raw", "data_dir": "data", "processor": "bert_single", "loader": "single", "max_len": 8}
    Path("prepro.json").write_text(json.dumps({**config, "tokenizer": "bert", "vocab_file": "vocab.txt"}))
    assert door.main(["x-prepro", "prepro.json"]) == 0


Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Make data and a pretrained BERT in `tmp_path`; gives a function that trains it."""
    monkeypatch.chdir(tmp_path)
    preprocess()
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, **sizes)).save_pretrained("hf")

    def train(save_dir: str = "run", **keys: Any) -> int:
        values = {"__parent__": "data/meta", "data_dir": "data", "save_dir": save_dir, **TRAIN, **keys}
        Path("train.json").write_text(json.dumps(values))
        return door.main(["x-train", "train.json"])

    return train


def weights(folder: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(f"{folder}/checkpoint-8.pt", weights_only=True)
    return found


@pytest.mark.parametrize("beginning", ["hf", "first/<last>"])
def test_a_run_goes_on_when_what_it_began_with_is_gone(start: Start, beginning: str) -> None:
    if beginning != "hf":
        assert start("first", save_full_checkpoint=False) == 0
    assert start("whole", pretrained_model=beginning) == 0
    assert start(pretrained_model=beginning, train_steps=4) == 0
    shutil.rmtree(beginning.split("/")[0])
    assert start(pretrained_model=beginning, resume=True) == 0
    assert Path("run/checkpoint-8.pt").read_bytes() == Path("whole/checkpoint-8.pt").read_bytes()


def test_data_made_anew_under_the_same_name_is_refused(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(train_steps=4) == 0
    shutil.rmtree("data")
    preprocess(seed=2)  # other rows, whose labels come in the same order
    assert start(resume=True) == 2
    assert "is 'data', where train.pt was rebuilt after this run was trained on it" in capsys.readouterr().err
    shutil.rmtree("data")
    preprocess()
    assert start(resume=True) == 0


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_finished_run_is_not_taken_for_one_of_data_made_anew(
    start: Start, capsys: pytest.CaptureFixture[str], split: str
) -> None:
    assert start(resume="auto") == 0
    preprocess()
    assert start(resume="auto") == 0  # the same rows again
    preprocess(1, splits=(split,))
    assert start(resume="auto") == start() == 2
    told = capsys.readouterr().err
    assert told.count(f"{split}.pt was rebuilt after run had been trained and scored") == 2
    assert start(overwrite=True, save_full_checkpoint=False) == 0


def test_scores_of_other_held_out_rows_are_not_compared(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    assert start(train_steps=4) == 0
    preprocess(1, splits=("dev",))
    assert start(resume=True) == 0
    assert "dev.pt changed: scores cannot be compared, so the best score is reset" in capfd.readouterr().err


def test_rows_that_may_have_been_trained_on_are_told_when_they_are_scored(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    assert start() == 0
    words, told = (
        ["x-eval", "save_dir=run", "valid_subset=dev", "page="],
        "these rows may be among those that it has seen",
    )
    preprocess(1, splits=("dev",))
    assert door.main(words) == 0
    assert told not in capfd.readouterr().err
    preprocess(2, splits=("train", "dev"))
    assert door.main(words) == 0
    assert told in capfd.readouterr().err


def test_a_finished_run_of_other_code_is_skipped_with_a_warning(
    start: Start, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from xdpx.losses import register\nfrom xdpx.losses.cross_entropy import CrossEntropy\n"
    own = Path("mine/own_ce.py")
    own.parent.mkdir()
    own.write_text(f"{code}register('own_ce')(type('Own', (CrossEntropy,), {{'__module__': __name__}}))\n")
    monkeypatch.setenv("XDPX_USER_MODULES", str(own.parent))
    assert start(resume="auto", loss="own_ce") == start(resume="auto", loss="own_ce") == 0
    assert "changed since this run was trained" not in capfd.readouterr().err
    own.write_text(own.read_text() + "# corrected\n")
    assert start(resume="auto", loss="own_ce") == 0
    assert "own_ce.py of user/modules changed since this run was trained" in capfd.readouterr().err


def test_preprocessing_has_not_finished_where_a_raw_file_has_changed(start: Start) -> None:
    run = load("prepro.json", "x-prepro")[0]
    assert batch.has_finished(run)
    Path("raw/dev.txt").write_text("w0\ta\n")
    assert not batch.has_finished(run)
    shutil.rmtree("raw")
    assert batch.has_finished(run)


def test_an_equal_score_of_other_held_out_rows_is_the_best(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    assert start(train_steps=4) == 0
    Path("raw/dev.txt").write_text("".join(reversed(Path("raw/dev.txt").read_text().splitlines(keepends=True))))
    assert door.main(["x-prepro", "prepro.json"]) == 0
    assert start(resume=True) == 0
    told = " ".join(capfd.readouterr().err.split())
    assert "warning: dev.pt changed: scores cannot be compared, so the best score is reset" in told
    assert "at step 8" in told.rpartition("best acc")[2]
    assert aliases.resolve("run/<best>") == "run/checkpoint-8.pt"


def test_other_data_in_a_folder_of_its_own_is_trained_on(start: Start) -> None:
    assert start(train_steps=4) == 0
    shutil.copytree("data", "more")
    assert start(resume=True, data_dir="more") == 0


def test_shards_that_arrive_later_are_no_other_data(start: Start) -> None:
    keys = {"lazy_load": True, "train_subset": ["train*"], "max_update": 12}
    assert start(train_steps=4, **keys) == 0
    preprocess(seed=2, splits=("train1",))
    assert start(resume=True, **keys) == 0


def test_splits_that_a_pattern_selects_only_now_are_told(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"train_subset": "train*", "max_update": None, "max_epoch": 1, "eval_interval": -1, "log_interval": 1}
    assert start(train_steps=1, **keys) == 0
    assert start(train_steps=1, resume=True, **keys) == 0
    assert "other splits" not in capsys.readouterr().err
    preprocess(seed=2, splits=("train1",))
    assert start(train_steps=1, resume=True, **keys) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "train_subset selects other splits than at the checkpoint (train1.pt: new)" in told
    assert "the run keeps its 7 updates" in told
    assert start(resume=True, **{**keys, "train_subset": ["train", "train1"]}) == 0
    assert "training to step 15 of 15" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "again", "told"),
    [
        (1, {"seed": 2}, ""),  # the first pass is in order, whatever the seed
        (2, {"seed": 2}, ""),
        (3, {"seed": 2}, "seed: was 1, and is 2. Pass 2 over the shards has begun"),
        (1, {"train_subset": ["dev", "train"]}, "Pass 1 over the shards has begun, and its rest has others now"),
    ],
)
def test_another_order_of_the_shards_is_told_within_a_pass(
    steps: int, again: dict[str, Any], told: str, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"lazy_load": True, "train_subset": ["train", "dev"], "valid_subset": "dev", "seed": 1, "max_update": 6}
    keys["batch_size"] = 59  # a shard is an update
    assert start(train_steps=steps, **keys) == 0
    capsys.readouterr()
    assert start(resume=True, **{**keys, **again}) == 0
    warned = " ".join(capsys.readouterr().err.split())
    assert told in warned if told else "over the shards" not in warned


def scarce(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let BERT have memory for so many rows only."""
    forward = BertClassification.forward

    def limited(self: Any, input_ids: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(self, input_ids, *rest, **more)

    monkeypatch.setattr(BertClassification, "forward", limited)
    gc.freeze()  # every shortage collects garbage: what other tests have left in this process need not be traversed


def test_with_auto_ga_a_run_goes_on_in_parts_and_remembers_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start("ample") == 0
    scarce(monkeypatch, most=3)
    assert start("scarce", auto_ga=True) == 0
    told = "memory ran out in update 1: from now on each batch is split into 4 parts"
    assert Path("scarce/log.txt").read_text().count(told) == 1
    assert start("run", auto_ga=True, train_steps=4) == 0
    capsys.readouterr()
    assert start("run", auto_ga=True, resume=True) == 0
    assert "memory ran out in update" not in capsys.readouterr().err
    assert Path("run/checkpoint-8.pt").read_bytes() == Path("scarce/checkpoint-8.pt").read_bytes()
    ample, found = weights("ample"), weights("scarce")
    assert all(torch.allclose(found[name], value, atol=1e-5) for name, value in ample.items())


def test_without_auto_ga_one_sentence_says_what_helps(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scarce(monkeypatch, most=3)
    assert start() == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert all(remedy in error for remedy in ("auto_ga: true", "batch_size", "update_freq", "max_len"))
