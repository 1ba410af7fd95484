"""x-train, x-eval and x-pred on many devices give what one gives. Real processes over gloo, started once for all."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import processes
from tests.tiers import LONG, nightly, some
from xdpx import run as door

SCRIPT = Path(__file__).with_name("many_devices.py")
UPDATES, BEGUN = (50, 23) if LONG else (26, 11)
"""Updates of a whole training, and of one that another number of processes ends: an epoch has 7."""
KILLS = (2 if LONG else 1) * int(os.environ.get("XDPX_KILLS", "1"))
TRAIN: dict[str, Any] = {
    "__parent__": "data/meta", "data_dir": "data", "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8,
    "hidden_size": 8, "dropout": 0.0, "max_update": UPDATES, "batch_size": 15, "update_freq": 2, "learning_rate": 0.01,
    "eval_interval": 20, "major_metric": "acc", "log_interval": 5, "ema_decay": 0.9,
    "save_full_checkpoint": True, "resume": "auto", "cuda": False,
}  # fmt: skip
PLAIN = {"optimizer": "plain_sgd", "ema_decay": 1.0, "batch_size": 16, "clip_norm": 0, "learning_rate": 0.5}
BLOCKS = {
    "ema_decay": 1.0, "use_bmuf": True, "block_momentum": 0.5, "global_sync_iter": 7, "warmup_iterations": 5,
    "use_nbm": True, "average_sync": True,
}  # fmt: skip
SGD = """
import torch

from xdpx.config.parameters import Parameters as Base
from xdpx.optimizers import register


@register("plain_sgd")
class PlainSGD(torch.optim.SGD):
    class Parameters(Base):
        pass

    def __init__(self, parameters, *, groups):
        super().__init__(groups)
