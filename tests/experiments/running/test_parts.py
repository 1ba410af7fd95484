from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.inputs import IterableAdaptor
from xdpx.datasets.inputs.base_input import BaseInput
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.running import run
from xdpx.experiments.running.batches import check_batch, check_content
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts
from xdpx.models.spmd.layers.encoder_decoder import TransformerEncoderDecoder
from xdpx.models.spmd.sequence_model import SequenceModel
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.utils.nested_map import NestedMap


def pairs() -> Iterator[Any]:
    ids = np.ones((2, 3), np.int32)
    part = {"ids": ids, "paddings": np.zeros((2, 3), np.float32)}
    while True:
        yield {"src": dict(part), "tgt": {**part, "labels": ids, "weights": np.ones((2, 3), np.float32)}}


class Translating(BaseExperiment):
    """Batches with maps inside, whose shapes only the input knows."""

    def task(self) -> Any:
        network = TransformerEncoderDecoder.HParams(vocab_size=8, model_dims=4, hidden_dims=4)
        return SingleTask.HParams(name="translating", model=SequenceModel.HParams(model_tpl=network))

    def datasets(self) -> list[Any]:
        return [IterableAdaptor.HParams(input=pairs, is_training=True)]


def test_maps_inside_a_batch_are_checked_and_counted(tmp_path: Path) -> None:
    parts = build_parts(Translating(ICI_MESH_SHAPE=(1, 1, 1)), options_of(tmp_path / "job", {}))
    data = parts.training_input()
    batch: Any = data.get_next()
    check_batch(batch, parts)
    assert check_content(batch, parts, data) is batch
    assert (parts.rows, parts.efficiency().tokens_per_step) == (2, 12)
    batch.src["ids"] = batch.src.ids + 7
    with pytest.raises(ConfigError, match=r"train.src.ids: has the id 8, but those of the model are 0 to 7"):
        check_content(batch, parts, data)
    del batch.tgt["labels"]
    with pytest.raises(ConfigError, match=r"input_specs.tgt.labels: is not in the batch"):
        check_batch(batch, parts)


def test_shapes_that_only_the_input_knows_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdpx.experiments.running.parts.infeed", lambda rules, mesh: (0, 3))
    parts = build_parts(Translating(ICI_MESH_SHAPE=(1, 1, 1)), options_of(tmp_path / "job", {}))
    assert parts.spec.src.ids.shape == (6, 3)
    check_batch(parts.training_input().get_next(), parts)


def test_an_input_knows_its_host_when_it_is_asked_for_its_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shared(BaseInput):
        def get_next(self) -> NestedMap:
            mine = slice(self.hparams.infeed_host_index, None, self.hparams.num_infeed_hosts)
            return NestedMap.FromNestedDict(next(pairs())).Transform(lambda array: array[mine])

    class Sharing(Translating):
        def datasets(self) -> list[Any]:
            return [Shared.HParams(is_training=True)]

    monkeypatch.setattr("xdpx.experiments.running.parts.infeed", lambda rules, mesh: (1, 2))
    parts = build_parts(Sharing(ICI_MESH_SHAPE=(1, 1, 1)), options_of(tmp_path / "job", {}))
    assert parts.spec.src.ids.shape == (2, 3)
    check_batch(parts.training_input().get_next(), parts)


@pytest.mark.parametrize(
    ("field", "given", "told"),
    [
        ("datasets", IterableAdaptor.HParams(input=pairs, is_training=True), "datasets: gave .*, not a list"),
        ("datasets", None, "datasets: gave None, not a list"),
        ("datasets", [IterableAdaptor], r"is no template. Return its template, \w+.HParams"),
        ("task", "built", r"task: gave a task that is built already. Return its template, SingleTask.HParams"),
    ],
)
def test_what_is_built_already_or_is_no_list_is_refused(field: str, given: Any, told: str, tmp_path: Path) -> None:
    found = Translating().task().Instantiate() if given == "built" else given
    mistaken = type("Mistaken", (Translating,), {field: lambda self: found})
    with pytest.raises(ConfigError, match=told):
        build_parts(mistaken(ICI_MESH_SHAPE=(1, 1, 1)), options_of(tmp_path / "job", {}))


@pytest.mark.parametrize("given", [None, SingleTask, SequenceModel.HParams()])
def test_a_task_of_another_kind_is_refused(given: Any, tmp_path: Path) -> None:
    class Odd(Translating):
        def task(self) -> Any:
            return given

    with pytest.raises(ConfigError, match=r"Odd.task: is .*Return its template, SingleTask.HParams"):
        build_parts(Odd(), options_of(tmp_path / "job", {}))


@pytest.mark.parametrize(
    ("specs", "told"), [(True, r"0 inputs are for training \(none\)"), (False, "no training input, and")]
)
def test_a_training_without_data_is_refused_before_it_has_a_folder(specs: bool, told: str, tmp_path: Path) -> None:
    class Empty(Translating):
        ICI_MESH_SHAPE = (1, 1, 1)

        def datasets(self) -> list[Any]:
            return []

    if specs:
        Empty.input_specs = lambda self: Translating().specs_of_host(0, 1)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=f"datasets: .*{told}"):
        run(Empty, job_log_dir=tmp_path / "job", plots=False)
    assert not (tmp_path / "job").exists()
