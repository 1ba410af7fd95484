"""Splits by hash: the same text never in two, each label in all, the order of the file without a say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.splitting import data_files, split_rows, splits_among

ROWS = st.lists(st.tuples(st.text("abcd ", max_size=4), st.sampled_from("xy")), min_size=1, max_size=40)


@given(ROWS, st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_same_text_falls_into_the_same_split_wherever_it_stands(
    rows: list[tuple[str, str]], chance: object
) -> None:
    texts, labels = [text for text, _ in rows], ["x"] * len(rows)
    split = dict(zip(texts, split_rows(texts, labels, dev=0.2, test=0.2), strict=True))
    shuffled = sorted(texts, key=lambda _: chance.random())  # type: ignore[attr-defined]
    assert dict(zip(shuffled, split_rows(shuffled, labels, dev=0.2, test=0.2), strict=True)) == split
    folded: dict[str, set[str]] = {}
    for text, part in split.items():
        folded.setdefault(" ".join(text.upper().lower().split()), set()).add(part)
    assert all(len(parts) == 1 for parts in folded.values())


def test_each_label_has_its_share_and_a_rare_one_is_trained_on() -> None:
    texts = [f"text {index}" for index in range(212)]
    labels = ["often"] * 160 + ["seldom"] * 50 + ["once"] * 2
    parts = split_rows(texts, labels, dev=0.1, test=0.1)
    count = {(label, part): 0 for label in ("often", "seldom", "once") for part in ("train", "dev", "test")}
    for label, part in zip(labels, parts, strict=True):
        count[label, part] += 1
    assert [count["often", part] for part in ("train", "dev", "test")] == [128, 16, 16]
    assert [count["seldom", part] for part in ("train", "dev", "test")] == [40, 5, 5]
    assert [count["once", part] for part in ("train", "dev", "test")] == [2, 0, 0]


def test_the_files_of_a_folder_are_known_by_what_people_call_splits(tmp_path: Path) -> None:
    for name in ("train.csv", "validation.csv", "my_test.csv", "notes.md"):
        (tmp_path / name).touch()
    found = splits_among(data_files(str(tmp_path)))
    assert {split: Path(path).name for split, path in found.items()} == {
        "train": "train.csv", "dev": "validation.csv", "test": "my_test.csv",
    }  # fmt: skip


def test_the_names_of_hugging_face_are_splits_unless_a_split_has_several_files() -> None:
    names = [f"d/{split}-00000-of-00001.parquet" for split in ("train", "validation")]
    assert splits_among(names) == {"train": names[0], "dev": names[1]}
    with pytest.raises(ConfigError, match="'train-00000-of-00002.parquet' is one of several files of a split"):
        splits_among([f"d/train-0000{index}-of-00002.parquet" for index in range(2)])


def test_between_files_of_two_data_sets_there_is_a_question() -> None:
    assert splits_among(["d/a_train.tsv", "d/train.tsv", "d/train.csv"]) == {"train": "d/train.tsv"}
    with pytest.raises(ConfigError, match=r"could have train in a_train.tsv or b_train.tsv. Give each data set a fold"):
        splits_among(["d/a_train.tsv", "d/b_train.tsv", "d/a_dev.tsv"])
