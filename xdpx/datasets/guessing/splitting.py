"""Split rows into train, dev and test by a hash of the text, so that equal texts are in the same split."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence

from xdpx.config.faults import nearest
from xdpx.datasets.data_files import split_of
from xdpx.datasets.guessing.decision import question
from xdpx.datasets.guessing.reading import ending
from xdpx.utils import io

SPLITS = ("train", "dev", "test")
CALLED = {"train": "train", "training": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev",
          "eval": "dev", "test": "test"}  # fmt: skip
"""Common name -> our name of a split."""


_NUMBERED = re.compile(r"(.+)-\d{5}-of-(\d{5})")
"""The name of a file in the datasets of Hugging Face: the split, and of how many files it consists."""


def split_rows(texts: Sequence[str], labels: Sequence[str], *, dev: float, test: float) -> list[str]:
    """Return the split of each row.

    Rows with the same text (ignoring case and white space) stay together. Within each label, texts are sorted by their
    hashes; the first ones are test, the next dev. So the result depends neither on the order of the file nor on chance,
    and splits are stratified, up to rounding; a label with fewer than three texts is only in train.

    Args:
        texts: of each row.
        labels: of each row; with one label for all, splits are not stratified.
        dev: share of the texts for model selection.
        test: share of the texts for the final evaluation.
    """
    label_of: dict[str, str] = {}
    keys = [key_of(text) for text in texts]
    for key, label in zip(keys, labels, strict=True):
        label_of.setdefault(key, label)
    strata: dict[str, list[str]] = defaultdict(list)
    for key, label in label_of.items():
        strata[label].append(key)
    found: dict[str, str] = {}
    for stratum in strata.values():
        found.update(_shared_out(sorted(stratum), dev, test))
    return [found[key] for key in keys]


def _shared_out(keys: Sequence[str], dev: float, test: float) -> Mapping[str, str]:
    count = len(keys)
    tests = max(round(test * count), int(test > 0)) if count > 2 else 0
    devs = max(round(dev * count), int(dev > 0)) if count > 2 else 0
    return {
        key: "test" if place < tests else "dev" if place < tests + devs else "train" for place, key in enumerate(keys)
    }


def key_of(text: str) -> str:
    """Return a hash of a text that ignores case, width of characters and white space."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def data_files(folder: str) -> list[str]:
    """Return the files of a folder that have suffixes of data files."""
    paths = [io.join(folder, io.name(name)) for name in sorted(io.listdir(folder))]
    return [path for path in paths if not io.name(path).startswith(".") and io.isfile(path) and ending(path)]


def splits_among(paths: Sequence[str]) -> dict[str, str]:
    """Return {split: file or sheet} of those named like splits; empty if none is named like train.

    Raises:
        ConfigError: a split is in several numbered files, or several files are named like it.
    """
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        stem = split_of(path).lower()
        if numbered := _NUMBERED.fullmatch(stem):
            stem = numbered[1]
            if numbered[2] != "00001":
                problem = f"'{io.name(path)}' is one of several files of a split."
                remedy = "Join them into one file, called e.g. train.parquet."
                raise question(io.parent(path) or ".", "file", problem, remedy)
        split = CALLED.get(stem) or CALLED.get(stem.rpartition(".")[2]) or CALLED.get(stem.rpartition("_")[2])
        if split:
            found.setdefault(split, {}).setdefault("" if stem in CALLED else stem, path)
    for split, named in found.items():
        if len(named) > 1 and "" not in named:
            problem = f"could have {split} in {' or '.join(map(io.name, named.values()))}."
            raise question(io.parent(paths[0]) or ".", "file", problem, "Give each data set a folder of its own.")
    chosen = {split: named.get("") or next(iter(named.values())) for split, named in found.items()}
    return {split: chosen[split] for split in SPLITS if split in chosen} if "train" in chosen else {}


def nearest_file(path: str) -> str | None:
    """Return the name of the file that was probably meant; None if none is similar."""
    folder = io.parent(path) or "."
    return nearest(io.name(path), [io.name(name) for name in io.listdir(folder)]) if io.isdir(folder) else None
