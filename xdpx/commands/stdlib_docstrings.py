"""A small real data set available on every machine: docstrings of Python's standard library, labelled by topic.

Modules are parsed, not imported. Two machines with the same Python version produce the same data.
"""

from __future__ import annotations

import ast
import csv
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from xdpx.utils import commit, io

TOPICS = {
    "concurrency": "asyncio multiprocessing threading concurrent subprocess selectors queue sched signal",
    "files": "pathlib shutil tarfile zipfile os posixpath ntpath glob fnmatch tempfile _pyio gzip lzma bz2 filecmp "
    "fileinput",
    "graphics": "tkinter turtle colorsys",
    "language": "ast inspect importlib typing tokenize dis pkgutil symtable enum dataclasses functools contextlib "
    "pydoc traceback runpy copy abc types collections _collections_abc operator",
    "mail": "email mailbox smtplib imaplib poplib mailcap",
    "network": "http urllib socket socketserver ssl ftplib nntplib telnetlib xmlrpc wsgiref ipaddress cgi",
    "numbers": "_pydecimal fractions statistics random numbers datetime calendar _pydatetime heapq bisect",
    "testing": "unittest doctest pdb bdb cProfile profile pstats timeit trace logging",
    "text": "string textwrap difflib codecs encodings xml html json csv configparser re gettext locale argparse",
}
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Where statements hold statements."""
MIN_WORDS = 4
MAX_WORDS = 120


def docstrings(source: str) -> Iterator[str]:
    """Yield each docstring of a module of at least 4 words, on one line, cut to its first 120 words."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    left: list[ast.AST] = [tree]
    while left:  # statements alone: ast.walk, which goes through expressions as well, takes five times as long
        node = left.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = (ast.get_docstring(node) or "").split()
            if len(words) >= MIN_WORDS:
                yield " ".join(words[:MAX_WORDS])
        for name in BLOCKS:
            left += getattr(node, name, ())


def _files(library: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of each topic and the topic, without tests."""
    for topic, modules in TOPICS.items():
        for module in modules.split():
            for file in (library / f"{module}.py", *(library / module).rglob("*.py")):
                if file.is_file() and not {"test", "tests", "idle_test"} & set(file.relative_to(library).parts):
                    yield file, topic


def labelled_docstrings() -> dict[str, str]:
    """Map each distinct docstring to its topic; a text that appears under two topics is left out."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, str] = {}
    ambiguous = set()
    for file, topic in _files(library):
        with io.open(str(file), encoding="utf-8", errors="ignore") as source:
            texts = list(docstrings(source.read()))
        for text in texts:
            if found.setdefault(text, topic) != topic:
                ambiguous.add(text)
    return {text: topic for text, topic in found.items() if text not in ambiguous}


def split_of(text: str) -> str:
    """Return the split of a text by its checksum: train for eight texts of ten, dev for one, test for one."""
    return ("dev", "test", *["train"] * 8)[zlib.crc32(text.encode()) % 10]


def write_csv(path: str) -> None:
    """Write one table with a header, `docstring,topic`, as a typical raw file."""
    text = StringIO(newline="")
    csv.writer(text).writerows([("docstring", "topic"), *sorted(labelled_docstrings().items())])
    _write(path, text.getvalue())


def _write(path: str, text: str) -> None:
    io.makedirs(io.parent(path), exist_ok=True)
    commit.write_text(path, text)


def write_splits(folder: str) -> dict[str, int]:
    """Write train.tsv, dev.tsv, test.tsv (docstring TAB topic) and unlabelled.tsv into a folder.

    Returns:
        {split: rows} of the labelled ones; the split of a row depends on its text alone.
    """
    rows: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for text, topic in sorted(labelled_docstrings().items()):
        rows[split_of(text)].append(f"{text}\t{topic}\n")
    for split, lines in rows.items():
        _write(io.join(folder, f"{split}.tsv"), "".join(lines))
    _write(io.join(folder, "unlabelled.tsv"), "".join(line.split("\t")[0] + "\n" for line in rows["test"]))
    return {split: len(lines) for split, lines in rows.items()}


def main() -> None:
    """Write the data into the folder given on the command line, and print the sizes."""
    if len(sys.argv) != 2:
        sys.exit("usage: python stdlib_docstrings.py OUTPUT_FOLDER")
    folder = sys.argv[1]
    counts = write_splits(folder)
    print(f"wrote {counts['train']} train, {counts['dev']} dev and {counts['test']} test docstrings to {folder}")
