"""Lines that are told before a run owns its log file, so that they can be written into it afterwards."""

from __future__ import annotations

import logging
from typing import Self


class EarlyLines(logging.Handler):
    """While entered, remembers every line of the log; `repeat_to` tells them to a handler, with their own times."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Remember one line."""
        self._records.append(record)

    def repeat_to(self, handler: logging.Handler) -> None:
        """Tell what was remembered, once."""
        records, self._records = self._records, []
        for record in records:
            handler.handle(record)

    def __enter__(self) -> Self:
        logging.getLogger("xdpx").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("xdpx").removeHandler(self)
