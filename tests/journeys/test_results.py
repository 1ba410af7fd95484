"""One row of the table of results, on a handful of rows in the formats of the public sets."""

from __future__ import annotations

import importlib.util
import lzma
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from xdpx.run import main

RUN = Path(__file__).parents[2] / "examples/results/run.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; of the commands that it starts, only x-prepro is a process of its own."""
    spec = importlib.util.spec_from_file_location("results_run", RUN)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results_run", found)
    spec.loader.exec_module(found)
    start = found.command

    def command(name: str, config: Path | str, *values: str) -> None:
        if name == "x-prepro":
            start(name, config, *values)
        else:
            assert main([name, str(config), *values]) == 0

    monkeypatch.setattr(found, "command", command)
    return found


@pytest.mark.slow
def test_a_row_is_made_by_one_command_and_made_again_from_what_is_there(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(1)
    (tmp_path / "public/msra_ner").mkdir(parents=True)
    words = [[dice.choice(("北\tB-LOC\n京\tI-LOC\n", "他\tO\n", "来\tO\n")) for _ in range(9)] for _ in range(200)]
    with lzma.open(tmp_path / "public/msra_ner/dh_msra.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join("".join(row) for row in words))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(RUN), "public", "msra_ner_lstm"])
    row = re.compile(r"^msra_ner_lstm: dev precision .* f1 [\d.]+ ± [\d.]+; test .*$", re.MULTILINE)
    found = []
    for _ in ("made", "made again"):
        script.main()
        found.append(row.findall(capsys.readouterr().out))
    assert len(found[0]) == 1
    assert found[0] == found[1]


def test_an_unknown_row_is_answered_with_those_there_are(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(RUN), "public", "sst3"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Rows: sst2_cnn, sst2_cnn_distill" in done.stderr
