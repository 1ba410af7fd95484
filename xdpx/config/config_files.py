"""Find config files by path, with or without suffix, and read them: hjson, json, yaml, and args.py of runs."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import replace

from xdpx.config.families import PREFIX, families, family_path
from xdpx.config.faults import ConfigError, Fault, Origin, did_you_mean, nearest
from xdpx.config.hjson_reader import read_hjson
from xdpx.config.located import Located, Table
from xdpx.config.network_config import as_keys_of_run, describes_network
from xdpx.config.source_text import MAX_BYTES, SourceText, Unreadable, decode, excerpt
from xdpx.config.stored_args import escaped, read_args
from xdpx.utils import io

SUFFIXES = (".hjson", ".json", ".yaml", ".yml")
"""Suffixes tried in this order if a path has none of them."""

_IMPOSSIBLE = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP, errno.ENOTDIR})
"""Errors that mean an invalid path, not a failure of disk or network."""

RAW_DATA = (".csv", ".tsv", ".jsonl", ".xlsx", ".parquet")
"""Suffixes of data files, which may also be compressed; they are not configs."""

VERSION = "__version__"
"""Key that marks files written by x-prepro; their content counts as metadata of the data, not as the user's choice."""

META = "meta"
"""Name (without suffix) of files that count as metadata, too, because they are distributed together with data."""
META_REMEDY = "Remove it there, and write it into your own config if you mean it; a config of yours needs another name."


KEPT_VARIABLE = "XDPX_CONFIGS"
"""Environment variable with a folder of copies of configs, at their paths below the working directory. They are read
instead of the originals, which may have changed since a job was submitted."""


def kept(path: str) -> str:
    """Return the file to read for a config: the copy made when the job was submitted, or the path itself."""
    folder = os.environ.get(KEPT_VARIABLE, "")
    if not folder or not io.islocal(path):
        return path
    here = io.abspath(".").rstrip("/") + "/"
    place = io.abspath(path)
    copy = io.join(folder, place.removeprefix(here)) if place.startswith(here) else ""
    return copy if copy and io.isfile(copy) else path


def resolve_path(path: str, *, beside: str) -> str:
    """Return a path written in a config, with leading `./` or `../` resolved from the folder of that file, `beside`."""
    if not path.startswith(("./", "../")):
        return path
    scheme, separator, rest = beside.rpartition("://")
    return scheme + separator + posixpath.normpath(posixpath.join(posixpath.dirname(rest), path))


class ConfigFiles:
    """Reads config files, each once. Faults that leave a file usable are added to `faults`; the others to `fatal`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.fatal: list[Fault] = []
        self.written: list[str] = []
        """Paths of the user's configs that were read, i.e. neither metadata nor args.py."""
        self.referred: set[str] = set()
        """Names used as `${name}` in the paths of parents."""
        self._tables: dict[str, list[Table]] = {}

    def find(self, path: str, asked: Origin, key: str) -> str | None:
        """Return the absolute path of an existing config; else None, and add a fault that suggests a similar file.

        Args:
            path: as written.
            asked: where it was written.
            key: of the fault.
        """
        tried = [path] if path.endswith(SUFFIXES) else [*(path + suffix for suffix in SUFFIXES), path]
        try:
            found = next((candidate for candidate in tried if path and io.isfile(kept(candidate))), family_path(path))
            if found and not is_raw_data(found):
                return io.abspath(found)
            if found:
                self.fatal.append(Fault(key, f"'{path}' holds data, not a config.", f"Write: x-run {path}", asked))
                return None
            self.fatal.append(_missing(path, asked, key))
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _IMPOSSIBLE:
                raise
            reason = error.strerror if isinstance(error, OSError) else error
            self.fatal.append(Fault(key, f"{excerpt(path)} cannot be a path: {reason}.", "", asked))
        return None

    def tables(self, path: str) -> list[Table]:
        """Return the dicts of a config, one per run; empty if it cannot be read (see `fatal`)."""
        if path not in self._tables:
            self._tables[path] = self._read(path)
        return self._tables[path]

    def _read(self, path: str) -> list[Table]:
        try:
            if path.endswith(".py"):  # the args.py of a run; nothing in it is executed
                origin = Origin(shown(path))
                return [{key: _located(escaped(value), origin) for key, value in read_args(path).items()}]
            with io.open(kept(path), "rb") as file:
                source = decode(file.read(MAX_BYTES + 1), shown(path))
            tables = _dicts(_reader(path)(source, self.faults), source.file)
            # Metadata of data, by the name of the file, or because x-prepro wrote it.
            if posixpath.splitext(io.name(path))[0] == META or any(VERSION in table for table in tables):
                return self._of_data(tables, path)
            self.written.append(path)
            return [as_keys_of_run(table) if describes_network(table, path) else table for table in tables]
        except Unreadable as error:
            self.fatal.append(error.fault)
        except ConfigError as error:
            self.fatal.extend(error.faults)
        return []

    def _of_data(self, tables: list[Table], path: str) -> list[Table]:
        """Mark all values of a metadata file; parents, loops and macros in it are fatal faults."""
        if len(tables) > 1:
            problem = f"describes {len(tables)} runs."
            self.fatal.append(Fault(shown(path), problem, META_REMEDY))
        for key, located in tables[0].items():
            if key.startswith("__") and key != VERSION:
                self.fatal.append(
                    Fault(key, "comes with data, which cannot set such a key.", META_REMEDY, located.origin)
                )
        return [{key: _marked(located) for key, located in tables[0].items()}]


