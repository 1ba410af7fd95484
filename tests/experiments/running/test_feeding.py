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
