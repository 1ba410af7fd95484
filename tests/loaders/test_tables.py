"""Tables as raw data: real SQLite files, SQLAlchemy on one of them, and a MaxCompute that answers as pyodps does."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from xdpx.commands.prepro import Prepro
from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run, resolve
from xdpx.datasets.store import Store
from xdpx.loaders.parsers import parsers
from xdpx.loaders.parsers.base import BadLine
from xdpx.loaders.tables import address_of, open_tables

ROWS = [("good film", 1, None), ("bad plot", 0, "x"), ("very good", 1, "y")]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE train ("the text" TEXT, label INTEGER, note TEXT)')
        connection.executemany("INSERT INTO train VALUES (?, ?, ?)", ROWS)
        connection.execute("CREATE VIEW dev AS SELECT * FROM train WHERE label = 1")
        connection.commit()
    return path


def run_of(source: str, data_dir: Path, **values: Any) -> Run:
    known = {
        "parser": "table", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5,
        "fields": ["the text", "label"], "data_files": "*", "data_source": source, "data_dir": str(data_dir), **values,
    }  # fmt: skip
    return resolve(known, "x-prepro", source="test")


def read(path: str, **values: Any) -> list[tuple[int, Any]]:
    kind = parsers["table"]
    return list(kind(kind.Parameters(**values)).read(path))


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_a_table_gives_the_named_columns_of_each_row_as_text(database: Path, scheme: str) -> None:
    path = f"{scheme}:///{database}/train"
    found = [(1, ["1", "good film"]), (2, ["0", "bad plot"]), (3, ["1", "very good"])]
    assert read(path, fields=["label", "the text"]) == found
    assert [row for _, row in read(path, fields=["label"], order_by=["the text"])] == [["0"], ["1"], ["1"]]
    assert read(path)[0] == (1, BadLine(1, "column 'note' is null, not text"))


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_a_table_or_column_that_is_not_there_is_refused_with_the_nearest(database: Path, scheme: str) -> None:
    assert open_tables(f"{scheme}:///{database}").names() == ["dev", "train"]
    with pytest.raises(ConfigError, match=r"there is no table 'trian'\. Did you mean 'train'\?"):
        read(f"{scheme}:///{database}/trian")
    with pytest.raises(ConfigError, match=r"fields: there is no column 'lable'\. Did you mean 'label'\?"):
        read(f"{scheme}:///{database}/train", fields=["the text", "lable"])
    with pytest.raises(ConfigError, match="order_by: there is no column 'id'"):
        read(f"{scheme}:///{database}/train", order_by=["id"])


def test_a_table_named_like_the_database_program_is_found(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "my.db")) as connection:
        connection.execute("CREATE TABLE sqliteExport (id INTEGER PRIMARY KEY AUTOINCREMENT)")  # makes sqlite_sequence
    assert open_tables(f"sqlite:///{tmp_path / 'my.db'}").names() == ["sqliteExport"]


def test_a_database_becomes_a_data_dir(database: Path, tmp_path: Path) -> None:
    run = run_of(f"sqlite:///{database}", tmp_path / "data")
    assert not Prepro(run).check()
    Prepro(run).run()
    assert json.loads((tmp_path / "data" / "meta.hjson").read_text())["data_size"] == {"dev": 2, "train": 3}
    assert [Store.open(str(tmp_path / "data" / "train.pt")).sample(index)["target"] for index in range(3)] == [0, 1, 0]


def test_a_table_without_the_label_column_is_unlabelled(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE plain (body TEXT)")
        connection.execute("INSERT INTO plain VALUES ('hello')")
        connection.commit()
    assert read(f"sqlite:///{database}/plain", fields=["body", "label"]) == [(1, ["hello"])]


def test_a_file_that_is_not_there_or_no_database_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data_source: there is no file 'gone\.db'"):
        open_tables("sqlite:///gone.db").names()
    (tmp_path / "no.db").write_text(
        "no database at all, but longer than a header of one would be: it is only text\n" * 9
    )
    with pytest.raises(OSError, match="cannot be read"):
        open_tables(f"sqlite:///{tmp_path / 'no.db'}").names()


def test_a_parser_that_reads_no_tables_is_refused_for_a_database(database: Path, tmp_path: Path) -> None:
    run = run_of(f"sqlite:///{database}", tmp_path / "data", parser="csv", fields=None)
    assert any("Use parser: table." in str(fault) for fault in Prepro(run).check())


def test_a_password_is_never_taken_into_a_config() -> None:
    with pytest.raises(ConfigError, match="holds a password") as caught:
        open_tables("postgresql+psycopg://me:secret@host/name")
    assert "secret" not in str(caught.value)


def test_a_database_without_a_driver_names_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"data_source: needs a driver .* pip install 'xdpx\[sql\]'"):
        open_tables("oracle://host/name")


def test_a_partition_belongs_to_its_table() -> None:
    assert address_of("odps://shop/tables/train/ds=1/hour=2") == ("odps://shop", "train/ds=1/hour=2")
    assert address_of("postgresql://me@host/db?sslmode=require/train") == (
        "postgresql://me@host/db?sslmode=require", "train",
    )  # fmt: skip


class Reader:
    """What `open_reader` gives: a context that yields records."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


class Service:
    """A MaxCompute with one table of two partitions."""

    @classmethod
    def from_global(cls) -> Service | None:
        return None

    @classmethod
    def from_environments(cls) -> Service | None:
        return cls()

    def list_tables(self, project: str) -> list[Any]:
        return [SimpleNamespace(name="train")] if project == "shop" else []

    def exist_table(self, name: str, project: str) -> bool:
        return (name, project) == ("train", "shop")

    def get_table(self, name: str, project: str) -> Any:
        columns = [SimpleNamespace(name="text"), SimpleNamespace(name="label")]
        days = {"ds=1": [{"text": "good", "label": 1}], "ds=1,hour=2": [{"text": "bad", "label": 0}]}
        return SimpleNamespace(
            table_schema=SimpleNamespace(simple_columns=columns), open_reader=lambda partition: Reader(days[partition])
        )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("odps")
    module.ODPS = Service  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odps", module)


@pytest.mark.usefixtures("service")
def test_a_partition_of_a_maxcompute_table_is_read() -> None:
    assert read("odps://shop/tables/train/ds=1", fields=["label", "text"]) == [(1, ["1", "good"])]
    assert read("odps://shop/train/ds=1/hour=2") == [(1, ["bad", "0"])]
    with pytest.raises(ConfigError, match="there is no table 'trane'"):
        read("odps://shop/tables/trane")


@pytest.mark.usefixtures("service")
def test_a_maxcompute_table_becomes_a_data_dir_named_after_the_table(tmp_path: Path) -> None:
    run = run_of("odps://shop/tables", tmp_path / "data", data_files="train/ds=1", fields=["text", "label"])
    assert not Prepro(run).check()
    Prepro(run).run()
    assert json.loads((tmp_path / "data" / "meta.hjson").read_text())["data_size"] == {"train": 1}


def test_without_pyodps_or_credentials_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "odps", None)
    with pytest.raises(ConfigError, match=r"pip install 'xdpx\[odps\]'"):
        open_tables("odps://shop")
    module = ModuleType("odps")
    module.ODPS = type("ODPS", (Service,), {"from_environments": lambda: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odps", module)
    with pytest.raises(ConfigError, match="needs credentials"):
        open_tables("odps://shop")
