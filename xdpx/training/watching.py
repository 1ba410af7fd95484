"""Processes that train together watch one another, so that the job ends soon after one dies, freezes or hangs.

A thread of each process tells the first one what its main thread is at, and hears back that the first one lives: small
datagrams, which never wait for anybody. The first process judges (`judging.py`), and of it all others do. Whoever hears
a verdict writes down the stacks of all its threads and ends, so that a launcher can start all anew.
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
from xdpx.utils.pulse import DATA_PATIENCE, LONG, Standing, pulse

HANG_SECONDS = 30.0
"""Silence, or time beyond twice the longest update seen, after which a process counts as frozen or hanging."""
EXIT_CODE = 75
"""Of a process that ends because one of the training is dead, frozen or hangs: try again."""
SECONDS_TO_TELL = 2.0
"""How long an ending process may take to write down why: the disk may be what hangs."""
LOOK_SECONDS = 0.25
"""How often each process of this machine is looked at."""
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
    def is_near(self) -> bool:
        """Whether it runs on this machine, where one can look at it."""
        return self.machine == machine_id()


class Phases(Callback):
    """Tells what the main thread is at: data, an update, or the callbacks. Stands before all others."""

    def groups(self, groups: Generator[Any]) -> Generator[Any]:
        """Yield the same groups."""
        try:
            while True:
                pulse.enter("data", DATA_PATIENCE)
                try:
                    group = next(groups)
                except StopIteration:
                    return
                pulse.enter("update")
                yield group
        finally:
            groups.close()

    def on_step(self, session: Session, step: Step) -> Stop | None:
        """Note that an update was taken."""
        pulse.step = step.number
        pulse.enter("callbacks", LONG)
        return None

    def on_end(self, session: Session, stop: Stop) -> None:
        """Note that the last one was."""
        pulse.enter("ending", LONG)


class LastWords:
    """What a process does before the watch ends it: `tell` writes down, on the first one, why the training ends."""

    tell: Callable[[str], object] = staticmethod(lambda reason: None)


@contextmanager
def watched(ranks: Ranks, folder: str | None, hang_seconds: float | None) -> Generator[LastWords]:
    """Watch the other processes inside, and be watched; on all processes.

    Args:
        ranks: who trains together; a process that is alone is not watched.
        folder: of the run: stacks go into `stacks/` there; None for nowhere.
        hang_seconds: `HANG_SECONDS` or other ones; None or 0 watches nobody.
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
    """The thread that watches, and what it knows of the others."""

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
        self._cpu = dict.fromkeys(self._members, 0.0)  # seconds used when it was heard of
        self._gone: set[int] = set()  # ranks whose end the system has told of
        self._stopped: dict[int, float] = {}  # since when each rank was found stopped, whenever it was looked at
        self._moved = now  # when one of them last went on to something else, or left
        self._events = selectors.DefaultSelector()
        self._events.register(self._socket, selectors.EVENT_READ)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xdpx-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        if 0 in self._members:
            for rank in self._judged:
                if rank != self._rank and self._members[rank].is_near:
                    self._await_end(rank)
            self._thread.start()

    def leave(self) -> None:
        """Say that this process has done its part, and watch no longer."""
        self._stop.set()
        if self._thread.is_alive():
            with suppress(OSError):
                self._socket.sendto(b"{}", self._socket.getsockname())  # so that it need not wait for the next word
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
        """The ranks that this process judges: the first one all, any other the first alone."""
        return self._members if self._rank == 0 else [0]

    def _await_end(self, rank: int) -> None:
        """Let the system tell at once when a process of this machine ends; where it cannot, looks at it will do."""
        with suppress(OSError, AttributeError):  # no Linux, or an old one; or it has ended already
            self._events.register(os.pidfd_open(self._members[rank].pid), selectors.EVENT_READ, rank)

    def _run(self) -> None:
        last, due = time.monotonic(), 0.0
        while not self._stop.is_set():
            if time.monotonic() >= due:
                self._say_standing()
                due = time.monotonic() + self._interval
            self._listen(min(self._interval, LOOK_SECONDS))
            now = time.monotonic()
            if now - last > self._hang_seconds / 2:  # this very process stood still, e.g. the machine was suspended
                self._heard, self._moved = dict.fromkeys(self._heard, now), now
                pulse.alive()
            if now - last > LOOK_SECONDS + FROZEN_SECONDS / 2:  # or only shortly, and the others with it
                self._stopped.clear()
            last = now
            verdict = judge(self._known(now), self._hang_seconds, unmoved_seconds=now - self._moved)
            if verdict is not None and not self._stop.is_set():
                self._end(verdict)

    # ---- speaking and hearing

    def _say_standing(self) -> None:
        standing = pulse.standing(self._hang_seconds)
        if standing.overdue and stacks.in_debugger(pulse.thread):
            pulse.alive()
            standing = pulse.standing(self._hang_seconds)
        self._note(self._rank, standing)
        self._heard[self._rank] = time.monotonic()
        facts = asdict(standing)
        if standing.allowed == LONG:
            facts["allowed"] = None  # which JSON has no word for
        self._say({"standing": facts})

    def _say(self, message: dict[str, Any], *, to: Iterable[int] | None = None) -> None:
        """Send a message to some processes; by default to the first one, and from there to all."""
        to = (self._members if self._rank == 0 else [0]) if to is None else to
        data = json.dumps({"token": self._token, "rank": self._rank, **message}).encode()
        for rank in [rank for rank in to if rank != self._rank]:
            with suppress(OSError):  # a process that is gone, or a full queue: the next one will arrive
                self._socket.sendto(data, self._members[rank].address)

    def _listen(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            ready = [key for key, _ in self._events.select(left)]
            if any(key.fileobj is self._socket for key in ready):  # first: its last words may be among them
                with suppress(OSError, ValueError, KeyError, TypeError):  # from strangers, or cut off
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
        if self._members[rank].is_near:
            self._cpu[rank] = look_at(self._members[rank].pid, self._members[rank].started).cpu_seconds
        if "left" in message and rank not in self._left:
            self._left.add(rank)
            self._moved = time.monotonic()
        if "standing" in message:
            facts = message["standing"]
            self._note(rank, Standing(**{**facts, "allowed": facts["allowed"] or LONG}))
        if "verdict" in message:
            trouble, ranks, reason = message["verdict"]
            self._end(Verdict(trouble, tuple(ranks)), reason)

    def _note(self, rank: int, standing: Standing) -> None:
        """Keep what a process is at."""
        before = self._standings[rank]
        if (before.step, before.phase) != (standing.step, standing.phase):
            self._moved = time.monotonic()
        self._standings[rank] = standing

    def _known(self, now: float) -> list[Known]:
        """Return what this process knows: the first one of all, any other of the first alone."""
        return [self._known_of(rank, now) for rank in self._judged if self._is_in(rank)]

    def _is_in(self, rank: int) -> bool:
        return rank not in self._left

    def _known_of(self, rank: int, now: float) -> Known:
        member, silent = self._members[rank], now - self._heard[rank]
        standing = self._standings[rank] if self._rank == 0 else Standing()  # what it does is not for others to judge
        if rank in self._gone:
            return Known(rank, silent, standing, "gone")
        if not member.is_near:
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
        """Write down the stacks, say why, and end this process; the first one to know tells the others.

        Args:
            verdict: what is wrong.
            reason: in the words of the process that told; "" where this one found out.
        """
        found_here, reason = not reason, reason or self._reason(verdict)
        _within(SECONDS_TO_TELL, lambda: self._write_own_stacks(reason))
        # Not by the log first: the thread that hangs may hold its lock.
        os.write(2, f"\nxdpx: process {self._rank}: {reason}\n".encode())
        if self._rank == 0:  # before any other ends: this one's own thread would fail for that, and tell of it
            _within(SECONDS_TO_TELL, lambda: self._last_words.tell(reason))
        for _ in range(_REPEATS if found_here else 0):
            self._say({"verdict": [verdict.trouble, verdict.ranks, reason]}, to=self._told(verdict))
        _within(SECONDS_TO_TELL, lambda: self._end_others(verdict, reason))
        _within(SECONDS_TO_TELL, lambda: log.warning(reason))
        os._exit(EXIT_CODE)

    def _told(self, verdict: Verdict) -> list[int]:
        """Return who is told of a verdict: one that is frozen is looked at by others, and must not go on meanwhile."""
        passed_over = () if verdict.trouble == "hangs" else verdict.ranks
        return [rank for rank in self._members if rank not in passed_over]

    def _reason(self, verdict: Verdict) -> str:
        names = " and ".join(f"rank {rank} on {self._members[rank].host}" for rank in verdict.ranks)
        standing = self._standings[verdict.ranks[0]]
        seconds = standing.seconds if verdict.trouble == "hangs" else time.monotonic() - self._heard[verdict.ranks[0]]
        where = f"stacks of all ranks are in {self._folder}/{stacks.FOLDER}" if self._folder else "no folder for stacks"
        trouble = verdict.trouble if len(verdict.ranks) == 1 else _OF_SEVERAL[verdict.trouble]
        return (
            f"{names} {trouble}, for {seconds:.1f} seconds, after step {standing.step}, in phase "
            f"'{standing.phase}': this training ends, for its launcher to start it again; {where}."
        )

    def _end_others(self, verdict: Verdict, reason: str) -> None:
        """End those of this machine that cannot do it themselves; those that hang are told."""
        for rank in verdict.ranks if verdict.trouble != "hangs" else ():
            if rank != self._rank and self._members[rank].is_near and self._is_its_keeper(verdict):
                self._end_other(self._members[rank], reason, dead=verdict.trouble == "has died")

    def _write_own_stacks(self, reason: str) -> None:
        if self._folder is not None:
            now = pulse.standing(self._hang_seconds)
            about = f"{reason}\nthis rank: after step {now.step}, in '{now.phase}' for {now.seconds:.1f} seconds"
            stacks.write(self._folder, self._rank, about, stacks.own())

    def _is_its_keeper(self, verdict: Verdict) -> bool:
        """Tell whether this is the first process of its machine that is well."""
        others = {*verdict.ranks, *self._left}
        return self._rank == min(rank for rank, each in self._members.items() if each.is_near and rank not in others)

    def _end_other(self, member: Member, reason: str, *, dead: bool) -> None:
        """Write down where a process stands that cannot do it itself, and end it: it would not hear its launcher."""
        if not dead and look_at(member.pid, member.started).life != "gone":
            with suppress(OSError):
                text = stacks.of_frozen(member.pid, member.stacks)
                if self._folder is not None:
                    stacks.write(self._folder, member.rank, reason, text, host=member.host)
            with suppress(OSError):
                os.kill(member.pid, signal.SIGKILL)
        with suppress(OSError):
            io.remove(member.stacks)


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Do something in a thread, and wait for it no longer than so long."""

    def attempt() -> None:
        try:
            work()
        except Exception as error:  # nobody else would ever see it
            os.write(2, f"xdpx: {error}\n".encode())

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)


def _listening() -> socket.socket:
    """Return a socket on the address by which this machine reaches the first process."""
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        address = probe.getsockname()[0]
    found = socket.socket(family, socket.SOCK_DGRAM)
    found.bind((address, 0))
    return found
