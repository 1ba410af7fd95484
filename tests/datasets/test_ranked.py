"""Lists of candidates: whole queries, the best among them, and from the raw file to the batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.commands.prepro import Prepro
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.datasets.ranked import RankSampler
from xdpx.datasets.sample_making import query_ids
from xdpx.datasets.store import Store
from xdpx.processors import processors
from xdpx.processors.samples import Samples

QUERIES = np.repeat(np.arange(12), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]) * 1000
GRADES = np.arange(len(QUERIES)) % 5


def source() -> Samples:
    return Samples({"length": np.ones(len(QUERIES), np.int32), "target": GRADES, "query_id": QUERIES})


def plan(epoch: int = 1, **options: int) -> Any:
    kind = RankSampler(RankSampler.Parameters(list_size=4))
    return kind.plan_of(source(), **{"seed": 3, "epoch": epoch, "batch_size": 4, **options})


def test_every_query_with_several_candidates_comes_once_with_one_of_its_best() -> None:
    lists = [plan().group(index)[0] for index in range(plan().num_groups)]
    queries = [set(QUERIES[rows].tolist()) for rows in lists]
    assert sorted(number for each in queries for number in each) == [1000 * number for number in range(1, 12)]
    for rows in lists:
        everyone = np.flatnonzero(QUERIES[rows[0]] == QUERIES)
        assert GRADES[rows].max() == GRADES[everyone].max()
        assert len(set(rows.tolist())) == min(4, len(everyone))


def test_queries_of_a_single_candidate_each_are_refused() -> None:
    alone = Samples({"length": np.ones(3, np.int32), "target": GRADES[:3], "query_id": np.arange(3)})
    with pytest.raises(ConfigError, match="no query of the training data has two candidates"):
        RankSampler(RankSampler.Parameters(list_size=4)).epoch_size(alone)


def test_the_best_is_told_by_the_grades_that_labels_are() -> None:
    kind = RankSampler(RankSampler.Parameters(list_size=2, label_values=[4.0, 3.0, 2.0, 1.0, 0.0]))
    order = kind.plan_of(source(), seed=3, epoch=1, batch_size=2)
    for rows in (order.group(index)[0] for index in range(order.num_groups)):
        assert GRADES[rows].min() == GRADES[QUERIES[rows[0]] == QUERIES].min()


def test_lists_are_looked_up_and_differ_from_epoch_to_epoch() -> None:
    assert np.array_equal(plan().group(7)[0], plan().group(7)[0])
    first, second = (np.concatenate([plan(epoch).group(index)[0] for index in range(11)]) for epoch in (1, 2))
    assert not np.array_equal(first, second)


def test_ranks_get_whole_lists() -> None:
    together = plan(batch_size=8).group(1)[0].reshape(2, 4)
    halves = [plan(batch_size=8, world_size=2, rank=rank).group(1)[0] for rank in (0, 1)]
    assert np.array_equal(np.stack(halves), together)


def test_data_without_queries_and_shards_that_are_still_to_come_are_refused() -> None:
    kind = RankSampler(RankSampler.Parameters())
    plain = Samples({"length": np.ones(3, np.int32), "target": np.zeros(3, np.int64)})
    with pytest.raises(ConfigError, match=r"is 'rank', but the samples have no queries\. Preprocess with loader: rank"):
        kind.epoch_size(plain)
    with pytest.raises(ConfigError, match=r"lazy_load: is true, but the number of queries"):
        kind.epoch_size(100)


def build(folder: Path, text: str, **values: Any) -> Path:
    (folder / "raw").mkdir()
    (folder / "raw/train.txt").write_text(text)
    known = {
        "parser": "csv", "loader": "rank", "tokenizer": "space", "processor": "pair", "max_len": 5,
        "target_type": "number", "data_source": str(folder / "raw"), "data_dir": str(folder / "data"), **values,
    }  # fmt: skip
    Prepro(resolve(known, "x-prepro", source="test")).run()
    return folder / "data"


@pytest.mark.parametrize("save_format", ["torch", "jsonl"])
def test_the_query_of_each_row_comes_to_the_batch(tmp_path: Path, save_format: str) -> None:
    data = build(tmp_path, "q1\ta b\tc\t2\nq2\td\te\t0\nq1\ta b\tf\t0\n", save_format=save_format)
    kind = processors["pair"]
    store = Store.open(str(next(data.glob("train.[pj]*"))))
    batch = kind(kind.Parameters(max_len=5, pad_index=0)).collate(store.take(np.arange(3)))
    assert batch["query_id"].tolist() == query_ids(["q1", "q2", "q1"]).tolist()
    assert batch["target"].tolist() == [1, 0, 0]
    assert json.loads((data / "meta.hjson").read_text())["label_values"] == [0.0, 2.0]


def test_the_same_pair_of_texts_under_another_query_is_no_duplicate(tmp_path: Path) -> None:
    data = build(tmp_path, "q1\ta\tb\t1\nq2\ta\tb\t1\nq1\ta\tb\t1\n", remove_duplicate=True)
    assert len(Store.open(str(data / "train.pt"))) == 2


def test_a_line_without_the_name_of_its_query_is_refused_or_skipped(tmp_path: Path) -> None:
    text = "q1\ta\tb\t1\n\ta\tb\t0\nq2\tb\t1\n"
    with pytest.raises(ConfigError, match=r"train.txt:2: has no query name in the first column"):
        build(tmp_path, text)
    (tmp_path / "again").mkdir()
    data = build(tmp_path / "again", text, skip_bad_lines=True)
    assert len(Store.open(str(data / "train.pt"))) == 1
