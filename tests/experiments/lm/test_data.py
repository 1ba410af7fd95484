"""Inputs of the shipped experiments: batches are what the experiment says they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import build
from xdpx.datasets.inputs import with_hosts
from xdpx.experiments.lm.data import rows_per_host
from xdpx.experiments.planning import specs_of
from xdpx.experiments.registry import resolve

SMALL: dict[str, Any] = {"MAX_SEQ_LEN": 16, "ICI_MESH_SHAPE": (1, 1, 1), "PERCORE_BATCH_SIZE": 4}


@pytest.fixture
def text(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line {number} of a text\n" for number in range(40)))
    return {"TRAIN_DATA": str(file), "EVAL_DATA": str(file), "VOCABULARY": "characters"}


def check(experiment: Any) -> list[Any]:
    inputs = [build(template) for template in experiment.datasets()]
    for data in inputs:
        batch = data.get_next()
        for name, leaf in specs_of(experiment).items():
            assert (batch[name].shape, batch[name].dtype) == (leaf.shape, leaf.dtype)
    return inputs


@pytest.mark.parametrize("name", ["LmCloudSpmd2B", "LmCloudTransformerAdam"])
def test_synthetic_batches_are_those_of_the_specs(name: str) -> None:
    inputs = check(resolve(name)(VOCAB_SIZE=64, **SMALL))
    assert [data.name for data in inputs] == ["train", "synthetic"]


def test_vectors_have_classes_that_follow_from_them() -> None:
    training, evaluation = check(resolve("SmallMlp")(INPUT_DIMS=8, ICI_MESH_SHAPE=(1, 1, 1)))
    first, second = training.get_next(), training.get_next()
    assert not np.array_equal(first.inputs, second.inputs)
    assert set(np.unique(first.class_ids)) <= set(range(8))
    evaluation.reset()
    again = evaluation.get_next()
    evaluation.reset()
    assert np.array_equal(evaluation.get_next().inputs, again.inputs)


def test_vectors_go_on_from_a_place_and_are_shared_among_hosts() -> None:
    template = resolve("SmallMlp")(INPUT_DIMS=8, ICI_MESH_SHAPE=(1, 1, 1)).datasets()[0]
    whole = build(template)
    batches = [whole.get_next() for _ in range(3)]
    halves = [build(with_hosts(template.clone().set(batch_size=template.batch_size // 2), host, 2)) for host in (0, 1)]
    for half in halves:
        half.set_state({"batches": 2})
    rows = np.concatenate([half.get_next().inputs for half in halves])
    assert np.array_equal(rows, batches[2].inputs)
    assert halves[0].get_state() == whole.get_state() == {"batches": 3}


def test_text_is_packed_for_training_and_whole_for_evaluation(text: dict[str, Any]) -> None:
    training, evaluation = check(resolve("C4SpmdAdam")(**SMALL | {"MAX_SEQ_LEN": 64}, **text))
    assert training.get_next().segment_ids.max() > 1
    assert evaluation.get_next().segment_ids.max() == 1
    assert "line" in training.ids_to_strings(training.get_next().ids, np.full(4, 64))[0]


def test_text_that_nobody_named_is_asked_for(text: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve("C4SpmdAdam")().datasets()
    assert "--set TRAIN_DATA=..." in str(raised.value)
    assert "--set VOCABULARY=..." in str(raised.value)
    del text["EVAL_DATA"]
    assert len(resolve("C4SpmdAdam")(**SMALL, **text).datasets()) == 1


def test_text_that_is_not_there_is_told_before_anything_starts(text: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="EVAL_DATA: is '/no/where.txt', which does not exist"):
        resolve("C4SpmdAdam")(**SMALL | text | {"EVAL_DATA": "/no/where.txt"}).datasets()


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(text: dict[str, Any], tmp_path: Path) -> None:
    from xdpx.experiments.running import run

    sizes = {"VOCAB_SIZE": 8, "NUM_LAYERS": 1, "MODEL_DIMS": 16, "DIMS_PER_HEAD": 8, "NUM_HEADS": 2}
    with pytest.raises(ConfigError, match="is 8 in the model.*--set VOCAB_SIZE=128"):
        run(resolve("C4SpmdAdam")(**SMALL | text | sizes), job_log_dir=str(tmp_path / "job"))


def _tokenizer(folder: Path, tokens: str) -> str:
    words = WordLevel({token: index for index, token in enumerate(tokens.split())}, unk_token=tokens.split()[0])
    Tokenizer(words).save(str(folder / "tokenizer.json"))
    return str(folder)


@pytest.mark.parametrize(
    ("tokens", "end"), [("[PAD] [unused0] a", 1), ("! a </s> <s>", 2), ("<pad> <s> a <|endoftext|>", 3)]
)
def test_texts_end_with_the_token_that_the_vocabulary_has_for_it(
    text: dict[str, Any], tmp_path: Path, tokens: str, end: int
) -> None:
    given = SMALL | text | {"VOCABULARY": _tokenizer(tmp_path, tokens)}
    assert [data.mixture_or_task.eos_id for data in resolve("C4SpmdAdam")(**given).datasets()] == [end, end]


@pytest.mark.parametrize("tokens", ["! a b", "[PAD] [UNK] a"])
def test_a_part_of_a_text_is_no_end_unless_that_is_asked_for(text: dict[str, Any], tmp_path: Path, tokens: str) -> None:
    given = SMALL | text | {"VOCABULARY": _tokenizer(tmp_path, tokens)}
    with pytest.raises(ConfigError, match="EOS_ID: is not set; the vocabulary names no end of a text"):
        resolve("C4SpmdAdam")(**given).datasets()
    assert resolve("C4SpmdAdam")(**given, EOS_ID=1).datasets()[0].mixture_or_task.eos_id == 1
    with pytest.raises(ConfigError, match="EOS_ID: is 3, but the ids of the vocabulary are 0 to 2"):
        resolve("C4SpmdAdam")(**given, EOS_ID=3).datasets()


def test_one_process_reads_the_whole_batch() -> None:
    assert rows_per_host(resolve("LmCloudSpmdPipeline175B")()) == 96
