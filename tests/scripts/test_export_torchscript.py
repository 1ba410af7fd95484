"""A light network leaves as one small file that gives the same logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.inference import probes, tracing
from xdpx.processors import processors
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "very"]


def test_the_file_gives_the_logits_of_the_network(
    light: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    config = {"save_dir": str(light.run), "checkpoint": "<last>", "out_dir": str(out)}
    (tmp_path / "export.json").write_text(json.dumps(config))
    assert main(["export_torchscript", str(tmp_path / "export.json")]) == 0
    text = capsys.readouterr().out
    assert "KiB; inputs: " in text
    assert "ms for a text of 8 tokens, on one thread (median of 50)" in text
    assert (out / "vocab.txt").read_text().split() == WORDS
    assert (out / "labels.txt").read_text() == "neg\npos\n"
    assert len(json.loads((out / "inputs.json").read_text())["inputs"]) == len(light.inputs)
    assert torch.allclose(torch.jit.load(str(out / "model.pth"))(*light.inputs), light.model(*light.inputs), atol=1e-5)


class DecidesByLength(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float() if tokens.shape[1] > 3 else -tokens.float()


class DecidesByWords(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float() if bool((tokens[:, 0] == tokens[:, 1]).all()) else -tokens.float()


class DecidesByARareWord(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = tokens.float() if tokens.shape[1] else tokens.float().neg()
        return -logits if bool((tokens == 9).any()) else logits


class CountsInNumPy(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens + float((tokens.numpy() == 9).sum())


class Twins(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens.float(), tokens.float()


def test_several_outputs_are_followed() -> None:
    assert len(tracing.trace(Twins(), [(torch.ones(1, 2),)], what="Twins")(torch.ones(2, 2))) == 2


def test_the_words_of_a_probe_differ_and_are_no_padding() -> None:
    kind = processors["single"]
    probe = probes.sample_inputs(kind(kind.Parameters(max_len=9), vocabulary=Vocabulary(WORDS)), [4, 3])
    assert probe["tokens"].tolist() == [[1, 2, 3, 4], [5, 1, 2, 0]]
    with pytest.raises(ConfigError, match="DecidesByWords traced computes other logits"):
        tracing.trace(DecidesByWords(), [(torch.ones(2, 2),), (probe["tokens"][:, :2],)], what="DecidesByWords")


def test_a_network_that_decides_by_the_length_is_refused() -> None:
    long, short = ((torch.ones(1, length),) for length in (5, 2))
    with pytest.raises(
        ConfigError, match=r"DecidesByLength traced computes other logits for an input of shape \(1, 2\)"
    ):
        tracing.trace(DecidesByLength(), [long, short], what="DecidesByLength")


@pytest.mark.parametrize("network", [DecidesByARareWord(), CountsInNumPy()])
def test_a_decision_by_words_that_no_batch_shows_is_warned_of(
    network: torch.nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    tracing.trace(network, [(torch.ones(1, 2),), (torch.ones(2, 3),)], what="Rare")
    told = capsys.readouterr()
    assert (told.out + told.err).count("Rare converts values of its input to Python there") == 1


def test_a_decision_by_the_size_alone_is_not_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    tracing.trace(DecidesByLength(), [(torch.ones(1, 2),), (torch.ones(2, 3),)], what="Length")
    told = capsys.readouterr()
    assert not told.out + told.err
