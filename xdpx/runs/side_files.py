"""The files of a run beside its checkpoints: hashed when written; damage to one of them never prevents a resume."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatch

from xdpx.config.args_file import ARGS_FILE, PREPRO_ARGS
from xdpx.config.faults import ConfigError
from xdpx.config.stored_args import read_args
from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.runs import run_folder
from xdpx.training.status import STATUS_FILE, trouble_of_status
from xdpx.utils import commit, io
from xdpx.utils.aside import is_unreadable, reason_of, set_aside, text_of
from xdpx.utils.verified import RESOURCES, altered

_CHECKPOINT = re.compile(r"checkpoint-.*")
_THEN = "the run continues without it"


def seal(folder: str, others: list[str]) -> None:
    """Record the hashes of the files needed to rebuild the model: parameters, and `others`, by their names."""
    patterns = (ARGS_FILE, PREPRO_ARGS, "args.resume-*.py", *others)
    names = [name for name in io.listdir(folder) if any(fnmatch(name, pattern) for pattern in patterns)]
    commit.seal(folder, RESOURCES, [name for name in names if io.isfile(io.join(folder, name))])


def keep(folder: str, data_dir: str) -> list[str]:
    """Copy what a trained model needs from data_dir, and the preprocessing arguments, so the run is self-contained.

    Returns the names of what it needs, including the files of a user's own tokenizer.
    """
    of_data = run_folder.listed(data_dir) - {ARGS_FILE}
    names = [*run_folder.RESOURCES, *sorted(of_data - {*run_folder.RESOURCES})]
    for name in names:
        source = io.join(data_dir, name)
        if io.isfile(source) and not io.exists(io.join(folder, name)):
            io.copy(source, io.join(folder, name))
    source, kept = io.join(data_dir, ARGS_FILE), io.join(folder, PREPRO_ARGS)
    if io.isfile(source) and not io.exists(kept):
        with io.open(source, encoding="utf-8") as file:
            commit.write_text(kept, file.read(), private=True)
    return names


def mend(folder: str) -> None:
    """Rename damaged files beside the checkpoints out of the way, so that the run can go on without them.

    The logs are skipped: the code that appends to them keeps their complete rows.
    """
    seal_file = io.join(folder, RESOURCES + commit.SUFFIX)
    if io.exists(seal_file) and commit.read_manifest(folder, RESOURCES) is None:
        set_aside(seal_file, "is damaged", then="what it lists is taken as it is")
    troubles, listed = altered(folder), run_folder.listed(folder)
    for name in io.listdir(folder):
        path = io.join(folder, name)
        foreign = not run_folder.is_own(name) and name not in listed
        if foreign or _CHECKPOINT.fullmatch(name) or name in (TRAIN_LOG, VALID_LOG):
            continue
        trouble = troubles.get(path) or _trouble(path, name)
        if trouble:
            set_aside(path, trouble, then=_THEN)


def bring_back(folder: str, texts: Mapping[str, str]) -> None:
    """Restore files missing from the folder that the full state also holds: the architecture, config.json."""
    for name, text in texts.items():
        if not io.exists(io.join(folder, name)):
            commit.write_text(io.join(folder, name), text)


def _trouble(path: str, name: str) -> str:
    if name in run_folder.FOLDERS:
        return "" if io.isdir(path) else "is not a folder"
    trouble = is_unreadable(path)
    if trouble:
        return trouble
    if name == STATUS_FILE:
        return trouble_of_status(path)
    if name == METRICS_FILE:
        return text_of(path)[1]
    if fnmatch(name, "args*.py"):
        try:
            read_args(path)
        except ConfigError as error:
            return error.faults[0].problem.rstrip(".")
        except OSError as error:
            return reason_of(error)
    return ""
