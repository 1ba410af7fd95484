"""Faults of parts of a run that do not fit each other, or not the data: loader, processor, loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import Fault
from xdpx.config.loading import Run
from xdpx.processors import processors


def other_texts(run: Run) -> Fault | None:
    """Return a fault if the loader of a run of x-prepro gives other texts than the processor takes, or no answers."""
    loader, processor = run.build("loader"), run.picked("processor")
    names = {key: f"'{run.values[key]}'" for key in ("loader", "processor")}
    given, taken = len(loader.text_fields), len(processor.text_fields)
    if given != taken:
        problem = f"{names['processor']} takes {taken} text{'s' * (taken != 1)} per sample."
        return Fault("processor", problem, f"Loader {names['loader']} gives {given}: choose two that match.")
    if loader.has_answers != processor.reads_answers:
        reads = "reads" if processor.reads_answers else "does not read"
        has = "has" if loader.has_answers else "has no"
        problem = f"{names['processor']} {reads} answers in a text."
        return Fault("processor", problem, f"Loader {names['loader']} {has} answers: choose two that match.")
    return None


def other_columns(run: Run, meta: Mapping[str, Any], remedy: str) -> Fault | None:
    """Return a fault if the processor of a run reads columns that the one which made the data did not write.

    Args:
        run: of x-train.
        meta: of the data.
        remedy: what to do.
    """
    made_with = processors[meta["processor"]] if meta.get("processor") in processors else None
    if made_with is None or run.picked("processor").schema.keys() <= made_with.schema.keys():
        return None
    problem = f"is '{run.values['processor']}', but the data were made with '{meta['processor']}'."
    return Fault("processor", problem, remedy)
