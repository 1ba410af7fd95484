"""The example of the third door: from no text at all to samples, on eight imitated devices, cut down to seconds."""

import csv
import json
import runpy
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.registry import resolve
from xdpx.main import main

EXAMPLE = Path(__file__).parents[2] / "examples/spmd"
SMALL = {"NUM_LAYERS": 1, "MODEL_DIMS": 16, "DIMS_PER_HEAD": 8, "MAX_SEQ_LEN": 16, "NEW_CHARACTERS": 4, "MAX_STEPS": 4}
SMALL |= {
    "CHECKPOINT_EVERY_N_STEPS": 4,
    "SUMMARY_INTERVAL_STEPS": 1,
    "EVAL_INTERVAL_STEPS": 4,
    "EVAL_SKIP_TRAIN": True,
    "PROMPTS": ["All: ", "Speak"],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    source = folder / "source.txt"
    source.write_text("All: Speak, speak.\nFirst: You are all resolved?\n" * 40)
    runpy.run_path(str(EXAMPLE / "prepare.py"))["main"](str(folder), str(source))
    return str(folder)


def line(name: str, job: Path, text: str) -> list[str]:
    fields = [f"--set={key}={value}" for key, value in {**SMALL, "DATA": text}.items()]
    return [f"{EXAMPLE}/my.py:{name}", f"--job_log_dir={job}", "--device=cpu:50G:16GiB", *fields]


@pytest.mark.slow
def test_eight_devices_train_evaluate_and_write(text: str, tmp_path: Path, figures: None) -> None:
    words = line("ExpSharded", tmp_path / "job", text)
    assert main([*words, "--eval_on_test", "--decode_during_train"]) == 0
    with (tmp_path / "job/train.log.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [int(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert all(float(row["mfu"]) > 0 for row in rows)
    found = next((tmp_path / "job/decoder_out/samples").glob("*.jsonl"))
    samples = [json.loads(row) for row in found.read_text().splitlines()]
    assert [sample["prefix"] for sample in samples] == ["All: ", "Speak"]
    assert (tmp_path / "job/plots/loss.png").is_file()


def test_without_text_it_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line("Exp", tmp_path / "job", str(tmp_path / "none"))) == 2
    assert "prepare.py" in capsys.readouterr().err


def test_rows_can_be_looked_at_without_training(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{EXAMPLE}/my.py:Exp", f"--set=DATA={text}", "--peek=1/2"]) == 0
    shown = capsys.readouterr().out
    assert "train: host 1 of 2" in shown
    assert "speak" in shown


def test_the_shipped_text_is_the_manual_that_python_brings() -> None:
    assert len(runpy.run_path(str(EXAMPLE / "prepare.py"))["manual"]()) > 100_000


def test_both_take_the_same_batch() -> None:
    one, eight = (resolve(f"{EXAMPLE}/my.py:{name}")() for name in ("Exp", "ExpSharded"))
    assert one.global_batch(1) == eight.global_batch(8) == 12
    with pytest.raises(ConfigError):
        resolve(f"{EXAMPLE}/my.py:Other")
