from pathlib import Path

import pytest

SETTINGS = {"batch_size": 32, "update_freq": 1, "clip_norm": 5.0, "major_metric": "acc", "ascending_metric": True}


def write_log(path: Path, rows: list[dict[str, object]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, *([str(row.get(column, "")) for column in columns] for row in rows)]
    path.write_text("".join("\t".join(cells) + "\n" for cells in lines), encoding="utf-8")


def write_run(folder, *, scores=(0.5, 0.6, 0.7, 0.9, 0.8, 0.75, 0.7, 0.7), summaries=True, **settings):
    """Write a run of 400 steps by hand: 100 steps per epoch, a training row every 10, and an evaluation every 50."""
    folder.mkdir(parents=True)
    best = max if settings.get("ascending_metric", True) else min
    (folder / "args.py").write_text(repr({**SETTINGS, **settings}), encoding="utf-8")
    train = [
        {"epoch": (step - 1) // 100 + 1, "step": step, "loss": 100 / step, "gnorm": 1e4 if step == 200 else 2.0}
        | {"clip": int(step == 200), "wps": 1000, "ups": 10, "lr": step * 1e-5}
        | ({"usage": step / 400} if summaries and step > 100 else {})
        for step in range(10, 401, 10)
    ]
    write_log(folder / "train.log.tsv", train)
    valid = [
        {"epoch": (step - 1) // 100 + 1, "step": step, "ups": 10, "wps": 1000, "train_wall": step / 10}
        | {"train_loss": 1.0, "gnorm": 2.0, "clip": 0.1, "train_acc": score + 0.05, "valid_acc": score}
        | {"valid_f1_0": score, "valid_f1_1": score - 0.1, "valid_loss": 1 - score, "best_score": best(scores[:i])}
        for i, score in enumerate(scores, 1)
        for step in [50 * i]
    ]
    write_log(folder / "valid.log.tsv", valid)
    return str(folder)


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes a run below `tmp_path` (`write_run`)."""
    return lambda name="run", **options: write_run(tmp_path / name, **options)
