"""Pictures that a model recorded during training, stored next to the figures drawn from the logs."""

from __future__ import annotations

from collections.abc import Mapping

from xdpx.utils import io
from xdpx.utils.commit import write_bytes

FOLDER = io.join("plots", "summaries")


def write_pictures(folder: str, pictures: Mapping[str, bytes], step: int) -> dict[str, str]:
    """Write pictures into the folder of a run, and return the path of each, relative to that folder.

    Args:
        folder: of the run.
        pictures: name -> PNG.
        step: at which they were recorded.
    """
    found = {}
    for name, picture in pictures.items():
        stem = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        found[name] = io.join(FOLDER, f"{stem}.{step:08d}.png")
        io.makedirs(io.join(folder, FOLDER), exist_ok=True)
        write_bytes(io.join(folder, found[name]), picture)
    return found
