"""Leases: at most one run owns a folder; a second one is refused, and a dead owner is replaced by exactly one run.

`<folder>/.lease/owner.json` is created only if absent, so one of several starting runs wins. It never changes. A run
that finds the owner dead creates `after-<owner's id>.json`, only if absent, and so becomes the owner: the owner is the
last link of that chain. A heartbeat file shows other machines, which cannot see the owner's process, that it is alive.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self

from xdpx.utils.io_utils import io
from xdpx.utils.owners import fate_of, is_owner_id, new_owner_id
from xdpx.utils.paths import StrPath

HEARTBEAT_SECONDS = 15.0
SECONDS_UNTIL_DEAD = 60.0
FOLDER = ".lease"
_MOST_TRIES = 100
_logger = logging.getLogger("xdpx.io")


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease."""

    id: str
    host: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"


class LeaseHeld(OSError):
    """Another run, `holder`, owns the folder."""

    def __init__(self, folder: str, holder: Holder) -> None:
        self.folder, self.holder = folder, holder
        text = f"{folder}: another run is using this folder ({holder}). Wait for it, stop it, or choose another folder."
        if fate_of(holder.id) == "elsewhere":
            text += (
                f" If it is gone, start again in a minute, or remove {io.join(folder, FOLDER)} to take over at once."
            )
        super().__init__(text)

    def __reduce__(self) -> tuple[type[LeaseHeld], tuple[str, Holder]]:
        return type(self), (self.folder, self.holder)


class LeaseLost(OSError):
    """Another run took over the folder, because this one's heartbeat stopped for too long; or the folder is gone."""


