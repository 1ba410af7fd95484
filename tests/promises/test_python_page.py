"""The page on Python runs as it is printed, from the top to the bottom."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    drawn = random.Random(0)
    (tmp_path / "raw").mkdir()
    for split, rows in (("train", 160), ("dev", 20), ("test", 20)):
        drawn_rows = [(drawn.choice(["film", "plot", "one"]), drawn.randint(0, 1)) for _ in range(rows)]
        lines = [f"{['bad', 'good'][label]} {word}\t{['neg', 'pos'][label]}\n" for word, label in drawn_rows]
        (tmp_path / "raw" / f"{split}.tsv").write_text("".join(lines))
    makes = "\n".join(block for block in BLOCKS if "xdpx.preprocess" in block)
    first = makes.replace("out/words", "out/data").replace("out/small", "out/cnn")
    program = "\n".join(["import xdpx", first, *BLOCKS, "assert len(error_) == 2"]).replace(
        "print(len(error.faults))", "error_ = error.faults"
    )
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"pos \{'neg': 0\.\d+, 'pos': 0\.\d+\}", done.stdout), done.stdout
    assert "Did you mean 'learning_rate'?" in done.stdout
