from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.archive import StoreError
from xdpx.datasets.joined import JoinedStores
from xdpx.datasets.store import Store
from xdpx.datasets.writing import PartWriter, assemble


def test_rows_run_through_all_stores_in_any_order(tmp_path: Path, write_store: Any) -> None:
    samples = []
    stores = []
    for number, size in enumerate((7, 1, 0, 12)):
        samples += write_store(tmp_path / f"train{number}.pt", size, seed=number)
        stores.append(Store.open(str(tmp_path / f"train{number}.pt"), first_id=number << 40))
    joined = JoinedStores(stores)
    assert len(joined) == 20
    rows = np.random.default_rng(0).permutation(20)
    taken = joined.take(rows)
    assert [taken.sample(place) for place in range(20)] == [samples[row] for row in rows]
    expected = [row if row < 7 else (1 << 40) if row == 7 else (3 << 40) + row - 8 for row in rows.tolist()]
    assert taken.ids.tolist() == expected
    assert joined.lengths.tolist() == [sample["length"] for sample in samples]


def test_stores_with_other_columns_are_not_joined(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "a.pt", 2)
    with PartWriter(str(tmp_path / "p"), {"length": "int32", "target": "int64"}) as part:
        part.add({"length": 1, "target": 0})
    assemble([str(tmp_path / "p")], str(tmp_path / "b.pt"), {"length": "int32", "target": "int64"})
    with pytest.raises(StoreError, match=r"b.pt has the columns length, target, but .*a.pt has input_ids, length"):
        JoinedStores([Store.open(str(tmp_path / "a.pt")), Store.open(str(tmp_path / "b.pt"))])
