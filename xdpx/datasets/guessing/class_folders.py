"""Read folders with a text per file, in a folder per label: as IMDb, 20 Newsgroups and THUCNews are passed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdpx.config.faults import ConfigError
from xdpx.datasets.guessing.decision import Decision, Wishes
from xdpx.datasets.guessing.encodings import SAMPLE_BYTES, decodes, text_of
from xdpx.datasets.guessing.reading import Table
from xdpx.loaders.parsers.base import Row
from xdpx.loaders.parsers.files import open_raw
from xdpx.logger import log
from xdpx.utils import io
from xdpx.utils.storage import Entry

UNLABELLED = frozenset({"unsup", "unlabeled", "unlabelled"})
"""Names of folders of texts without a label, in lower case."""


def class_folders(folder: str) -> dict[str, list[str]]:
    """Return {label: files} of a folder that has a folder of texts per label; {} if fewer than two have texts.

    Texts are files whose names end in `.txt` or have no ending, as the messages of a newsgroup.
    """
    found = {}
    for entry in _folders(folder):
        inside = [each.path for each in io.store(entry.path).children(entry.path) if not each.folder]
        names = {path: io.name(path) for path in inside if not io.name(path).startswith(".")}
        if files := [path for path, name in names.items() if name.endswith(".txt") or "." not in name]:
            found[io.name(entry.path)] = files
    return found if len(found) > 1 else {}


def _folders(path: str) -> list[Entry]:
    """Return the folders in a folder that may be labels."""
    place = io.plain(path)
    found = [entry for entry in io.store(place).children(place) if entry.folder]
    return [entry for entry in found if not io.name(entry.path).startswith((".", "_"))]


def read_class_folders(path: str, wishes: Wishes) -> tuple[Table, list[Decision]]:
    """Return the table of texts and labels of a folder with `class_folders`, and the decisions made.

    Folders of texts without a label are left out, and files that are not in the encoding of the others.

    Raises:
        ConfigError: the encoding of the files cannot be recognised.
    """
    folders = class_folders(path)
    files = [(label, file) for label, named in folders.items() if label.lower() not in UNLABELLED for file in named]
    _, encoding = text_of(_sample([file for _, file in files]), path, wishes)
    wishes = replace(wishes, encoding=encoding.value)
    rows, left_out = _rows(files, wishes)
    if broken := _broken_links(path):
        left_out = [f"{len(broken):,} links to what is not there, such as {broken[0]}", *left_out]
    if without := [label for label in folders if label.lower() in UNLABELLED]:
        left_out = [f"'{without[0]}', {len(folders[without[0]]):,} texts without a label", *left_out]
    table = Table(path, ["text", "label"], named=True, rows=rows, left_out=tuple(left_out))
    return table, [encoding, Decision("format", "a text per file, in a folder per label", "likely")]


def _broken_links(path: str) -> list[str]:
    """Return label and name of each link to a file that is not there, which listings leave out."""
    folders = [entry.path for entry in _folders(path)] if io.islocal(path) else []
    return [f"{io.name(folder)}/{name}" for folder in folders for name in io.local_files.broken_links(folder)]


def _sample(files: Sequence[str]) -> bytes:
    """Return the content of files from all over the list that are in UTF-8, or of the others if these are more."""
    contents: list[bytes] = []
    for file in files[:: max(1, len(files) // 500)]:
        contents.append(_content(file))
        if sum(map(len, contents)) > SAMPLE_BYTES:
            break
    in_utf8 = [content for content in contents if decodes(content, "utf-8")]
    others = [content for content in contents if not decodes(content, "utf-8")]
    return b"".join(others if len(others) > len(in_utf8) else in_utf8)


def _rows(files: Sequence[tuple[str, str]], wishes: Wishes) -> tuple[list[Row], list[str]]:
    """Return (text and label of each file, descriptions of files that cannot be read)."""
    rows, left_out = [], []
    for label, file in log.progress(files, what="texts", unit="files"):
        try:
            rows.append([text_of(_content(file), file, wishes)[0], label])
        except ConfigError as error:
            left_out.append(f"{label}/{io.name(file)} {error.faults[0].problem.rstrip('.')}")
    return rows, left_out


def _content(file: str) -> bytes:
    with open_raw(file) as stream:
        return bytes(stream.read())
