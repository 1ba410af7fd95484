"""Write runs in the format of another board, with its own library. Prints the requested number as JSON: {"runs": N}.

Usage: board_runs.py tensorboard|trackio FOLDER RUNS METRICS POINTS
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path


def values(seed: int, metrics: int, points: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the step and the metrics of each row of a run."""
    drawn = random.Random(seed)
    for step in range(1, points + 1):
        yield step, {f"m{index}": 1 - math.exp(-step / 300) + drawn.gauss(0, 0.02) for index in range(metrics)}


def of_tensorboard(folder: Path, runs: int, metrics: int, points: int) -> None:
    """Write event files."""
    from tensorboardX import SummaryWriter  # type: ignore[import-untyped]  # has no types

    for number in range(runs):
        with SummaryWriter(str(folder / f"run{number}")) as writer:
            for step, row in values(number, metrics, points):
                for name, value in row.items():
                    writer.add_scalar(name, value, step)


def of_trackio(folder: Path, runs: int, metrics: int, points: int) -> None:
    """Write its database."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio  # type: ignore[import-not-found]  # only installed in a separate Python

    for number in range(runs):
        trackio.init(project="bench", name=f"run{number}")
        for step, row in values(number, metrics, points):
            trackio.log(row, step=step)
        trackio.finish()


if __name__ == "__main__":
    kind, place, *sizes = sys.argv[1:]
    write = {"tensorboard": of_tensorboard, "trackio": of_trackio}[kind]
    write(Path(place), *map(int, sizes))
    print(json.dumps({"runs": int(sizes[0])}))
