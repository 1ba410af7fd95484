"""The files that the page is made of: they lie beside this one, as people write them, and are shipped as they are."""

from __future__ import annotations

from importlib import resources


def page_text(name: str) -> str:
    """Return the text of a file of the page. Raises OSError when there is none."""
    folder = resources.files("xdpx.board").joinpath("page")
    place = folder.joinpath("vendor", name) if name.startswith("uPlot.") else folder.joinpath(name)
    return place.read_text(encoding="utf-8")
