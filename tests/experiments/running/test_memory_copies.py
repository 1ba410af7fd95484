"""A job that was killed between two checkpoints goes on from its copies in memory, to the same bits."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from xdpx import TrainerCallback
from xdpx.checkpoints import spmd_shares
from xdpx.experiments.running import run


class Killed(TrainerCallback):
    """Ends a job as a kill would, before anything is saved."""

    def on_step_end(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        if state.global_step == 5:
            raise KeyboardInterrupt


@pytest.mark.parametrize("has_room", [True, False], ids=["copied on the devices", "fetched at once"])
def test_a_copy_in_memory_is_resumed_where_it_is_newer_than_the_last_checkpoint(
    tiny: ModuleType, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    *, has_room: bool,
) -> None:  # fmt: skip
    memory, folder = tmp_path / "memory", str(tmp_path / "job")
    memory.mkdir()
    if not has_room:  # a host's own memory is not copied again when it is fetched, an accelerator's is
        monkeypatch.setattr("xdpx.engines.spmd.engine._has_room", lambda device, state: False)
        fetched = spmd_shares.on_host
        monkeypatch.setattr(
            spmd_shares, "on_host", lambda shards: {part: it.copy() for part, it in fetched(shards).items()}
        )
    monkeypatch.setattr("xdpx.checkpoints.memory_copies.SHARED_MEMORY", str(memory))
    options: dict[str, Any] = {"job_log_dir": folder, "plots": False, "memory_copy_interval": 2}
    with pytest.raises(KeyboardInterrupt):
        run(tiny.Tiny(EVAL=0), callbacks=[Killed()], **options)
    capsys.readouterr()
    assert run(tiny.Tiny(EVAL=0), **options) == 0
    assert "continuing from the copy of step 4 in memory" in capsys.readouterr().err
    one, other = (tiny.state_of(each, 8) for each in (folder, job))
    assert all(np.array_equal(one[name], other[name]) for name in other)
    assert not list(memory.rglob("share-*"))
