from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.store import JoinedStores, Store, StoreError, split_name
from xdpx.datasets.writing import PartWriter, assemble
from xdpx.utils import io
from xdpx.utils.commit import Commit


def test_any_samples_can_be_taken_in_any_order(tmp_path: Path, write_store: Any) -> None:
    samples = write_store(tmp_path / "train.pt", 50)
    store = Store.open(str(tmp_path / "train.pt"), first_id=100)
    rows = [49, 0, 7, 7]
    taken = store.take(np.array(rows))
    assert [taken.sample(place) for place in range(4)] == [samples[row] for row in rows]
    assert taken.ids.tolist() == [149, 100, 107, 107]
    assert store.lengths.tolist() == [sample["length"] for sample in samples]


def test_a_store_without_samples_can_be_opened(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "dev.pt", 0)
    assert len(Store.open(str(tmp_path / "dev.pt"))) == 0


def test_a_missing_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train.pt does not exist. Run x-prepro"):
        Store.open(str(tmp_path / "train.pt"))


def test_a_store_that_disagrees_with_its_manifest_is_refused(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "train.pt", 5)
    size = (tmp_path / "train.pt").stat().st_size
    with (tmp_path / "train.pt").open("ab") as file:
        file.write(b"more")
    with pytest.raises(StoreError, match=f"has {size + 4} bytes, its manifest says {size}"):
        Store.open(str(tmp_path / "train.pt"))


def test_a_split_from_a_folder_with_other_labels_is_refused(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "train.pt", 5)
    samples = (tmp_path / "train.pt").read_bytes()
    with Commit(str(tmp_path), "train", facts={"vocab.txt": "same", "target_map.txt": "theirs"}) as files:
        files.open("train.pt").write(samples)
    with Commit(str(tmp_path), "resources", facts={"vocab.txt": "same", "target_map.txt": "ours"}) as files:
        files.open("vocab.txt"), files.open("target_map.txt")
    with pytest.raises(StoreError, match=r"another target_map.txt than the one beside it"):
        Store.open(str(tmp_path / "train.pt"))


def test_a_store_without_manifest_is_read_but_told_of_once(
    tmp_path: Path, write_store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_store(tmp_path / "train.pt", 5)
    (tmp_path / "train.manifest.json").unlink()
    assert [len(Store.open(str(tmp_path / "train.pt"))) for _ in range(2)] == [5, 5]
    assert capsys.readouterr().err.count("train.pt: there is no train.manifest.json beside it") == 1


def test_a_foreign_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.pt").write_text("not a store\n")
    with pytest.raises(StoreError, match="train.pt is cut short, or no store of samples"):
        Store.open(str(tmp_path / "train.pt"))


def test_offsets_that_do_not_add_up_are_noticed(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "train.pt", 5)
    (tmp_path / "train.manifest.json").unlink()  # which would tell before
    offsets = np.asarray(Store.open(str(tmp_path / "train.pt")).ragged("input_ids").offsets).tobytes()
    data = (tmp_path / "train.pt").read_bytes()
    at = data.index(offsets)
    (tmp_path / "train.pt").write_bytes(data[:at] + b"\1" + data[at + 1 :])
    with pytest.raises(StoreError, match="do not add up"):
        Store.open(str(tmp_path / "train.pt"))


def test_rows_that_lead_nowhere_are_named_as_damage(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "train.pt", 5)
    (tmp_path / "train.manifest.json").unlink()  # which would tell before
    offsets = np.asarray(Store.open(str(tmp_path / "train.pt")).ragged("input_ids").offsets).tobytes()
    data = (tmp_path / "train.pt").read_bytes()
    at = data.index(offsets) + 16
    for damage in (b"\xff\xff\xff\x00", b"\x00\x00\x00\x80"):
        (tmp_path / "train.pt").write_bytes(data[:at] + damage + data[at + 4 :])
        with pytest.raises(StoreError, match=r"train.pt: its rows point beyond its end"):
            Store.open(str(tmp_path / "train.pt")).take(np.arange(5))


def test_a_store_travels_to_another_process_as_its_path(tmp_path: Path, write_store: Any) -> None:
    samples = write_store(tmp_path / "train.pt", 5)
    store = Store.open(str(tmp_path / "train.pt"), first_id=7)
    assert store.__reduce__()[1] == (str(tmp_path / "train.pt"), 7)
    again = copy.copy(store)
    assert (again.sample(3), again.ids[0]) == (samples[3], 7)


def test_lines_of_json_hold_the_same_samples(tmp_path: Path, write_store: Any) -> None:
    samples = write_store(tmp_path / "dev.jsonl", 9)
    store = Store.open(str(tmp_path / "dev.jsonl"))
    assert [store.sample(row) for row in range(9)] == samples
    assert store.ragged("input_ids").values.dtype == np.int32


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (['{"a": 1}', '{"a": 1'], r"dev.jsonl:2 is not JSON"),
        (['{"a": 1}', "3"], r"dev.jsonl:2 is not a JSON object"),
        (['{"a": 1}', '{"b": 1}'], r"dev.jsonl:2 has the keys b; the first line has a"),
        (['{"a": 1}', '{"a": "x"}'], r"column 'a' is not made of numbers"),
        (['{"a": [1]}', '{"a": [[1]]}'], r"column 'a' is not made of numbers"),
        (['{"a": [1]}', '{"a": 1}'], r"column 'a' is not made of numbers"),
    ],
)
def test_bad_lines_of_json_are_named(tmp_path: Path, lines: list[str], why: str) -> None:
    (tmp_path / "dev.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(StoreError, match=why):
        Store.open(str(tmp_path / "dev.jsonl"))


def test_numbers_with_fractions_are_kept_from_json(tmp_path: Path) -> None:
    rows = [{"logits": [0.5, 1], "weight": 2.0, "empty": []}, {"logits": [], "weight": 0.25, "empty": []}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = Store.open(str(tmp_path / "dev.jsonl"))
    assert [store.sample(0), store.sample(1)] == rows


def test_a_store_can_lie_in_another_place(tmp_path: Path, write_store: Any) -> None:
    samples = write_store(tmp_path / "train.pt", 20)
    for name in ("train.pt", "train.manifest.json"):
        io.copy(str(tmp_path / name), f"memory://stores/{name}")
    store = Store.open("memory://stores/train.pt")
    assert store.sample(13) == samples[13]


def test_splits_are_called_by_the_name_of_their_file() -> None:
    assert split_name("s3://bucket/data/train.0.pt") == "train.0"
    assert split_name("dev.jsonl") == "dev"


def test_opening_needs_no_torch_and_makes_nothing_per_sample(tmp_path: Path, write_store: Any) -> None:
    write_store(tmp_path / "train.pt", 3000)
    code = (
        "import sys, tracemalloc\n"
        "from xdpx.datasets.store import Store\n"
        f"Store.open({str(tmp_path / 'train.pt')!r})\n"
        "tracemalloc.start()\n"
        f"store = Store.open({str(tmp_path / 'train.pt')!r})\n"
        "assert len(store) == 3000 and tracemalloc.get_traced_memory()[1] < 200_000, tracemalloc.get_traced_memory()\n"
        "assert not {'torch', 'pandas', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
