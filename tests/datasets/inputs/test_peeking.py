from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from xdpx.datasets.inputs import (
    Arrays,
    Characters,
    LanguageModelFeatures,
    MultiInput,
    SeqIOInput,
    SequenceModelFeatures,
    Task,
    peek_input,
    peek_inputs,
    warn_about,
    warnings_about,
)

Make = Callable[..., Any]


def text_input(alphabet: str = "abcdef", **fields: Any) -> Any:
    task = Task.HParams(
        name="t",
        source=Arrays.HParams(columns={"inputs": ["ab", "c", "de"], "targets": ["f", "fa", "b"]}),
        vocabulary=Characters.HParams(alphabet=alphabet),
    )
    options = {"batch_size": 2, "task_feature_lengths": {"inputs": 3, "targets": 3}, "eval_window": "full_epoch"}
    return SeqIOInput.HParams(mixture_or_task=task, **{**options, **fields})


def test_rows_of_one_host_are_shown_as_texts() -> None:
    lines = list(peek_input(text_input(), host=0, num_hosts=1, num_batches=5))
    assert lines[0] == "input: host 0 of 1"
    assert "labels int32[2, 6]" in lines[1]
    assert lines[2] == "  labels[0] (example 0 of shard 0): 'abf'"
    assert "  labels[1] (weight 0): 'abf'" not in lines[:4]
    assert lines[5:7] == [
        "  labels[0] (example 2 of shard 0): 'deb'",
        "  labels[1] (example -1 of shard -1, weight 0): 'abf'",
    ]
    assert lines[7] == "The data end after 2 batches."


def test_another_host_sees_other_rows() -> None:
    lines = list(peek_input(text_input(batch_size=1), host=1, num_hosts=2))
    assert lines[0] == "input: host 1 of 2"
    assert lines[2].endswith("'cfa'")


def test_source_and_target_are_shown() -> None:
    lines = list(peek_input(text_input(feature_converter=SequenceModelFeatures.HParams())))
    assert [line.strip().split(" ")[0] for line in lines[2:]] == [
        "src.ids[0]",
        "src.ids[1]",
        "tgt.labels[0]",
        "tgt.labels[1]",
    ]
    assert lines[2].endswith("'ab'")


def test_children_are_shown_under_their_names(numbered: Make) -> None:
    p = MultiInput.HParams(inputs={"one": numbered(4, batch_size=2, is_training=True)}, is_training=True)
    lines = list(peek_input(p, num_hosts=2, host=1))
    assert lines[2].startswith("  one.labels[0]")


def test_a_long_text_is_cut(numbered: Make) -> None:
    p = numbered(4, tokens=300, batch_size=1, is_training=True, input_random_seed=1)
    p.mixture_or_task.source.columns = {"targets": [[7] * 300] * 4}
    assert max(map(len, peek_input(p))) < 300


def test_different_tokenizers_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [text_input(name="train", is_training=True), text_input("fedcba", name="dev"), text_input(name="test")]
    built = [p.Instantiate() for p in inputs]
    (sentence,) = warnings_about(built)
    assert "dev and train have different tokenizers" in sentence
    warn_about(built)
    assert "different tokenizers" in capsys.readouterr().err
    assert warnings_about([built[0], built[2]]) == []


def test_what_looks_wrong_with_the_inputs_stands_behind_their_rows() -> None:
    lines = list(peek_inputs([text_input(name="one"), text_input("fedcba", name="two")], host=1, num_hosts=2))
    assert [line for line in lines if line.endswith("host 1 of 2")] == ["one: host 1 of 2", "two: host 1 of 2"]
    assert lines[-1].startswith("warning: two and one have different tokenizers")


def test_a_fixed_seed_whose_place_is_not_kept_is_warned_of(numbered: Make) -> None:
    p = numbered(4, batch_size=2, is_training=True, input_random_seed=3, input_checkpointing_enabled=False)
    (sentence,) = warnings_about([p.Instantiate()])
    assert "input_random_seed=3 is fixed" in sentence
    assert warnings_about([p.set(input_checkpointing_enabled=True).Instantiate()]) == []
    assert warnings_about([p.set(input_checkpointing_enabled=False, input_random_seed=None).Instantiate()]) == []


def test_converters_without_a_prompt_are_shown_too(numbered: Make) -> None:
    p = numbered(4, batch_size=2, is_training=True)
    assert isinstance(p.feature_converter, LanguageModelFeatures.HParams)
    assert any(line.startswith("  labels[0]") for line in peek_input(p))
