"""Processes that train together watch one another, so that the job ends soon after one dies, freezes or hangs.

A thread of each process reports to the first one what its main thread is doing, and is answered that the first one is
alive: small datagrams, which never block. The first process judges all others (`judging.py`), and they judge it. A
process that receives a verdict writes the stacks of all its threads and exits, so that a launcher can restart the job.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from xdpx.checkpoints.folders import Ranks
from xdpx.logger import log
from xdpx.training import stacks
from xdpx.training.judging import FROZEN_SECONDS, Known, Verdict, judge
from xdpx.training.loop import Callback, Session, Step, Stop
from xdpx.utils import io
from xdpx.utils.owners import machine_id, started_at
from xdpx.utils.process_facts import look_at, wants_to_run
from xdpx.utils.pulse import DATA, DATA_PATIENCE, LONG, Standing, pulse

HANG_SECONDS = 30.0
"""Silence, or time beyond twice the longest update seen, after which a process counts as frozen or hanging."""
EXIT_CODE = 75
"""Exit code of a process that ends because another one is dead, frozen or hangs: EX_TEMPFAIL, "try again"."""
FINAL_EXIT_CODE = 2
"""Exit code where a restart would only lead there again: that of a fault in a config, which no launcher restarts."""
SECONDS_TO_TELL = 2.0
"""Time limit for an ending process to write why it ends: the disk may be what hangs."""
LOOK_SECONDS = 0.25
"""Interval between two checks of the processes of this machine."""
_WRITINGS = 2
"""How many things an ending process writes, its stacks and its last words, before it tells the others."""
_REPEATS = 3
_OF_SEVERAL = {"has died": "have died", "is frozen": "are frozen", "is silent": "are silent", "hangs": "hang"}


@dataclass(frozen=True)
class Member:
    """A process that is watched: where it runs, and where it listens."""

    rank: int
    host: str
    machine: str
    pid: int
    started: int
    address: tuple[str, int]
    stacks: str

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, where its state can be read from the system."""
        return self.machine == machine_id()


class Phases(Callback):
    """Reports to `pulse` what the main thread is doing: data, an update, or callbacks. Must be the first callback."""

    def groups(self, groups: Generator[Any]) -> Generator[Any]:
        """Yield the groups unchanged, and note the phase."""
        try:
            while True:
                pulse.enter(DATA, DATA_PATIENCE)
                try:
                    group = next(groups)
                except StopIteration:
                    return
                pulse.enter("update")
                yield group
        finally:
            groups.close()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Note that an update has finished."""
        pulse.step = step.number
        pulse.enter("callbacks", LONG)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Note that the last update has finished."""
        pulse.enter("ending", LONG)


class LastWords:
    """Holds what the first process calls before the watch ends it: `tell` records why the training ends."""

    tell: Callable[[str], object] = staticmethod(lambda reason: None)


@contextmanager
def watched(ranks: Ranks, folder: str | None, hang_seconds: float | None) -> Generator[LastWords]:
    """Let the processes watch one another inside the `with` block; on all processes.

    Args:
        ranks: the processes that train together; a single process is not watched.
        folder: of the run, where stacks are written into `stacks/`; None writes none.
        hang_seconds: see `HANG_SECONDS`; None or 0 turns the watch off.
    """
    pulse.begin()
    last_words = LastWords()
    if ranks.size == 1 or not hang_seconds:
        yield last_words
        return
    watch = _Watch(ranks, folder, hang_seconds, last_words)
    try:
        watch.start()
        yield last_words
    finally:
        watch.leave()