"""
IN_THE_LONG_FORM = ("averaged",)
RUNS: dict[str, dict[str, Any]] = {
    "whole": {},
    "begun": {"train_steps": BEGUN},
    "little": {"auto_ga": True, "max_update": 10},
    "averaged": {**PLAIN, "use_bmuf": True, "block_momentum": 0.0, "global_sync_iter": 1, "warmup_iterations": 0},
    "blocks": {**BLOCKS},
    "blocks-begun": {**BLOCKS, "train_steps": 20},
}
RUN = some(RUNS, [name for name in RUNS if name not in IN_THE_LONG_FORM])
SCORING = ("jinja2", "xdpx.commands.evaluate", "xdpx.commands.predict", "xdpx.inference.session")
EVALUATE = {"save_dir": "alone-whole", "valid_subset": ["dev", "raw/dev.txt"], "cuda": False, "batch_size": 7}
PREDICT = {"save_dir": "alone-whole", "cuda": False, "batch_size": 7}


def make_rows(folder: Path) -> None:
    drawn = random.Random(0)
    (folder / "raw").mkdir()
    for name, count in (("train", 200), ("dev", 60)):
        rows = []
        for _ in range(count):
            label = drawn.randint(0, 1)
            words = [f"w{drawn.randint(20 * label, 39 + 20 * label)}" for _ in range(drawn.randint(2, 12))]
            rows.append(f"{' '.join(words)}\t{'ab'[label]}\n")
        (folder / "raw" / f"{name}.txt").write_text("".join(rows))


def make_data(folder: Path) -> None:
    """Write the rows, and a config that prepares them."""
    make_rows(folder)
    config = {"data_source": "raw", "data_dir": "data", "processor": "single", "loader": "single"}
    (folder / "prepro.json").write_text(json.dumps({**config, "tokenizer": "space", "max_len": 16}))


def write(folder: Path, name: str, values: Mapping[str, Any]) -> list[str]:
    """Write a config, and return the words that train by it."""
    (folder / f"{name}.json").write_text(json.dumps({**TRAIN, "save_dir": name, **values}))
    return ["x-train", f"{name}.json"]


Stage = tuple[Sequence[Sequence[str]], int]
"""Command lines, and the number of processes that do them together."""


def together(folder: Path, *stages: Stage, modules: Sequence[str] = ()) -> list[list[list[dict[str, Any]]]]:
    """Do one stage after another, with modules imported before; return what each process of each tells of each line."""
    (folder / "stages.json").write_text(json.dumps(stages))
    (ended,) = processes.run_together([[sys.executable, str(SCRIPT), ".", *modules]], [processes.environment()])
    assert ended.code == 0, processes.told([ended])
    told = [
        [json.loads((folder / f"stage-{index}-{rank}.json").read_text()) for rank in range(size)]
        for index, (_, size) in enumerate(stages)
    ]
    bad = [line for stage in told for rank in stage for line in rank if line["code"]]
    assert not bad, [path.read_text()[-4000:] for path in folder.glob("stage-*.txt")]
    return told


def weights(folder: str, step: int = UPDATES) -> dict[str, torch.Tensor]:
    return torch.load(Path(folder, f"checkpoint-{step}.pt"), weights_only=True)


def assert_near(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=1e-5, msg=lambda text, at=name: f"{at}: {text}")


def table(folder: str, name: str) -> list[dict[str, str]]:
    header, *rows = Path(folder, name).read_text().splitlines()
    return [dict(zip(header.split("\t"), row.split("\t"), strict=False)) for row in rows]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.fixture(scope="module")
def told(place: Path) -> dict[str, list[Any]]:
    """What one process tells of all lines, and what each of two does. Each goes on with what the other has begun."""
    before = Path.cwd()
    os.chdir(place)
    try:
        make_data(place)
        (place / "user/modules").mkdir(parents=True)
        (place / "user/modules/plain.py").write_text(SGD)
        (place / "eval.json").write_text(json.dumps(EVALUATE))
        lines: dict[str, list[list[str]]] = {}
        for who in ("alone", "both"):
            lines[who] = [write(place, f"{who}-{name}", values) for name, values in RUNS.items() if name in RUN]
            (place / f"{who}-eval.json").write_text(json.dumps({**EVALUATE, "save_to_file": f"{who}-scores.tsv"}))
            predicted = {"predict_file_map": {"raw/dev.txt": f"{who}-predicted.tsv"}}
            (place / f"{who}-pred.json").write_text(json.dumps({**PREDICT, **predicted}))
            lines[who] += [["x-eval", f"{who}-eval.json"], ["x-pred", f"{who}-pred.json"]]
        lines["both"][2].insert(0, "little memory")
        blocks = write(place, "both-blocks-onward", {**BLOCKS, "save_dir": "both-blocks-begun"})
        onward = [write(place, f"{who}-onward", {"save_dir": f"{who}-begun"}) for who in ("alone", "both")]
        alone, both, *_ = together(
            place, ([["x-prepro", "prepro.json"], *lines["alone"]], 1), (lines["both"], 2), ([blocks], 2),
            ([onward[1]], 1), ([onward[0]], 2), modules=SCORING,
        )  # fmt: skip
        return {"alone": [alone[0][1:]], "both": both}
    finally:
        os.chdir(before)


pytestmark = pytest.mark.slow


def test_two_processes_give_the_weights_of_one(told: object) -> None:
    assert_near(weights("both-whole"), weights("alone-whole"))


def test_each_update_takes_the_samples_that_one_process_takes(told: dict[str, list[Any]]) -> None:
    (alone,), both = ([each[0]["rows"] for each in told[who]] for who in ("alone", "both"))
    assert alone["1"]
    for epoch in ("1", "2"):  # how far the thread ahead has come in the last one is a matter of time
        shares = zip(*(each[epoch] for each in both), strict=True)
        assert [sorted(first + second) for first, second in shares] == [sorted(rows) for rows in alone[epoch]]


def test_scores_and_logs_are_those_of_one_process_and_written_once(told: object) -> None:
    for name in ("train.log.tsv", "valid.log.tsv"):
        alone, both = table("alone-whole", name), table("both-whole", name)
        assert [row["step"] for row in both] == [row["step"] for row in alone]
        for one, other in zip(alone, both, strict=True):
            for column in one.keys() - {"ups", "wps", "train_wall"}:
                assert float(other[column]) == pytest.approx(float(one[column]), abs=1e-5), column
    assert json.loads(Path("both-whole/status.json").read_text())["status"] == "finished"


@pytest.mark.parametrize("begun", ["both-begun", "alone-begun"])
def test_what_one_number_of_processes_began_another_ends(told: object, begun: str) -> None:
    assert_near(weights(begun), weights("alone-whole"))


def test_memory_that_runs_out_on_one_of_two_changes_nothing(told: dict[str, list[Any]]) -> None:
    assert [rank[2]["too large"] for rank in told["both"]] == [[], [7]]
    assert_near(weights("both-little", 10), weights("alone-little", 10))


@nightly("tests/journeys/test_equal_devices.py::test_several_processes_take_the_updates_of_one")
def test_blocks_of_one_update_without_momentum_are_one_process(told: object) -> None:
    assert_near(weights("both-averaged"), weights("alone-averaged"))


def test_blocks_go_on_from_a_checkpoint_as_if_nothing_had_been(told: object) -> None:
    for name, value in weights("both-blocks").items():
        assert torch.equal(value, weights("both-blocks-begun")[name]), name
    assert not torch.equal(value, weights("alone-blocks")[name])


@pytest.mark.parametrize("name", ["scores.tsv", "predicted.tsv"])
def test_shared_scoring_and_prediction_write_the_very_same(told: object, name: str) -> None:
    assert Path(f"both-{name}").read_text() == Path(f"alone-{name}").read_text()
    assert Path(f"both-{name}").read_text().strip()


MORTAL = """
import os, random, signal
from xdpx import TrainerCallback
from xdpx.trainer.hooks import register


