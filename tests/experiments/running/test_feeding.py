from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running.feeding import Feed
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts


def test_a_place_that_an_input_does_not_know_is_a_fault_of_the_request(tiny: ModuleType, tmp_path: Path) -> None:
    class Grown(tiny.Characters):  # type: ignore[name-defined, misc]
        def set_state(self, state: Mapping[str, Any]) -> None:
            raise ValueError("the data grew")

    class Growing(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [Grown.HParams(name="train", batch_size=4, is_training=True)]

    feed = Feed(build_parts(Growing(), options_of(tmp_path / "job", {})))
    with pytest.raises(ConfigError, match="train: its place in checkpoint_5 does not fit: the data grew"):
        feed.restore("checkpoint_5", {"train": {"next": 3}})


def test_batches_that_make_no_whole_update_are_left_and_told(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Finite(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [tiny.Characters.HParams(name="train", batch_size=4, is_training=True, num_batches=5)]

    feed = Feed(build_parts(Finite(BATCHES=2), options_of(tmp_path / "job", {})))
    assert [(place.group, len(group)) for place, group in feed.groups(0)] == [(1, 2), (2, 2)]
    assert "train: the data end with 1 of the 2 batches of an update (accumulate_batches)" in capsys.readouterr().err
