"""One row of the table of results, on a handful of rows in the formats of the public sets."""

from __future__ import annotations

import lzma
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "examples/results/run.py"


@pytest.mark.slow
def test_a_row_is_made_by_one_command_and_made_again_from_what_is_there(tmp_path: Path) -> None:
    dice = random.Random(1)
    (tmp_path / "public/msra_ner").mkdir(parents=True)
    words = [[dice.choice(("北\tB-LOC\n京\tI-LOC\n", "他\tO\n", "来\tO\n")) for _ in range(9)] for _ in range(200)]
    with lzma.open(tmp_path / "public/msra_ner/dh_msra.txt.xz", "wt", encoding="utf-8") as file:
        file.write("\n".join("".join(row) for row in words))
    command = [sys.executable, str(RUN), "public", "msra_ner_lstm"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    row = re.compile(r"^msra_ner_lstm: dev precision .* f1 [\d.]+ ± [\d.]+; test .*$", re.MULTILINE)
    found, found_again = row.search(first), row.search(again)
    assert found is not None
    assert found_again is not None
    assert found[0] == found_again[0]


def test_an_unknown_row_is_answered_with_those_there_are(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(RUN), "public", "sst3"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Rows: sst2_cnn, sst2_cnn_distill" in done.stderr