@register("mortal")
class Mortal(TrainerCallback):
    def __init__(self):
        life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        drawn = random.Random(life)
        self.chosen = life < KILLS and int(os.environ["RANK"]) == drawn.randrange(2)
        self.left = drawn.randrange(1, 20)  # events; a checkpoint is written every 15 or so

    def heard(self, *args, **kwargs):
        self.left -= 1
        if self.chosen and self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    on_train_begin = on_step_begin = on_substep_end = on_step_end = on_log = on_evaluate = on_save = heard
"""


def test_a_rank_that_is_killed_again_and_again_under_torchrun_changes_nothing(told: object) -> None:
    Path("user/modules/mortal.py").write_text(MORTAL.replace("KILLS", str(KILLS)))
    words = write(Path(), "mortal", {"callbacks": ["mortal"], "save_interval": 5})
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={processes.free_port()}"]
    line = [sys.executable, *launcher, f"--max-restarts={KILLS}", door.__file__, *words]
    (ended,) = processes.run_together([line], [processes.environment()], seconds=240 + 60 * KILLS)
    assert ended.code == 0, ended.text[-4000:]
    assert ended.text.count(f"training to step {UPDATES} of {UPDATES}") == KILLS + 1
    for name, value in weights("mortal").items():
        assert torch.equal(value, weights("both-whole")[name]), name


def test_x_train_starts_its_processes_and_ends_with_the_error_of_the_first_that_failed(told: object) -> None:
    Path("user/modules/failing.py").write_text(
        "import os\n"
        "from xdpx import TrainerCallback\n"
        "from xdpx.trainer.hooks import register\n\n\n"
        '@register("failing")\n'
        "class Failing(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        '        if os.environ["RANK"] == "1" and state.global_step == 3:\n'
        '            raise OSError("the second one has had enough")\n'
    )
    words = write(Path(), "failed", {"nproc": 2, "callbacks": ["failing"]})
    ended = subprocess.run(
        [sys.executable, door.__file__, *words], capture_output=True, text=True, env=processes.environment()
    )
    assert ended.returncode == 1
    assert "process 1 of 2 failed:\nthe second one has had enough" in ended.stderr
    assert ended.stderr.count(f"training to step {UPDATES}") == 1
    assert json.loads(Path("failed/status.json").read_text())["status"] == "failed"