class Lease:
    """A context manager that owns a folder while its block runs.

    Args:
        folder: any path; created if missing, and then removed on release if it is empty.
        heartbeat: seconds between heartbeats.
        dead_after: seconds without a heartbeat after which an owner on another machine counts as dead. An owner on this
            machine counts as dead as soon as its process is gone.
    """

    def __init__(
        self, folder: StrPath, *, heartbeat: float = HEARTBEAT_SECONDS, dead_after: float = SECONDS_UNTIL_DEAD
    ) -> None:
        self.folder = io.plain(folder)
        self._place = io.join(self.folder, FOLDER)
        self._heartbeat, self._dead_after = heartbeat, dead_after
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._made_folder = False
        self._in_the_way: OSError | None = None
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self.me = Holder(new_owner_id(), socket.gethostname(), os.getpid(), started)

    # ---- acquire and release

    @property
    def is_held(self) -> bool:
        """Whether this process acquired the lease and has not released it."""
        return self._thread is not None and os.getpid() == self.me.pid

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Become the owner.

        Raises:
            LeaseHeld: another run owns the folder. Deciding that an owner on another machine is dead takes up to two
                heartbeats.
            OSError: the lease's files cannot be written.
        """
        try:
            for _ in range(_MOST_TRIES):
                if self._try():
                    break
                time.sleep(0.01)
            else:
                raise OSError(f"{self.folder}: no lease could be made: {self._in_the_way}.") from self._in_the_way
        except BaseException:
            with contextlib.suppress(OSError):  # the disk may be what failed
                io.store(self._place).delete(self._beat_path(self.me.id))
                self._remove_empty_folders()
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name="xdpx-lease", daemon=True)
        self._thread.start()

    def _try(self) -> bool:
        """Try once, and return whether the lease is ours; False if another process interfered. Raises LeaseHeld."""
        chain = self._chain()
        if chain and self._lives(chain[-1]):
            raise LeaseHeld(self.folder, chain[-1])
        store = io.remote(self._place) or io.local_files
        self._made_folder = self._made_folder or not io.exists(self.folder)
        link = self._after(chain[-1].id) if chain else self._first()
        try:
            store.make_folder(self._place)
            store.touch(self._beat_path(self.me.id))
            store.create(link, json.dumps(asdict(self.me)).encode())
        except (FileExistsError, FileNotFoundError) as error:
            self._in_the_way = error  # another run was faster, or the last owner just removed the folder
            return False
        # An owner that ends may have removed the chain meanwhile; only the last link of the current one is the owner.
        ours = [holder.id for holder in self._chain()][-1:] == [self.me.id]
        if ours and chain:
            _logger.warning("%s: took over from %s, which is gone.", self.folder, chain[-1])
        if not ours:
            store.delete(link)
        return ours

    def release(self) -> None:
        """Release the lease. Does nothing in a process that did not acquire it."""
        self._stop.set()
        if self._thread is None or not self.is_held:
            return
        self._thread.join()
        self._thread = None
        store = io.remote(self._place) or io.local_files
        chain = self._chain()
        if [holder.id for holder in chain][-1:] != [self.me.id]:
            return
        store.delete(self._first())  # before the other links, which cannot be reached without it
        for holder in chain:
            store.delete(self._after(holder.id))
            store.delete(self._beat_path(holder.id))
        with contextlib.suppress(OSError):
            self._remove_dead_beats()
            self._remove_empty_folders()

    def _remove_empty_folders(self) -> None:
        """Remove the lease's folder, and its parent if it was created for it. Raises OSError if one is not empty."""
        store = io.remote(self._place) or io.local_files
        store.remove_folder(self._place)
        if self._made_folder:
            store.remove_folder(self.folder)

    def check(self) -> None:
        """Raise LeaseLost if another run took over, or the folder was removed. Cheap enough before every commit."""
        chain = self._chain()
        if not chain:
            what = f"the folder, or {FOLDER} in it, was deleted or moved while this run was using it"
            raise LeaseLost(f"{self.folder}: {what}. It stops here; put it back and start again, or start over.")
        if chain[-1].id != self.me.id:
            what = f"another run ({chain[-1]}) has taken this folder over"
            raise LeaseLost(f"{self.folder}: {what}. This one must not write any more.")

    # ---- the chain

    def _first(self) -> str:
        return io.join(self._place, "owner.json")

    def _after(self, holder_id: str) -> str:
        return io.join(self._place, f"after-{holder_id}.json")

    def _beat_path(self, holder_id: str) -> str:
        return io.join(self._place, f"beat-{holder_id}")

    def _chain(self) -> list[Holder]:
        chain: list[Holder] = []
        link = self._first()
        while (holder := _read_holder(link)) is not None and holder not in chain:
            chain.append(holder)
            link = self._after(holder.id)
        return chain

    # ---- heartbeats

    def _beat(self) -> None:
        store = io.store(self._place)
        while not self._stop.wait(self._heartbeat):
            try:
                if io.exists(self._beat_path(self.me.id)):
                    store.touch(self._beat_path(self.me.id))
            except OSError as error:
                _logger.debug("%s: the heartbeat of the lease failed: %s", self.folder, error)

    def _remove_dead_beats(self) -> None:
        """Remove heartbeats of dead processes, such as those killed before they had joined the chain."""
        store = io.store(self._place)
        for entry in store.children(self._place):
            name = io.name(entry.path)
            owner = name.removeprefix("beat-")
            if name != owner and is_owner_id(owner) and fate_of(owner) == "gone":
                store.delete(entry.path)

    def _lives(self, holder: Holder) -> bool:
        fate = fate_of(holder.id)
        if fate != "elsewhere":
            return fate == "alive"
        before = self._last_beat(holder)
        if before is not None and -self._heartbeat < time.time() - before < self._dead_after:
            return True
        # Clocks differ between machines: before declaring it dead, watch it for two heartbeats. A heartbeat dated in
        # the future proves nothing by itself.
        end = time.monotonic() + 2 * self._heartbeat
        while time.monotonic() < end:
            time.sleep(min(self._heartbeat / 4, 1.0))
            if self._last_beat(holder) != before:
                return True
        return False

    def _last_beat(self, holder: Holder) -> float | None:
        path = self._beat_path(holder.id)
        entry = io.store(path).entry(path)
        return None if entry is None else entry.modified


def _read_holder(path: str) -> Holder | None:
    try:
        holder = Holder(**json.loads(io.store(path).read_bytes(path)))
        fate_of(holder.id)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, IsADirectoryError) as error:
        advice = f"If no run is active there, remove {io.parent(path)} and start again."
        raise OSError(f"{path}: this lease cannot be read ({error}), so its owner is not known. {advice}") from error
    return holder


class OwnerWatch:
    """Polls whether a folder has an owner, without ever waiting for a heartbeat.

    An owner on another machine counts as dead if its heartbeat has not changed for `dead_after` seconds between calls
    of `is_owned`; clocks of machines are not compared.
    """

    def __init__(self, folder: StrPath, *, dead_after: float = SECONDS_UNTIL_DEAD) -> None:
        self._lease = Lease(folder, dead_after=dead_after)
        self._dead_after = dead_after
        self._seen: tuple[str, float | None] = ("", None)
        self._since = 0.0

    def is_owned(self) -> bool:
        """Return whether the folder has an owner that is not known to be dead."""
        try:
            chain = self._lease._chain()
        except OSError:
            return True  # unknown: the lease is damaged, or the network is down
        if not chain:
            return False
        fate = fate_of(chain[-1].id)
        if fate != "elsewhere":
            return fate == "alive"
        seen = (chain[-1].id, self._lease._last_beat(chain[-1]))
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since < self._dead_after
