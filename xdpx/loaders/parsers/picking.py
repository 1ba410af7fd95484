"""Columns chosen by name, in whatever order a file or table has them."""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.config.faults import ConfigError, Fault, nearest


def picked(names: Sequence[str], fields: Sequence[str] | None, where: str) -> list[int]:
    """Find the columns to take; None takes all. Where the last field, the label, is absent the data are unlabelled.

    Raises:
        ConfigError: there is no column of that name, or two.
    """
    if fields is None:
        return list(range(len(names)))
    missing = [field for field in fields if field not in names]
    unlabelled = len(fields) > 1 and missing == [fields[-1]] and nearest(fields[-1], names) is None
    if missing and not unlabelled:
        near = nearest(missing[0], names)
        remedy = f"Did you mean '{near}'?" if near else f"Choose among: {', '.join(names) or 'none'}."
        raise ConfigError(where, [Fault("fields", f"there is no column '{missing[0]}'.", remedy)])
    wanted = list(fields[:-1] if unlabelled else fields)
    twice = [field for field in wanted if list(names).count(field) > 1]
    if twice:
        raise ConfigError(where, [Fault("fields", f"two columns are called '{twice[0]}'.", "Rename one of them.")])
    return [list(names).index(field) for field in wanted]
