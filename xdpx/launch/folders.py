"""The folder of a submission: a snapshot of the code, the files that run the job, and a record to find it again."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.launch.submission import RECORD, Record
from xdpx.runs.snapshot import SNAPSHOT, write_snapshot
from xdpx.utils import commit, git, io
from xdpx.utils.redaction import redact
from xdpx.utils.replacing import adding

FOLDER = "submissions"
HISTORY = "command_history.txt"


def new_name(name: str, now: datetime) -> str:
    """Return a unique name `<name>-<time>` of characters that every file system and cluster accepts."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:30].strip("-") or "job"
    stamped = f"{plain}-{now:%Y%m%d-%H%M%S}"
    count = 2
    found = stamped
    while io.exists(io.join(FOLDER, found)):
        found, count = f"{stamped}-{count}", count + 1
    return found


def write_folder(folder: str, files: Mapping[str, str], *, configs: Mapping[str, str], state: Mapping[str, Any]) -> int:
    """Write the folder of a submission except its record; return the size of the snapshot in bytes.

    Args:
        folder: created if missing.
        files: {name: text} of the files that run the job.
        configs: {path below the working directory: file} of the user's configs and scripts.
        state: commit and changes, as `git_state` returns them.
    """
    archive = io.join(folder, SNAPSHOT)
    write_snapshot(archive, more={f"configs/{name}": file for name, file in configs.items()})
    code = io.join(folder, "code")
    with io.open(archive, "rb") as source, zipfile.ZipFile(source) as packed:
        for name in packed.namelist():
            with io.open(io.join(code, name), "wb") as file:
                file.write(packed.read(name))
    commit.write_text(io.join(folder, "git.json"), json.dumps(state, indent=2, ensure_ascii=False) + "\n")
    for name, text in files.items():
        commit.write_text(io.join(folder, name), text, private=True)
    return io.size(archive)


def git_state() -> dict[str, Any]:
    """Return the commit of the working directory and the files changed since; {} outside of a repository."""
    commit_hash = git.head()
    if not commit_hash:
        return {}
    return {"commit": commit_hash, "changed": (git.answer("status", "--porcelain") or "").splitlines()}


def write_record(record: Record) -> None:
    """Write the record of a submission, and add a line to command_history.txt: time, command, id, address of the log.

    Only this user can read them: the address may contain an access token for the log, and is kept unredacted.
    """
    command = redact(record.command)
    asked = {name: redact(value) if isinstance(value, str) else value for name, value in record.resources.items()}
    text = json.dumps(asdict(replace(record, command=command, resources=asked)), indent=2, ensure_ascii=False)
    commit.write_text(io.join(record.folder, RECORD), text + "\n", private=True)
    row = [record.time, command, f"{record.on} {record.id}", record.log]
    with adding(HISTORY) as file:
        file.write("\t".join(" ".join(cell.split()) for cell in row) + "\n")


def records() -> list[Record]:
    """Return the submissions from this working directory, newest last."""
    paths = io.glob(io.join(FOLDER, "*", RECORD)) if io.isdir(FOLDER) else []
    found = [record for path in paths if (record := _read(path)) is not None]
    return sorted(found, key=lambda record: datetime.fromisoformat(record.time).astimezone())


def _read(path: str) -> Record | None:
    with io.open(path, encoding="utf-8") as file:
        try:
            record = Record(**{**json.loads(file.read()), "folder": io.parent(io.abspath(path))})
            datetime.fromisoformat(record.time)
        except (ValueError, TypeError):  # damaged, or not a record
            return None
    return record


def find(wanted: str) -> Record:
    """Return the newest submission with this id or name; of all for ''.

    Raises:
        ConfigError: there is none.
    """
    known = records()
    found = [record for record in known if wanted in {"", record.id, record.name}]
    if found:
        return found[-1]
    listed = ", ".join(f"{record.id} ({record.name})" for record in known[-5:])
    problem = f"no submission '{wanted}' is known here." if wanted else "nothing was submitted from here."
    remedy = f"There are: {listed}." if listed else f"Go to the folder with {FOLDER}/, from which it was submitted."
    raise ConfigError("x-submit", [Fault("id", problem, remedy)])
