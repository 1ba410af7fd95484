"""Parsers convert raw files to rows of text columns; here is their registry, by the names used in configs."""

from typing import Any

from xdpx.config.registry import Registry

parsers: Registry[Any] = Registry(
    "parser",
    {
        "none": "xdpx.loaders.parsers.lines:LineParser",
        "csv": "xdpx.loaders.parsers.csv:CSVParser",
        "conll": "xdpx.loaders.parsers.conll:ConllParser",
        "squad": "xdpx.loaders.parsers.squad:SquadParser",
        "jsonl": "xdpx.loaders.parsers.json:JSONLParser",
        "json": "xdpx.loaders.parsers.json:JSONParser",
        "excel": "xdpx.loaders.parsers.excel:ExcelParser",
        "datasets": "xdpx.loaders.parsers.saved_dataset:SavedDatasetParser",
        "table": "xdpx.loaders.parsers.table:TableParser",
        "parquet": "xdpx.loaders.parsers.parquet:ParquetParser",
    },
    base="xdpx.loaders.parsers.base:Parser",
)
register = parsers.register
