"""What is in a save_dir, and what may be done with it: nothing that is not a run's own is ever deleted."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import count

from xdpx.checkpoints.memory_copies import IDENTITY
from xdpx.config.args_file import ARGS_FILE, PREPRO_ARGS
from xdpx.config.faults import Fault
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.runs.snapshot import SNAPSHOT
from xdpx.training.status import STATUS_FILE, Content
from xdpx.utils import commit, io, verified
from xdpx.utils.aside import original_name
from xdpx.utils.owners import is_lasting

STARTER_CONFIG = "starter_config.hjson"
RESOURCES = ("vocab.txt", "word_vocab.txt", "target_map.txt", "embeddings.pt", "tokenizer.json")
"""Files of data_dir that a trained model cannot do without."""

FOLDERS = ("plots", "eval", "transformers", "stacks", "nonfinite", "profile")
"""Folders in a save_dir."""

OWN = (
    "checkpoint-*.pt", "checkpoint-*.pts", "checkpoint-*.manifest.json", "args.resume-*.py",
    "starter_config.resume-*.hjson", "snapshot.resume-*.zip", "resources.manifest.json", IDENTITY, "log.txt",
    "config.json", "bert_config.json", ARGS_FILE, PREPRO_ARGS, STARTER_CONFIG, TRAIN_LOG, VALID_LOG, SNAPSHOT,
    STATUS_FILE, "temperature.json", "metrics.jsonl", *FOLDERS, *RESOURCES,
)  # fmt: skip
"""Everything that a run writes into its save_dir, beside the files of a user's own tokenizer."""


def content(folder: str) -> Content:
    """Return what kind of content `folder` has. Only "run" may be continued or overwritten."""
    if not io.exists(folder):
        return "nothing"
    if not io.isdir(folder):
        return "something else"
    names = {original_name(name) for name in io.listdir(folder)}
    # Preprocessed data has a status and args too, and must never be taken for a run.
    if "meta.hjson" not in names and (STATUS_FILE in names or {ARGS_FILE, TRAIN_LOG} <= names):
        return "run"
    # Hidden files are the lease and temporaries of a run that was killed before its first file.
    return "something else" if any(map(is_lasting, names)) else "nothing"


def clear(folder: str, *, but: tuple[str, ...] = ()) -> list[str]:
    """Delete the files of a run, and return the names of the others, which are kept."""
    left, own = [], listed(folder)
    for name in io.listdir(folder):
        if name in but or name.startswith("."):
            continue
        if is_own(original_name(name)) or original_name(name) in own:
            io.remove(io.join(folder, name))
        else:
            left.append(name)
    return left


def is_own(name: str) -> bool:
    """Return whether a run writes a file or folder of this name."""
    return any(fnmatch(name, pattern) for pattern in OWN)


def listed(folder: str) -> frozenset[str]:
    """Return the names of the files that a model is built from, as a run or preprocessed data listed them."""
    manifest = commit.read_manifest(folder, verified.RESOURCES)
    return frozenset(manifest.files if manifest is not None else ())


def with_suffix(folder: str) -> Iterator[str]:
    """Yield `folder` if it is empty, then those of `<folder>-1`, `<folder>-2`, ... that do not exist.

    Another run may claim a folder after it was yielded; the caller then takes the next one.
    """
    if content(folder) == "nothing":
        yield folder
    for number in count(1):
        path = f"{folder.rstrip('/')}-{number}"
        if not io.exists(path):
            yield path


def occupied(folder: str, found: Content) -> Fault:
    """Return the fault of a `folder` that is in use, with what the user can do."""
    if found == "run":
        remedy = "Choose another, or set one of resume: auto, overwrite: true, auto_suffix: true."
        return Fault("save_dir", f"'{folder}' already contains a run.", remedy, code="occupied")
    remedy = "They are never deleted or mixed with a run: choose a folder that does not exist, or is empty."
    return Fault("save_dir", f"'{folder}' contains files that do not belong to a run of x-train.", remedy)
