"""How reference runs and figure formats are written in a config. Imports no drawing library."""

from __future__ import annotations

from collections.abc import Mapping

from xdpx.config.faults import did_you_mean
from xdpx.utils import io

FORMATS = ("eps", "jpeg", "jpg", "pdf", "pgf", "png", "ps", "raw", "rgba", "svg", "svgz", "tif", "tiff", "webp")
"""The formats that matplotlib can write, listed here so that checking a config need not import it; tested."""

MOST_REFERENCES = 4

References = str | list[str] | Mapping[str, str] | None
"""A folder, a list of folders, or label -> folder."""


def named_references(reference: References) -> dict[str, str]:
    """Return label -> folder for each way of writing references; without labels, folder names are the labels."""
    if not reference:
        return {}
    if isinstance(reference, Mapping):
        return dict(reference)
    folders = [reference] if isinstance(reference, str) else reference
    names = [io.name(folder) for folder in folders]
    return {name if names.count(name) == 1 else folder: folder for name, folder in zip(names, folders, strict=True)}


def reference_conflicts(key: str, reference: References) -> list[tuple[str, str]]:
    """Return a conflict if there are more references than a figure can distinguish."""
    count = len(reference) if isinstance(reference, (list, Mapping)) else 0
    if count <= MOST_REFERENCES:
        return []
    return [(key, f"names {count} runs; a figure shows at most {MOST_REFERENCES}. Leave some out.")]


def format_conflicts(key: str, figure_format: str) -> list[tuple[str, str]]:
    """Return a conflict for a figure format that matplotlib cannot write."""
    if figure_format in FORMATS:
        return []
    advice = did_you_mean(figure_format.lstrip(".").lower(), FORMATS, f"Use one of: {', '.join(FORMATS)}.")
    return [(key, f"is '{figure_format}', not a figure format. {advice}")]
