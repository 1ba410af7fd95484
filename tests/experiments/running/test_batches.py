"""What is refused of a batch, because the model would read it otherwise than it is meant, and what is not."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running.batches import check_content
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts
from xdpx.utils.nested_map import NestedMap


@pytest.mark.parametrize(
    ("name", "unknown", "padding"), [("ids", 128, "paddings"), ("ids", -1, "paddings"), ("labels", 300, "weights")]
)
def test_ids_that_the_model_does_not_know_are_refused_except_in_padding(
    tiny: ModuleType, tmp_path: Path, name: str, unknown: int, padding: str
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    data = parts.training_input()
    batch: Any = data.get_next()
    assert check_content(batch, parts, data) is batch
    batch[name] = np.array(batch[name])
    batch[name][1, 2] = unknown
    with pytest.raises(ConfigError, match=rf"train.{name}: has the id {unknown}, but those of the model are 0 to 127"):
        check_content(batch, parts, data)
    batch[padding][1, 2:] = padding == "paddings"
    check_content(batch, parts, data)


def test_what_the_model_would_misread_is_refused(tiny: ModuleType, tmp_path: Path) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    data = parts.training_input()
    batch: Any = data.get_next()
    batch["paddings"][2, :3] = 1
    with pytest.raises(ConfigError, match=r"train.paddings: has padding before a token \(row 2\)"):
        check_content(batch, parts, data)
    check_content(batch, parts, data, decoding=True)


def test_a_batch_whose_arrays_have_unlike_rows_is_refused_unless_the_experiment_declares_it(
    tiny: ModuleType, tmp_path: Path
) -> None:
    class Several(tiny.Tiny):  # type: ignore[name-defined, misc]
        def input_specs(self) -> Any:
            return {**super().input_specs(), "others": ((12, 3), "float32")}

    for experiment, is_refused in ((tiny.Tiny(), True), (Several(), False)):
        parts = build_parts(experiment, options_of(tmp_path / "job", {}))
        data = parts.training_input()
        batch: Any = NestedMap(data.get_next(), others=np.ones((12, 3), np.float32), rate=np.float32(1.0))
        if is_refused:
            with pytest.raises(ConfigError, match=r"train.others: has 12 rows, but 'eval_sample_weights' has 4"):
                check_content(batch, parts, data)
        else:
            check_content(batch, parts, data)


def test_later_batches_must_have_the_specified_arrays_and_numbers_of_dimensions(
    tiny: ModuleType, tmp_path: Path
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    train, text = parts.training_input(), parts.eval_inputs()[0]
    batch = train.get_next()
    narrow = batch.Transform(lambda array: array[:2, :3] if array.ndim == 2 else array[:2])
    check_content(narrow, parts, train)
    deep: Any = NestedMap(batch, labels=batch.labels[:, :, None])
    without: Any = NestedMap({name: array for name, array in batch.items() if name != "labels"})
    for data in (train, text):
        with pytest.raises(ConfigError, match=rf"{data.name}.labels: has the shape \[4, \d+, 1\], but \[4, \d+\] is"):
            check_content(deep, parts, data)
    with pytest.raises(ConfigError, match=r"train.labels: is missing in a batch"):
        check_content(without, parts, train)
    check_content(without, parts, text)


def test_integers_that_jax_would_cut_off_are_told_once(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    data = parts.training_input()
    for value in (7, 2**40, 2**41):
        check_content(NestedMap(data.get_next(), number=np.full(4, value)), parts, data)
    assert capsys.readouterr().err.count("train.number: has integers of more than 32 bits") == 1
