"""Folders may be called anything that a disk allows: from raw text to predictions under every kind of name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiers import some
from xdpx.run import main

NAMES = {
    "spaces": " my  data ",
    "quotes": 'it\'s "so"',
    "emoji": "🙂👩‍👩‍👧",
    "chinese": "数据,集：一",
    "hash": "#1 a#b",
    "percent": "100%s%20%(x)d",
    "equals": "a=b=c",
    "dash": "-rf",
    "200 bytes": "long" * 50,
    "braces": "{a} [b] $c @d !e &f *g",
    "decomposed accents": "e\u0301te\u0301",
}


SHORT = ("quotes", "chinese", "hash", "equals", "dash")
"""Names that a shell, a config or a command line would read otherwise, and one that is not ASCII."""


@pytest.mark.parametrize("name", [pytest.param(NAMES[name], id=name) for name in some(NAMES, SHORT)])
def test_a_model_is_made_and_used_below_a_folder_of_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw, data, run = (f"{name}/{each}" for each in ("raw", "data", "run"))
    Path(raw).mkdir(parents=True)
    Path(raw, "train.txt").write_text("good film\tpos\nbad film\tneg\n" * 16)
    Path(raw, "dev.txt").write_text("good\tpos\nbad\tneg\n" * 2)
    steps = {
        "x-prepro": {
            "data_source": raw, "data_dir": data, "workers": 1,
            "loader": "single", "processor": "single", "tokenizer": "space", "max_len": 4,
        },
        "x-train": {
            "__parent__": f"{data}/meta", "data_dir": data, "save_dir": run, "model": "cls_cnn", "embedding_dim": 4,
            "hidden_size": 8, "loss": "cross_entropy", "learning_rate": 0.01, "batch_size": 8, "max_update": 2,
            "eval_interval": 1, "log_interval": 1, "major_metric": "acc",
        },
        "x-eval": {"save_dir": run, "valid_subset": f"{raw}/dev.txt", "save_to_file": f"{name}/scores.tsv"},
        "x-pred": {"save_dir": run, "predict_file_map": {f"{raw}/dev.txt": f"{name}/out.tsv"}},
    }  # fmt: skip
    for command, keys in steps.items():
        config = f"./{name}/{command}.json"  # ./ in front, for there are names that look like a flag or like key=value
        Path(config).write_text(json.dumps(keys))
        assert main([command, config]) == 0
    rows = Path(name, "out.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == ["good", "bad"] * 2
    assert Path(name, "scores.tsv").read_text().startswith("checkpoint\tsplit\t")
    assert main(["x-io", "rmtree", f"./{name}"]) == 0
    assert list(tmp_path.iterdir()) == []
