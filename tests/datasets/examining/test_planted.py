"""Every planted fault is named, and of clean data nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.datasets.examining.planted import CLEAN, FAULTS, Corpus, Fault
from xdpx.config.loading import resolve
from xdpx.datasets.examining.examination import Examination, examine


def look(corpus: Corpus, folder: Path) -> Examination:
    values: dict[str, Any] = corpus.write(folder)
    if "vocab.txt" in corpus.files:
        (folder / "vocab.txt").write_bytes(corpus.files["vocab.txt"])
        values["vocab_file"] = str(folder / "vocab.txt")
    return examine(resolve(values, "x-prepro", source="planted"))


def test_forty_faults_and_more_are_planted() -> None:
    assert len({each.name for each in FAULTS}) >= 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_named(fault: Fault, tmp_path: Path) -> None:
    found = look(fault.plant(Random(7)), tmp_path).findings.worst_first
    assert fault.code in {each.code for each in found}, [str(each) for each in found]


@pytest.mark.parametrize("name", CLEAN)
def test_of_clean_data_nothing_is_said(name: str, tmp_path: Path) -> None:
    make: Callable[[], Corpus] = CLEAN[name]
    assert [str(each) for each in look(make(), tmp_path).findings.worst_first] == []