def is_raw_data(path: str) -> bool:
    """Return whether a path has a suffix of data files, compressed or not."""
    return path.lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz").endswith(RAW_DATA)


def shown(path: str) -> str:
    """Return a path for messages: relative to the working directory if it is local and below it."""
    here = io.abspath(".")
    return path.removeprefix(here.rstrip("/") + "/") if io.islocal(path) else path


def _located(value: object, origin: Origin) -> Located:
    if isinstance(value, dict):
        value = {key: _located(item, origin) for key, item in value.items()}
    elif isinstance(value, list):
        value = [_located(item, origin) for item in value]
    return Located(value, origin)


def _reader(path: str) -> Callable[[SourceText, list[Fault]], Located]:
    if path.endswith((".yaml", ".yml")):
        from xdpx.config.yaml_reader import read_yaml  # imports PyYAML only if it is needed

        return read_yaml
    return read_hjson


def _dicts(located: Located, file: str) -> list[Table]:
    """Return the dicts of the top level: one dict is one run, a list of dicts is several. Raises Unreadable."""
    if isinstance(located.value, dict):
        return [located.value]
    items = located.value if isinstance(located.value, list) else [located]
    wrong = [item for item in items if not isinstance(item.value, dict)]
    if wrong or not items:
        problem = f"holds {kind_of(wrong[0].value) if wrong else 'an empty list'}."
        remedy = "Write one dict (one run) or a list of dicts (several)."
        raise Unreadable(Fault("top level", problem, remedy, wrong[0].origin if wrong else Origin(file, 1)))
    return [item.value for item in items]


def kind_of(value: object) -> str:
    """Return the type of a value in words, for messages about configs."""
    names: dict[type, str] = {dict: "a dict", list: "a list", str: "a text", bool: "true or false"}
    return names.get(type(value), "nothing" if value is None else "a number")


def _marked(located: Located) -> Located:
    value = located.value
    if isinstance(value, dict):
        value = {key: _marked(inner) for key, inner in value.items()}
    return replace(located, value=value, from_meta=True)


def _missing(path: str, asked: Origin, key: str) -> Fault:
    suffixes = "" if path.endswith(SUFFIXES) else f" (nor with {', '.join(SUFFIXES)})"
    quoted = excerpt(path, 100)
    problem = f"{quoted} is a folder, not a config." if path and io.isdir(path) else f"there is no {quoted}{suffixes}."
    return Fault(key, problem, _remedy(path, asked), asked, "missing_path")


def _remedy(path: str, asked: Origin) -> str:
    """Return advice about a missing config, with the file that was probably meant."""
    if path.startswith(PREFIX):
        return did_you_mean(path.removesuffix(SUFFIXES[0]), families(), rest="`x-init --list` shows all.")
    beside = resolve_path(f"./{path}", beside=asked.file)
    if asked.line and any(io.isfile(beside + suffix) for suffix in ("", *SUFFIXES)):
        return f"Paths without ./ start at the working directory; write './{path}' for the file beside this one."
    if io.name(path).split(".")[0] == META:
        return "x-prepro writes it: run x-prepro first, or correct the folder."
    if io.isdir(path):
        return f"Name a file in it; for commands that take a run, such as x-eval, write save_dir={path}."
    folder = io.parent(path) or "."
    if not io.isdir(folder):
        return f"The folder '{folder}' does not exist."
    near = _nearest_file(io.name(path), io.listdir(folder))
    return f"The nearest file there is '{near}'." if near else f"No config in '{folder}' has a similar name."


def _nearest_file(name: str, names: Iterable[str]) -> str | None:
    """Return the config file with the most similar name, compared without suffixes."""
    stems = {posixpath.splitext(other)[0]: other for other in names if other.endswith(SUFFIXES)}
    stem = posixpath.splitext(name)[0] if name.endswith(SUFFIXES) else name
    near = nearest(stem, sorted(stems))
    return stems[near] if near else None
