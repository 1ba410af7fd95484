"""Tables of Alibaba Cloud MaxCompute: `odps://project/tables/name`, with a partition `.../ds=20200101` behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.tables.base import Tables

CREDENTIALS = (
    "Set ODPS_ENDPOINT, ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, or call "
    "ODPS(access_id, access_key, project, endpoint).to_global() in user/modules/odps_credentials.py."
)


class OdpsTables(Tables):
    """The tables of one project, through pyodps. A name may carry its partition: `train/ds=20200101/hour=3`."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        try:
            from odps import ODPS
        except ImportError as error:
            fault = Fault("data_source", "needs the package pyodps.", "Install it: pip install 'xdpx[odps]'.")
            raise ConfigError(source, [fault]) from error
        self._door = ODPS.from_global() or ODPS.from_environments()
        if self._door is None:
            raise ConfigError(source, [Fault("data_source", "needs credentials.", CREDENTIALS)])
        self._project = source.partition("://")[2].strip("/")

    def names(self) -> list[str]:
        """Give the names of its tables, sorted."""
        return sorted(str(table.name) for table in self._door.list_tables(project=self._project))

    def columns(self, table: str) -> list[str]:
        """Give the names of the columns of a table, partitions not among them."""
        name = table.partition("/")[0]
        if not self._door.exist_table(name, project=self._project):
            raise self.absent(name)
        found = self._door.get_table(name, project=self._project)
        return [str(column.name) for column in found.table_schema.simple_columns]

    def rows(self, table: str, columns: Sequence[str], order_by: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Yield these columns of every row, in the order of the table: it cannot be sorted while it is read."""
        if order_by:
            problem = "cannot be used with odps://, whose tables are read as they lie."
            raise ConfigError(self.source, [Fault("order_by", problem, "Leave it out.")])
        name, _, partition = table.partition("/")
        found = self._door.get_table(name, project=self._project)
        with found.open_reader(partition=partition.replace("/", ",") or None) as reader:
            for record in reader:
                yield [record[column] for column in columns]
