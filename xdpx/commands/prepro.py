"""`x-prepro <config>`: turn raw text files into a data_dir for training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.config.loading import Run
from xdpx.datasets.build_parameters import BuildParameters
from xdpx.datasets.data_files import splits
from xdpx.datasets.fitting import other_texts
from xdpx.datasets.raw_data import identity
from xdpx.datasets.sharded.parameters import VARIABLES, ShardParameters, shard_of
from xdpx.logger import wrong_name
from xdpx.utils import hub, io
from xdpx.utils.commit import read_manifest
from xdpx.utils.raw_places import is_table

EXTRA_PACKAGES = {"excel": "openpyxl", "parquet": "pyarrow", "datasets": "pyarrow"}
"""Optional packages that parsers need; `xdpx[data]` installs both."""


class Prepro:
    """Turn raw text files into numbered samples; make the vocabulary and the target map."""

    class Parameters(ShardParameters, BuildParameters):
        """The keys of `x-prepro`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._settings: Prepro.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults of keys and files. Reads no raw file and needs no torch."""
        return [
            *self._about_folders(),
            *self._about_raw_files(),
            *self._about_fields(),
            *self._about_packages(),
            *self._about_words(),
            *self._about_shards(),
        ]

    def files_written(self) -> dict[str, list[str]]:
        """Return the splits that this run writes, by the key that names their folder."""
        settings = self._settings
        shard = "" if settings.shard_index is None else f" (shard {settings.shard_index})"
        try:
            return {"data_dir": [io.join(settings.data_dir, split) + shard for split in self._splits()]}
        except ConfigError:  # the run finished before, and its raw files are gone
            return {}

    def outdated(self) -> bool:
        """Return whether a raw file has changed since a split was made of it; False if the files cannot be reached."""
        try:
            paths = {split: path for split, path in self._splits().items() if not is_table(path)}
            made = {split: read_manifest(self._settings.data_dir, split) for split in paths}
            sources = {split: each.facts.get("source") for split, each in made.items() if each is not None}
            return any(source not in (None, identity(paths[split])) for split, source in sources.items())
        except (ConfigError, OSError):
            return False

    def run(self) -> int:
        """Build the data_dir, or this task's shard of it."""
        shard, faults = shard_of(self._settings.num_shards, self._settings.shard_index)
        if faults:
            raise ConfigError(self._run.source, faults)
        if shard is not None:
            from xdpx.datasets.sharded.tasks import run_task

            run_task(self._run, shard)
            return 0
        from xdpx.datasets.building import build

        build(self._run)
        return 0

    def _about_shards(self) -> list[Fault]:
        """Check the index of this task if it is known; a config is also checked before tasks are submitted."""
        index = self._settings.shard_index
        known = index is not None or any(name in os.environ for name in VARIABLES)
        return shard_of(self._settings.num_shards, index)[1] if known else []

    def _about_folders(self) -> Iterator[Fault]:
        source, target = self._settings.data_source, self._settings.data_dir
        if io.abspath(source) == io.abspath(target):
            problem = f"'{target}' is also data_source, so the output would be read as raw text the next time."
            yield Fault("data_dir", problem, f"Use another folder, e.g. {io.join(target, 'data')}.")
        if wrong_name(self._settings.log_file):
            yield Fault("log_file", wrong_name(self._settings.log_file))

    def _about_raw_files(self) -> Iterator[Fault]:
        yield from self._about_tables()
        try:
            self._splits()
        except ConfigError as error:
            yield from error.faults

    def _splits(self) -> dict[str, str]:
        return splits(self._settings.data_source, self._settings.data_files)

    def _about_tables(self) -> Iterator[Fault]:
        parser, source = self._run.values["parser"], self._settings.data_source
        if is_table(source) and parser != "table":
            yield Fault("parser", f"is '{parser}', but data_source is a database.", "Use parser: table.")
        elif parser == "table" and not is_table(source):
            problem, remedy = "is 'table', but data_source is not a database.", "Give e.g. sqlite:///reviews.db."
            yield Fault("parser", problem, remedy)

    def _about_fields(self) -> Iterator[Fault]:
        loader = self._run.build("loader")
        if unfit := other_texts(self._run):
            yield unfit
        fields = self._run.values.get("fields")
        names_first = [*loader.before, *loader.column_names]
        more = [*loader.between, *(["a label"] if loader.num_targets else [])]
        if fields is not None and not len(names_first) <= len(fields) <= len(names_first) + len(more):
            names = ", ".join(names_first) + (f", and perhaps {' and '.join(more)}" if more else "")
            problem = f"has {len(fields)} name{'s' * (len(fields) != 1)}."
            yield Fault("fields", problem, f"Loader '{self._run.values['loader']}' takes: {names}.")

    def _about_packages(self) -> Iterator[Fault]:
        parser = self._run.values["parser"]
        package = EXTRA_PACKAGES.get(parser)
        if package is not None and find_spec(package) is None:
            yield Fault("parser", f"'{parser}' needs the package {package}.", "Install it: pip install 'xdpx[data]'.")

    def _about_words(self) -> Iterator[Fault]:
        settings, tokenizer = self._settings, self._run.values["tokenizer"]
        if settings.vocab_file is None and self._run.picked("tokenizer").needs_vocabulary:
            problem = f"is missing: tokenizer '{tokenizer}' has its own vocabulary, which is not built from the data."
            yield Fault("vocab_file", problem, "Name the model's vocab.txt, or for auto its folder.")
        if settings.vocab_file is not None and tokenizer != "auto":
            yield from _must_be_file("vocab_file", settings.vocab_file)
        if settings.pretrained_embeddings is not None:
            yield from _must_be_file("pretrained_embeddings", settings.pretrained_embeddings)


def _must_be_file(key: str, path: str) -> Iterator[Fault]:
    if io.isfile(path):
        return
    if io.isdir(path):
        yield Fault(key, f"'{path}' is a directory.", "Name a file.")
        return
    folder = io.parent(path) or "."
    near = nearest(io.name(path), [io.name(name) for name in io.listdir(folder)]) if io.isdir(folder) else None
    kept = hub.kept_folder(path) if hub.how_to_fetch(path) else None
    remedy = f"Did you mean '{near}'?" if near else hub.how_to_fetch(path) or "Correct the path."
    if kept:
        remedy = f"That model is in the hub cache: write {key}: {io.join(kept, 'vocab.txt')}."
    yield Fault(key, f"'{path}' does not exist.", remedy, code="missing_path")
