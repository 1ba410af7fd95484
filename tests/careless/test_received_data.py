"""Data and runs that somebody else sent say what they are; they decide nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from xdpx import run as door
from xdpx.config import catalogue, data_keys
from xdpx.config.reading import read_runs
from xdpx.datasets.meta import read_meta
from xdpx.utils.manifests import DamagedManifest, FileFacts, Manifest

TRAIN = """{
  __parent__: data/meta
  data_dir: data
  save_dir: new
  batch_size: 4
  max_epoch: 1
  eval_interval: -1
  major_metric: acc
  learning_rate: 0.1
  loss: cross_entropy
  model: cls_cnn
  embedding_dim: 4
  hidden_size: 4
  encoder_layers: 1
}
"""


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed data, and the config that trains on them."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / "raw").mkdir()
    for name, rows in {"train": 24, "dev": 8}.items():
        lines = [f"{'good' if row % 2 else 'bad'} film {row}\t{row % 2}\n" for row in range(rows)]
        (folder / "raw" / f"{name}.txt").write_text("".join(lines))
    keys = ["loader=single", "processor=single", "tokenizer=space", "max_len=16", "workers=1"]
    assert door.main(["x-prepro", f"data_source={folder}/raw", f"data_dir={folder}/data", *keys]) == 0
    (folder / "train.hjson").write_text(TRAIN)
    return folder


@pytest.fixture(autouse=True)
def desk(sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which they arrived."""
    shutil.copytree(sent, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")
    return tmp_path / "desk"


def say(desk: Path, **keys: Any) -> None:
    """Add keys to the meta data, as somebody could who sends them."""
    path = desk / "data/meta.hjson"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def test_what_prepro_wrote_is_taken() -> None:
    assert door.main(["x-train", "train.hjson", "--dry"]) == 0


HOSTILE: dict[str, Any] = {
    "overwrite": True,
    "save_dir": "precious",
    "callbacks": ["os:system"],
    "resume": "auto",
    "pretrained_model": "http://example.invalid/model",
    "model": "cls_rnn",
    "batch_size": 1,
    "log_file": "other.txt",
    "deepspeed_save_dir": "/",
    "save_above_score": 0.1,
}


@pytest.mark.parametrize("key", HOSTILE)
def test_a_received_meta_sets_no_key_that_acts(key: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TRAIN.replace(f"  {key}: ", f"  // {key}: ")
    (desk / "train.hjson").write_text(config)
    say(desk, **{key: HOSTILE[key]})
    assert door.main(["x-train", "train.hjson", "--dry"]) == 2
    assert f"  {key} (data/meta.hjson:1): comes with the data" in capsys.readouterr().err


def test_overwrite_in_a_received_meta_deletes_no_finished_run(desk: Path) -> None:
    assert door.main(["x-train", "train.hjson", "cuda=false"]) == 0
    before = {file.name: file.read_bytes() for file in (desk / "new").iterdir() if file.is_file()}
    say(desk, overwrite=True)
    assert door.main(["x-train", "train.hjson", "cuda=false", "learning_rate=0.2"]) == 2
    assert {file.name: file.read_bytes() for file in (desk / "new").iterdir() if file.is_file()} == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("__parent__", "http://127.0.0.1:9/x.hjson"), ("__parent__", "../other"), ("__def__", {"a": 1}), ("__gpu__", 8)],
)
def test_a_received_meta_has_neither_parents_nor_macros(
    key: str, value: Any, desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(desk, **{key: value})
    assert door.main(["x-train", "train.hjson", "--dry"]) == 2
    assert f"{key} (data/meta.hjson:1): comes with data" in capsys.readouterr().err


def test_a_meta_is_data_by_its_name_even_without_its_version(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = desk / "data/meta.hjson"
    meta = {key: value for key, value in json.loads(path.read_text()).items() if key != "__version__"}
    path.write_text(json.dumps({**meta, "overwrite": True}))
    assert door.main(["x-train", "train.hjson", "--dry"]) == 2
    assert "overwrite" in capsys.readouterr().err


def test_a_received_meta_stands_for_one_run(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = desk / "data/meta.hjson"
    path.write_text(json.dumps([json.loads(path.read_text()), {}]))
    assert door.main(["x-train", "train.hjson", "--dry"]) == 2
    assert "data/meta.hjson: describes 2 runs" in capsys.readouterr().err


def test_a_key_that_acts_is_refused_behind_the_prefix_of_a_teacher_too(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(desk, teacher_model="cls_rnn")
    keys = ["task=distill", "loss=distill", "teacher_embedding_dim=4", "teacher_hidden_size=4"]
    assert door.main(["x-train", "train.hjson", *keys, "--dry"]) == 2
    assert "teacher_model (data/meta.hjson:1): comes with the data" in capsys.readouterr().err


def test_a_part_of_a_dict_that_came_with_data_is_refused_under_a_part_that_did_not(desk: Path) -> None:
    say(desk, extra_config={"weights": "http://example.invalid"})
    (desk / "a.hjson").write_text("{__parent__: data/meta\n extra_config: {a: 1}}")
    for overrides in ([], ["extra_config.b=1"]):
        (run,) = read_runs("a.hjson", overrides)
        assert "extra_config" in run.from_data
    (run,) = read_runs("a.hjson", ["extra_config={}"])
    assert "extra_config" not in run.from_data


def test_labels_that_look_like_references_are_taken_as_they_stand(desk: Path) -> None:
    say(desk, tags=["${__commit_hash__}", "O"])
    (run,) = read_runs("train.hjson")
    assert run.values["tags"] == ["${__commit_hash__}", "O"]


def test_a_file_named_by_a_received_meta_is_not_fetched_from_elsewhere(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(desk, processor="bert_lm", freq_weighted_replacement="http://127.0.0.1:9/counts.txt")
    door.main(["x-train", "train.hjson", "model=bert_lm", "loss=masked_lm", "processor=bert_lm", "--dry"])
    told = capsys.readouterr().err
    assert "freq_weighted_replacement (data/meta.hjson:1): comes with the data and points elsewhere" in told
    assert "gave up" not in told


def test_every_key_of_every_processor_may_come_with_data() -> None:
    declared = {
        item.key for name in catalogue.names("processor") for item in catalogue.entry("processor", name).parameters
    }
    assert declared <= data_keys.processor_keys()
    acting = {item.key for item in catalogue.entry("command", "x-train").parameters} - data_keys.DATA_KEYS
    assert not acting & data_keys.processor_keys()


def test_splits_outside_of_the_data_are_refused(desk: Path) -> None:
    say(desk, data_size={"../../elsewhere/train": 3})
    with pytest.raises(ValueError, match="outside of its folder"):
        read_meta("data")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_a_manifest_that_names_files_outside_of_its_folder_counts_as_damaged(name: str) -> None:
    data = Manifest("run", {name: FileFacts(1, "0")}, {}, "host-1-a").to_bytes()
    with pytest.raises(DamagedManifest, match="outside"):
        Manifest.from_bytes(data)


def test_only_the_config_itself_names_parents_on_the_network(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "received.hjson").write_text("{__parent__: 'http://127.0.0.1:9/x.hjson'}")
    (desk / "a.hjson").write_text("{__parent__: received}")
    assert door.main(["x-train", "a.hjson", "--dry"]) == 2
    told = capsys.readouterr().err
    assert "'http://127.0.0.1:9/x.hjson' is on the network. If you trust it, name it in a.hjson itself." in told


def test_an_address_in_a_received_run_is_not_followed(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "run").mkdir()
    values = {"data_dir": "http://127.0.0.1:9/data", "save_dir": "run", "model": "cls_cnn", "processor": "single"}
    (desk / "run/args.py").write_text(repr(values))
    (desk / "run/checkpoint-1.pt").write_bytes(b"")
    for command in (["x-eval", "valid_subset=dev"], ["x-pred", "predict_file_map={dev: out.txt}"]):
        code = door.main([*command, "save_dir=run", "checkpoint=run/checkpoint-1.pt"])
        told = capsys.readouterr().err
        assert code == 2, told
        assert "data_dir: is http://127.0.0.1:9/data in run/args.py" in told
