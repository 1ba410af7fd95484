"""Vocabularies of SentencePiece, as those of C4 are: made here, given as somebody gives them who comes from Pax."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import SentencePiece
from xdpx.main import main

TEXTS = [f"the {number} quick brown foxes jump over {number % 7} lazy dogs" for number in range(200)]


def trained(folder: Path, **options: int) -> str:
    """Train a vocabulary; by default its unknown piece is 0, begin 1, end 2."""
    sentencepiece = pytest.importorskip("sentencepiece")
    (folder / "text.txt").write_text("\n".join(TEXTS))
    ids = {f"{name}_id": number for name, number in options.items()}
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"), model_prefix=str(folder / "small"), vocab_size=58, minloglevel=2, **ids
    )
    return str(folder / "small.model")


def test_texts_go_to_ids_and_back(tmp_path: Path) -> None:
    codec = SentencePiece(model_file=trained(tmp_path))
    rows = codec.encode([TEXTS[3], "", "dogs"])
    assert [codec.decode(rows.row(index).tolist()) for index in range(3)] == [TEXTS[3], "", "dogs"]
    assert rows.values.dtype == "int32"
    assert (codec.vocab_size, codec.end) == (58, 2)
    assert len(codec.digest) == 64
    assert codec.decode([99, 2]) == codec.decode([0, 2])


@pytest.mark.parametrize("named_by", ["small.model", ""])
def test_a_recipe_ends_texts_as_the_vocabulary_says(
    named_by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path)
    words = [f"--set={field}" for field in (
        f"TRAIN_DATA={tmp_path}/text.txt", f"VOCABULARY={tmp_path / named_by}", "MAX_SEQ_LEN=64", "VOCAB_SIZE=64",
        "PERCORE_BATCH_SIZE=2", "ICI_MESH_SHAPE=[1,1,1]",
    )]  # fmt: skip
    assert main(["C4Spmd1BAdam4Replicas", "--peek", *words]) == 0
    told = capsys.readouterr().out
    assert "quick brown foxes jump over" in told
    assert main(["C4Spmd1BAdam4Replicas", "--describe", *words]) == 0
    from xdpx.experiments.fields import with_values
    from xdpx.experiments.registry import resolve

    fields = dict(word.removeprefix("--set=").split("=", 1) for word in words)
    data = with_values(resolve("C4Spmd1BAdam4Replicas"), fields)().datasets()[0].Instantiate()
    batch = data.get_next()
    ends = batch.ids[(batch.weights == 0) & (batch.segment_ids > 0)]
    assert set(ends.tolist()) == {2}


def test_what_is_no_such_vocabulary_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.model").write_text("a letter, and no model of anything at all.")
    pytest.importorskip("sentencepiece")
    with pytest.raises(ConfigError, match=r"bad.model' is not a SentencePiece model \(42 bytes\). Give the .model"):
        SentencePiece(model_file=str(tmp_path / "bad.model")).encode(["a"])
    with pytest.raises(ConfigError, match=r"has no end-of-text piece. Train it with one"):
        SentencePiece(model_file=trained(tmp_path, eos=-1)).end  # noqa: B018 - read by being asked
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ConfigError, match=r"needs the package sentencepiece. Install it: pip install 'xdpx\[sentence"):
        SentencePiece(model_file=str(tmp_path / "small.model")).encode(["a"])


def test_without_the_extra_a_job_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "v.model").write_bytes(b"x")
    words = [f"--set=TRAIN_DATA={tmp_path}/text.txt", f"--set=VOCABULARY={tmp_path}/v.model"]
    assert main(["C4Spmd1BAdam4Replicas", "--peek", *words]) == 2
    assert "needs the package sentencepiece. Install it: pip install 'xdpx[sentencepiece]'." in capsys.readouterr().err
