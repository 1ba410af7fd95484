"""Numbers that training did not see are scored as what they are, and other strange labels are told of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import xdpx
from xdpx.config.faults import ConfigError
from xdpx.inference.session import TrainedRun

TEXTS = ["good", "bad", "good film", "bad film", "a good film", "a bad film"]


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    root: Path = tmp_path_factory.mktemp("regression")
    for split in ("train", "dev"):
        (root / f"{split}.txt").write_text("".join(f"{text}\t{len(text)}\n" for text in TEXTS))
    keys = {"loader": "single", "processor": "single", "tokenizer": "space", "parser": "csv", "target_type": "number"}
    data = xdpx.preprocess({"data_source": str(root), "data_dir": str(root / "data"), "max_len": 9, **keys})
    config = {"__parent__": f"{data}/meta.hjson", "data_dir": data, "save_dir": str(root / "run"), "plots": False}
    config |= {"model": "cnn_regression", "loss": "mse", "major_metric": "loss", "ascending_metric": False}
    config |= {"embedding_dim": 4, "hidden_size": 4, "encoder_layers": 1, "learning_rate": 0.1}
    xdpx.train(config | {"batch_size": 4, "max_update": 2, "eval_interval": 2})
    return xdpx.load_run(root / "run")


def test_numbers_that_training_did_not_see_are_scored_as_what_they_are(regression: TrainedRun, tmp_path: Path) -> None:
    numbers = [0.25, 100, -3.5, 4, 1e3, 7.0]
    scores = np.array([each.score for each in regression.predict(TEXTS)])
    expected = pytest.approx(np.mean((scores - numbers) ** 2), rel=1e-5)
    assert regression.evaluate(TEXTS, numbers)["loss"] == expected
    (tmp_path / "new.txt").write_text("".join(f"{t}\t{n}\n" for t, n in zip(TEXTS, numbers, strict=True)))
    assert regression.evaluate(tmp_path / "new.txt")["loss"] == expected


def test_a_label_that_is_no_number_is_named(regression: TrainedRun) -> None:
    with pytest.raises(ConfigError, match="is labelled '50%', which is not a number"):
        regression.evaluate(TEXTS[:2], ["4", "50%"])


def test_a_few_labels_that_are_no_numbers_are_named_among_new_numbers(regression: TrainedRun, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("good\t0.5\nbad\t1.5\na film\t50%\nso good\t2.5\n")
    with pytest.raises(ConfigError, match=r"new.txt:3: is labelled '50%', which is not a number"):
        regression.evaluate(tmp_path / "new.txt")