class _Watch:
    """The thread that watches the other processes, and what it has observed of them."""

    def __init__(self, ranks: Ranks, folder: str | None, hang_seconds: float, last_words: LastWords) -> None:
        self._rank, self._hang_seconds, self._last_words = ranks.rank, hang_seconds, last_words
        self._interval = min(1.0, hang_seconds / 10)
        self._stacks = stacks.Stacks()
        self._socket = _listening()
        mine = Member(
            ranks.rank, socket.gethostname(), machine_id(), os.getpid(), started_at(os.getpid()),
            self._socket.getsockname()[:2], self._stacks.path,
        )  # fmt: skip
        found = ranks.broadcast([ranks.gather(asdict(mine)), secrets.token_hex(16), folder])
        self._folder: str | None = found[2]
        members = [Member(**{**each, "address": tuple(each["address"])}) for each in found[0] or ()]
        self._members = {each.rank: each for each in members}
        self._token = found[1]
        self._left: set[int] = set()
        now = time.monotonic()
        self._heard = dict.fromkeys(self._members, now)
        self._standings = dict.fromkeys(self._members, Standing())
        self._cpu = dict.fromkeys(self._members, 0.0)  # CPU seconds used at its last message
        self._gone: set[int] = set()  # ranks whose end the system has reported
        self._stopped: dict[int, float] = {}  # when each rank was first found stopped, if it still is
        self._moved = now  # when any rank last changed its step or phase, or left
        self._events = selectors.DefaultSelector()
        self._events.register(self._socket, selectors.EVENT_READ)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xdpx-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        if 0 in self._members:
            for rank in self._judged:
                if rank != self._rank and self._members[rank].is_local:
                    self._await_end(rank)
            self._thread.start()

    def leave(self) -> None:
        """Tell the others that this process has finished, and stop watching."""
        self._stop.set()
        if self._thread.is_alive():
            with suppress(OSError):
                self._socket.sendto(b"{}", self._socket.getsockname())  # wakes the thread from its select
            self._thread.join()
            for _ in range(_REPEATS):
                self._say({"left": True})
        for key in list(self._events.get_map().values()):
            if key.fileobj is not self._socket:
                os.close(key.fd)
        self._events.close()
        self._socket.close()
        self._stacks.close()

    @property
    def _judged(self) -> Iterable[int]:
        """The ranks that this process judges: the first process judges all, the others judge only the first."""
        return self._members if self._rank == 0 else [0]

    def _await_end(self, rank: int) -> None:
        """Have the system report at once when a local process ends; without a pidfd, the regular checks find it."""
        with suppress(OSError, AttributeError):  # not Linux, an old kernel, or it has ended already
            self._events.register(os.pidfd_open(self._members[rank].pid), selectors.EVENT_READ, rank)

    def _run(self) -> None:
        last, due = time.monotonic(), 0.0
        while not self._stop.is_set():
            if time.monotonic() >= due:
                self._say_standing()
                due = time.monotonic() + self._interval
            self._listen(min(self._interval, LOOK_SECONDS))
            now = time.monotonic()
            if now - last > self._hang_seconds / 2:  # this process itself was paused, e.g. the machine was suspended
                self._heard, self._moved = dict.fromkeys(self._heard, now), now
                pulse.alive()
            if now - last > LOOK_SECONDS + FROZEN_SECONDS / 2:  # paused only briefly, probably together with the others
                self._stopped.clear()
            last = now
            verdict = judge(self._known(now), self._hang_seconds, unmoved_seconds=now - self._moved)
            if verdict is not None and not self._stop.is_set():
                self._end(verdict)

    # ---- sending and receiving

    def _say_standing(self) -> None:
        standing = pulse.standing(self._hang_seconds)
        if standing.overdue and stacks.in_debugger(pulse.thread):
            pulse.alive()
            standing = pulse.standing(self._hang_seconds)
        self._note(self._rank, standing)
        self._heard[self._rank] = time.monotonic()
        facts = asdict(standing)
        if standing.allowed == LONG:
            facts["allowed"] = None  # infinity, which JSON cannot express
        self._say({"standing": facts})

    def _say(self, message: dict[str, Any], *, to: Iterable[int] | None = None) -> None:
        """Send a message to some processes; by default to the first one, or from the first one to all."""
        to = (self._members if self._rank == 0 else [0]) if to is None else to
        data = json.dumps({"token": self._token, "rank": self._rank, **message}).encode()
        for rank in [rank for rank in to if rank != self._rank]:
            with suppress(OSError):  # the process is gone, or its queue is full: a later message will arrive
                self._socket.sendto(data, self._members[rank].address)

    def _listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            ready = [key for key, _ in self._events.select(left)]
            if any(key.fileobj is self._socket for key in ready):  # first: may hold a final message
                with suppress(OSError, ValueError, KeyError, TypeError):  # not ours, or truncated
                    message = json.loads(self._socket.recv(4096))
                    if message["token"] == self._token:
                        self._hear(message)
                continue
            for key in ready:
                self._events.unregister(key.fileobj)
                os.close(key.fd)
                self._gone.add(key.data)
            return

    def _hear(self, message: dict[str, Any]) -> None:
        rank = message["rank"]
        self._heard[rank] = time.monotonic()
        if self._members[rank].is_local:
            self._cpu[rank] = look_at(self._members[rank].pid, self._members[rank].started).cpu_seconds
        if "ending" in message:  # it sends nothing while it writes why; this is not silence
            self._heard[rank] += _WRITINGS * SECONDS_TO_TELL
        if "left" in message and rank not in self._left:
            self._left.add(rank)
            self._moved = time.monotonic()
        if "standing" in message:
            facts = message["standing"]
            self._note(rank, Standing(**{**facts, "allowed": facts["allowed"] or LONG}))
        if "verdict" in message:
            trouble, ranks, comes_again, reason = message["verdict"]
            self._end(Verdict(trouble, tuple(ranks), comes_again), reason)

    def _note(self, rank: int, standing: Standing) -> None:
        """Store what a process is doing, and when that last changed."""
        before = self._standings[rank]
        if (before.step, before.phase) != (standing.step, standing.phase):
            self._moved = time.monotonic()
        self._standings[rank] = standing

    def _known(self, now: float) -> list[Known]:
        """Return what is known of the ranks that this process judges, except those that have left."""
        return [self._known_of(rank, now) for rank in self._judged if self._is_in(rank)]

    def _is_in(self, rank: int) -> bool:
        return rank not in self._left

    def _known_of(self, rank: int, now: float) -> Known:
        member, silent = self._members[rank], now - self._heard[rank]
        standing = self._standings[rank] if self._rank == 0 else Standing()  # only the first process judges progress
        if rank in self._gone:
            return Known(rank, silent, standing, "gone")
        if not member.is_local:
            return Known(rank, silent, standing)
        facts = look_at(member.pid, member.started)
        if facts.life == "stopped":
            return Known(rank, silent, standing, facts.life, stopped=now - self._stopped.setdefault(rank, now))
        self._stopped.pop(rank, None)
        if silent < 2 * self._interval:
            return Known(rank, silent, standing)
        computes = facts.cpu_seconds > self._cpu[rank] + 0.1 * silent or wants_to_run(member.pid)
        return Known(rank, silent, standing, facts.life, computes=computes)

    # ---- the end

    def _end(self, verdict: Verdict, reason: str = "") -> None:
        """Write the stacks, log why, and exit; the process that found the trouble also tells the others.

        Args:
            verdict: what is wrong.
            reason: as received from the process that found it; "" if this one did.
        """
        found_here, reason = not reason, reason or self._reason(verdict)
        frozen = verdict.ranks if verdict.trouble != "hangs" else ()  # others end it, and it must not continue
        told = [rank for rank in self._members if rank not in frozen]
        for _ in range(_REPEATS if found_here else 0):
            self._say({"ending": True}, to=told)
        _within(SECONDS_TO_TELL, lambda: self._write_own_stacks(reason))
        # Not through the log first: the thread that hangs may hold its lock.
        os.write(2, f"\nxdpx: process {self._rank}: {reason}\n".encode())
        if self._rank == 0:  # before the others exit, which would fail the main thread here
            _within(SECONDS_TO_TELL, lambda: self._last_words.tell(reason))
        for _ in range(_REPEATS if found_here else 0):
            self._say({"verdict": [verdict.trouble, verdict.ranks, verdict.comes_again, reason]}, to=told)
        _within(SECONDS_TO_TELL, lambda: self._end_others(verdict, reason))
        _within(SECONDS_TO_TELL, lambda: log.warning(reason))
        os._exit(FINAL_EXIT_CODE if verdict.comes_again else EXIT_CODE)

    def _reason(self, verdict: Verdict) -> str:
        names = " and ".join(f"rank {rank} on {self._members[rank].host}" for rank in verdict.ranks)
        standing = self._standings[verdict.ranks[0]]
        seconds = standing.seconds if verdict.trouble == "hangs" else time.monotonic() - self._heard[verdict.ranks[0]]
        where = f"stacks of all ranks are in {self._folder}/{stacks.FOLDER}" if self._folder else "no folder for stacks"
        trouble = verdict.trouble if len(verdict.ranks) == 1 else _OF_SEVERAL[verdict.trouble]
        then = ", so that its launcher restarts it"
        if verdict.comes_again:
            then = ", as would another start: give all processes the same number of batches, of the same shapes"
        return (
            f"{names} {trouble}, for {seconds:.1f} seconds, after step {standing.step}, in phase "
            f"'{standing.phase}': this training ends{then}; {where}."
        )

    def _end_others(self, verdict: Verdict, reason: str) -> None:
        """End the processes of this machine that cannot exit by themselves; one that hangs can, when told."""
        for rank in verdict.ranks if verdict.trouble != "hangs" else ():
            if rank != self._rank and self._members[rank].is_local and self._is_its_keeper(verdict):
                self._end_other(self._members[rank], reason, dead=verdict.trouble == "has died")

    def _write_own_stacks(self, reason: str) -> None:
        if self._folder is not None:
            now = pulse.standing(self._hang_seconds)
            about = f"{reason}\nthis rank: after step {now.step}, in '{now.phase}' for {now.seconds:.1f} seconds"
            stacks.write(self._folder, self._rank, about, stacks.own())

    def _is_its_keeper(self, verdict: Verdict) -> bool:
        """Return whether this is the lowest healthy rank on its machine."""
        others = {*verdict.ranks, *self._left}
        return self._rank == min(rank for rank, each in self._members.items() if each.is_local and rank not in others)

    def _end_other(self, member: Member, reason: str, *, dead: bool) -> None:
        """Write the stacks of a process that cannot, and kill it: it would not react to its launcher either.

        It is killed before they are written: one that was continued, to tell its stacks, must not run on meanwhile.
        """
        if not dead and look_at(member.pid, member.started).life != "gone":
            text = ""
            with suppress(OSError):
                text = stacks.of_frozen(member.pid, member.stacks)
            with suppress(OSError):
                os.kill(member.pid, signal.SIGKILL)
            if text and self._folder is not None:
                with suppress(OSError):
                    stacks.write(self._folder, member.rank, reason, text, host=member.host)
        with suppress(OSError):
            io.remove(member.stacks)


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Run `work` in a thread, and wait at most `seconds` for it."""

    def attempt() -> None:
        try:
            work()
        except Exception as error:  # it would be lost with the thread
            os.write(2, f"xdpx: {error}\n".encode())

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)


def _listening() -> socket.socket:
    """Return a datagram socket bound to the address from which this machine reaches the first process."""
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        address = probe.getsockname()[0]
    found = socket.socket(family, socket.SOCK_DGRAM)
    found.bind((address, 0))
    return found
