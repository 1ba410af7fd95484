"""Networks in files: TorchScript as torch has it, and a SavedModel behind the few calls of TensorFlow that it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.models import models

SAVED = {"model_path": "there", "output_name": "prob", "pretrained_model": None}


def build(name: str, **keys: Any) -> Any:
    kind = models[name]
    return kind(kind.Parameters(**keys))


def test_what_is_no_torchscript_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(b"no program")
    with pytest.raises(ConfigError, match=r"model\.pth', which is not TorchScript: .*export_torchscript wrote"):
        build("torchscript", model_path=str(tmp_path))


def test_a_saved_model_without_tensorflow_is_one_sentence_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ConfigError, match=r"needs TensorFlow\. Install it: pip install 'xdpx\[tf\]'"):
        build("savedmodel", **SAVED)


class Held:
    """A tensor of TensorFlow."""

    def __init__(self, value: Any, dtype: Any = None) -> None:
        self.value, self.dtype = value, dtype

    def numpy(self) -> Any:
        return self.value


class Signature:
    """Gives, for each text, how many words it has, as probabilities of two classes."""

    structured_input_signature = ((), {"q1": SimpleNamespace(dtype="string"), "training": SimpleNamespace(dtype=None)})

    def __call__(self, q1: Held, training: Held) -> dict[str, Held]:
        assert training.value is False
        share = np.array([len(text.split()) / 10 for text in q1.value], np.float32)
        return {"prob": Held(np.stack([1 - share, share], axis=1))}


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = ModuleType("tensorflow")
    found.string, found.constant = "string", Held
    loaded = SimpleNamespace(signatures={"serving_default": Signature()})
    found.saved_model = SimpleNamespace(load=lambda path: loaded)
    monkeypatch.setitem(sys.modules, "tensorflow", found)


FEED: dict[str, Any] = {"input_name_map": {"tokens": "q1"}, "input_flags": {"training": False}}


def test_a_saved_model_reads_the_text_of_the_rows_and_gives_logits(tensorflow: None, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\nb\n")
    there = {**SAVED, "model_path": str(tmp_path)}
    made = build("savedmodel", **there, **FEED, data_dir=str(tmp_path), output_kind="probabilities")
    ids = torch.tensor([[2, 3, 2], [3, 0, 0]])
    prob = made(tokens=ids, mask=ids > 0).softmax(dim=-1)
    torch.testing.assert_close(prob, torch.tensor([[0.7, 0.3], [0.9, 0.1]]))
    with pytest.raises(ConfigError, match="cannot be trained"):
        made.parameter_groups(0.1)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"signature_def_key": "other"}, "is 'other', but there are: serving_default"),
        ({"output_name": "logits", **FEED}, "is 'logits', but it gives: prob"),
        ({"input_flags": {"training": False}}, "leaves q1 unset; the processor gives tokens, mask"),
    ],
)
def test_what_a_saved_model_lacks_is_named_with_what_it_has(
    tensorflow: None, tmp_path: Path, keys: dict[str, Any], problem: str
) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\nb\n")
    ids = torch.tensor([[2, 3]])
    with pytest.raises(ConfigError, match=problem):
        build("savedmodel", **{**SAVED, "model_path": str(tmp_path), "data_dir": str(tmp_path), **keys})(
            tokens=ids, mask=ids > 0
        )
