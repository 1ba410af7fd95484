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

UNLABELLED = frozenset({"unsup", "unlabeled", "unlabelled"})
"""Names of folders of texts without a label, in lower case."""


def class_folders(folder: str) -> dict[str, list[str]]:
    """Return {label: files} of a folder that has a folder of texts per label; {} if fewer than two have texts.

    Texts are files whose names end in `.txt` or have no ending, as the messages of a newsgroup.
    """
    found = {}
    for label in sorted(map(io.name, io.listdir(folder))):
        inside = io.join(folder, label)
        if not label.startswith((".", "_")) and io.isdir(inside):
            names = sorted(name for name in map(io.name, io.listdir(inside)) if not name.startswith("."))
            files = [io.join(inside, name) for name in names if name.endswith(".txt") or "." not in name]
            found[label] = [file for file in files if file.endswith(".txt") or io.isfile(file)]
    found = {label: files for label, files in found.items() if files}
    return found if len(found) > 1 else {}


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
    if without := [label for label in folders if label.lower() in UNLABELLED]:
        left_out = [f"'{without[0]}', {len(folders[without[0]]):,} texts without a label", *left_out]
    table = Table(path, ["text", "label"], named=True, rows=rows, left_out=tuple(left_out))
    return table, [encoding, Decision("format", "a text per file, in a folder per label", "certain")]


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
