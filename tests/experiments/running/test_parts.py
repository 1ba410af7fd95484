from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts, check_ids


@pytest.mark.parametrize(
    ("name", "unknown", "padding"), [("ids", 128, "paddings"), ("ids", -1, "paddings"), ("labels", 300, "weights")]
)
def test_ids_that_the_model_does_not_know_are_refused_except_in_padding(
    tiny: ModuleType, tmp_path: Path, name: str, unknown: int, padding: str
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {}))
    data = parts.training_input()
    batch: Any = data.get_next()
    assert check_ids(batch, parts, data) is batch
    batch[name] = np.array(batch[name])
    batch[name][1, 2] = unknown
    with pytest.raises(ConfigError, match=rf"train.{name}: has the id {unknown}, but those of the model are 0 to 127"):
        check_ids(batch, parts, data)
    batch[padding][1, 2] = padding == "paddings"
    check_ids(batch, parts, data)
