import json
from pathlib import Path

from xdpx.checkpoints.spmd_folders import FORMAT
from xdpx.experiments.running.saving import spread, times_of


def test_checkpoints_stay_that_are_far_enough_apart_in_time() -> None:
    assert spread({0: 0.0, 5: 10.0, 10: 60.0, 15: 100.0, 20: 125.0}, 60.0) == {0, 10, 20}
    assert spread({}, 60.0) == set()


def test_a_checkpoint_without_readable_metadata_does_not_stop_the_job_that_passes_it_by(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        (tmp_path / f"checkpoint_{step:08d}").mkdir()
    whole = json.dumps({"format": FORMAT, "facts": {"saved_at": 5.0}})
    (tmp_path / "checkpoint_00000001" / "metadata").write_text(whole)
    (tmp_path / "checkpoint_00000002" / "metadata").write_text(whole[:9])
    assert times_of(str(tmp_path)) == {1: 5.0}
