from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from xdpx.checkpoints.spmd_folders import read_metadata
from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs.ahead_of_time import build_input
from xdpx.datasets.inputs.multi_input import MultiInput
from xdpx.datasets.inputs.seqio_input import SeqIOInput
from xdpx.datasets.inputs.seqio_tasks import Task
from xdpx.experiments.running import run
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import Parts, build_parts
from xdpx.experiments.running.vocabularies import (
    refuse_changed_vocabulary,
    refuse_unknown_vocabulary,
    vocabularies_of,
    warn_of_other_ends,
)

QUIET: dict[str, Any] = {"plots": False, "enable_summary_writer": False}
CHECKPOINT = "job/checkpoints/checkpoint_00000001"


@pytest.fixture(scope="module")
def spoken(tiny: ModuleType) -> Any:
    """The tiny experiment, whose inputs tell the vocabularies that its fields name."""

    class Told(tiny.Characters):  # type: ignore[name-defined, misc]
        class HParams(tiny.Characters.HParams):  # type: ignore[name-defined, misc]
            vocabulary: str | None = None

        def tokenizer_digest(self, key: str | None = None) -> str | None:
            digest: str | None = self.hparams.vocabulary
            return digest

    class Spoken(tiny.Tiny):  # type: ignore[name-defined, misc]
        TRAIN: str | None = "a" * 64
        DEV: str | None = "a" * 64

        def datasets(self) -> list[Any]:
            train = Told.HParams(name="train", batch_size=4, is_training=True, vocabulary=self.TRAIN)
            window: Any = {"num_batches": 2, "eval_window": "full_epoch"}
            return [train, Told.HParams(name="text", batch_size=4, vocabulary=self.DEV, **window)]

    return Spoken


def parts_of(experiment: Any, **options: Any) -> Parts:
    return build_parts(experiment, options_of("job", {"mode": "eval", **options}))


def test_a_job_with_another_vocabulary_is_refused_in_all_modes(spoken: Any, tmp_path: Path) -> None:
    folder = str(tmp_path / "job")
    assert run(spoken(STEPS=1, EVAL=0), job_log_dir=folder, **QUIET) == 0
    facts = read_metadata(f"{tmp_path}/{CHECKPOINT}")["facts"]
    assert facts["vocabularies"] == {"": {"digest": "a" * 64, "num_tokens": None}}
    for mode in ("train", "eval"):
        with pytest.raises(ConfigError, match=r"(?s)digest bbbbbbbb; it was .*digest aaaaaaaa.*Restore the file"):
            run(
                spoken(STEPS=2, EVAL=0, TRAIN="b" * 64, DEV="b" * 64),
                job_log_dir=folder,
                mode=mode,
                watch=False,
                **QUIET,
            )
    assert not (tmp_path / "job/eval_out").exists()


def test_checkpoints_and_inputs_without_a_vocabulary_go_on_as_before(spoken: Any) -> None:
    parts = parts_of(spoken())
    [evaluated], trained = parts.eval_inputs(), parts.training_input()
    earlier: tuple[dict[str, Any], ...] = ({}, {"vocabularies": {}})
    for facts in earlier:  # of an earlier version, and of an input that tells none
        refuse_changed_vocabulary(parts, trained, facts, CHECKPOINT)
        refuse_unknown_vocabulary(parts, evaluated, facts, CHECKPOINT)
    known = {"vocabularies": {"": {"digest": "c" * 64, "num_tokens": 9}}}
    silent = parts_of(spoken(TRAIN=None, DEV=None))
    refuse_changed_vocabulary(silent, silent.training_input(), known, CHECKPOINT)
    refuse_unknown_vocabulary(silent, silent.eval_inputs()[0], known, CHECKPOINT)


def test_an_evaluation_may_have_another_vocabulary_than_training_if_that_of_training_is_as_it_was(spoken: Any) -> None:
    facts = {"vocabularies": {"": {"digest": "a" * 64, "num_tokens": 9}}}
    same, changed = parts_of(spoken(DEV="b" * 64)), parts_of(spoken(TRAIN="b" * 64, DEV="b" * 64))
    refuse_unknown_vocabulary(same, same.eval_inputs()[0], facts, CHECKPOINT)
    with pytest.raises(ConfigError, match="vocabulary of text: is not the vocabulary that job/"):
        refuse_unknown_vocabulary(changed, changed.eval_inputs()[0], facts, CHECKPOINT)


def test_each_input_of_several_is_asked_for_its_vocabulary_also_behind_a_thread(spoken: Any) -> None:
    of_training, of_evaluation = spoken(DEV="b" * 64).datasets()
    several = MultiInput.HParams(
        inputs={"src": of_training, "tgt": of_evaluation.clone().set(vocabulary=None)}, prefetch=2
    )
    several.set(batch_size=4, is_training=True)
    assert vocabularies_of(build_input(several)) == {"src": {"digest": "a" * 64, "num_tokens": None}}


def test_decoding_that_does_not_stop_where_texts_end_is_told(
    tiny: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ending(tiny.Tiny):  # type: ignore[name-defined, misc]
        END: int = 7
        STOPS: Any = 1

        def task(self) -> Any:
            task = super().task()
            task.model.decoder_tpl.eos_id = self.STOPS
            return task

        def datasets(self) -> list[Any]:
            text = Task.HParams(name="ending", features={"targets": "x"}, add_eos=("targets",), eos_id=self.END)
            lengths = {"targets": tiny.LENGTH}
            return [SeqIOInput.HParams(mixture_or_task=text, task_feature_lengths=lengths, is_training=True)]

        def input_specs(self) -> Any:
            return tiny.Tiny().input_specs()

    for stops, told in ((1, 1), (7, 0), ((1, 7), 0), (None, 0)):
        warn_of_other_ends(parts_of(Ending(STOPS=stops), **{"mode": "decode_once"}))
        assert (
            capsys.readouterr().err.count("decoding stops at id 1, but the texts of the training input end with 7")
            == told
        )
