"""The static files of the board's page, shipped unchanged in the folder `page` next to this module."""

from __future__ import annotations

from importlib import resources


def page_text(name: str) -> str:
    """Return the text of a file of the page. Raises OSError if there is none."""
    folder = resources.files("xdpx.board").joinpath("page")
    place = folder.joinpath("vendor", name) if name.startswith("uPlot.") else folder.joinpath(name)
    return place.read_text(encoding="utf-8")
