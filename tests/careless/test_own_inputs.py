"""Jobs over inputs that their users wrote, interrupted and started again."""

from pathlib import Path

import pytest

from xdpx.main import main

EXPERIMENT = '''
import numpy as np

from xdpx.datasets.inputs import BaseInput
from xdpx.experiments.lm.model_params import TransformerLmSpmdAdam
from xdpx.experiments.registry import experiment
from xdpx.utils.nested_map import NestedMap


class Dice(BaseInput):
    """Rows by numpy's dice, which tells what it gave."""

    class HParams(BaseInput.HParams):
        told: str = ""

    def __init__(self, hparams):
        super().__init__(hparams)
        self.dice = np.random.default_rng(3)

    def get_next(self):
        ids = self.dice.integers(2, 16, (2, 8)).astype(np.int32)
        with open(self.hparams.told, "a") as file:
            file.write(f"{ids.sum()}\\n")
        ones = np.ones((2, 8), np.float32)
        return NestedMap(ids=ids, labels=ids, weights=ones, paddings=0 * ones, segment_ids=ids * 0 + 1,
                         segment_pos=ids * 0 + np.arange(8, dtype=np.int32), eval_sample_weights=np.ones(2, np.float32))


class Kept(Dice):
    """The same with the state of its dice: bytes and an array, which JSON has not."""

    def get_state(self):
        return {"dice": self.dice.bit_generator.state, "raw": b"\\xff", "rows": np.arange(2)}

    def set_state(self, state):
        assert state["raw"] == b"\\xff" and state["rows"].tolist() == [0, 1]
        self.dice.bit_generator.state = state["dice"]


class Held(Dice):
    """A state that no file can hold."""

    def get_state(self):
        return {"dice": [self.dice]}


@experiment
class WithOwnInput(TransformerLmSpmdAdam):
    ICI_MESH_SHAPE = (1, 1, 1)
    NUM_LAYERS, MODEL_DIMS, DIMS_PER_HEAD, VOCAB_SIZE, MAX_SEQ_LEN = 1, 8, 8, 16, 8
    PERCORE_BATCH_SIZE = 2
    KIND: str = "Dice"
    TOLD: str = ""

    def datasets(self):
        return [globals()[self.KIND].HParams(batch_size=2, is_training=True, told=self.TOLD)]
'''


def job(tmp_path: Path, kind: str, steps: int) -> int:
    (tmp_path / "own_inputs.py").write_text(EXPERIMENT)
    fields = {"KIND": kind, "TOLD": str(tmp_path / f"{kind}.txt"), "MAX_STEPS": steps}
    words = [f"--set={name}={value}" for name, value in fields.items()]
    name = f"{tmp_path}/own_inputs.py:WithOwnInput"
    return main([name, f"--job_log_dir={tmp_path}/{kind}", "--enable_summary_writer=false", *words])


def given(tmp_path: Path, kind: str) -> list[str]:
    return (tmp_path / f"{kind}.txt").read_text().split()


def test_an_own_input_with_a_state_goes_on_by_it_and_one_without_says_that_it_reads_again(tmp_path: Path) -> None:
    for kind in ("Dice", "Kept"):
        assert job(tmp_path, kind, 2) == 0
        (tmp_path / f"{kind}.txt").write_text("")
        assert job(tmp_path, kind, 3) == 0
    first, second, *rest = given(tmp_path, "Dice")
    assert first != second
    assert given(tmp_path, "Kept")[:1] == rest[:1]
    told = (tmp_path / "Dice" / "log.txt").read_text()
    assert "Dice has no set_state of its own: a resumed job reads every batch before its position again" in told
    assert "so it rereads everything up to its position {'batches': 2}" in told
    assert "reads" not in (tmp_path / "Kept" / "log.txt").read_text()


def test_a_state_that_no_checkpoint_can_hold_is_named_at_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job(tmp_path, "Held", 2) == 2
    assert "train.get_state: dice[0] is a Generator, which a checkpoint cannot store." in capsys.readouterr().err
