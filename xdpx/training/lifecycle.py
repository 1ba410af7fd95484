"""The life of a training, by whichever door it came in: claim its folder, begin, tell how it stands, train, end.

A door brings a `Training`: what it reads or builds, the callbacks in its order, its groups of batches. The order of
events, and what is promised about them, are decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from xdpx.checkpoints.folders import ALONE, Ranks, attempt
from xdpx.datasets.plan import Position
from xdpx.logger import log
from xdpx.training.hunting import Hunter
from xdpx.training.loop import Callback, Session, Stop, fit
from xdpx.training.preemption import Preemption
from xdpx.training.replaying import replay_if_asked
from xdpx.training.spending import Spending
from xdpx.training.status import RunState, Status
from xdpx.training.watching import HANG_SECONDS, LastWords, Phases, watched
from xdpx.utils import commit, io


class Training(Protocol):
    """What the doors differ in. The verbs are called in this order, each once, on all processes."""

    def begin(self) -> Session | Stop:
        """Read or build the state, and say where it stands; or why there is nothing left to do.

        What is in the folder stays as it is: a training that is refused here has changed nothing.
        """
        ...

    def status(self, session: Session) -> Status:
        """Return how the training stands, as a running one. Called again whenever that is written down."""
        ...

    def settle(self, session: Session) -> None:
        """Leave in the folder what this training is. The status is there already, the log file is not."""
        ...

    def callbacks(self, session: Session) -> list[Callback]:
        """Return the callbacks in their order, each with the state that it had when the training was saved."""
        ...

    def groups(self, session: Session) -> Generator[tuple[Position, Any]]:
        """Return the micro-batches of one update after another, from where `session` stands."""
        ...

    def end(self, session: Session, stop: Stop) -> None:
        """Say what came of it. Not called when training ends by an exception."""
        ...


class Unclaimed(OSError):
    """The first process does not own the folder; its own error, there, says why."""


@dataclass(frozen=True)
class Claim:
    """A folder that some processes train into together.

    Attributes:
        folder: where the status and the log go; None for nowhere.
        ranks: the processes.
        lease: of the folder, held by the first of them; None where nothing keeps others out.
    """

    folder: str | None
    ranks: Ranks = ALONE
    lease: commit.Lease | None = None

    def check(self) -> None:
        """Raise on all processes when another run has taken the folder over, or it is gone; on all processes.

        Raises:
            LeaseLost: on the first process; on others Unclaimed.
        """
        _on_the_first(self.ranks, self.check_here)

    def check_here(self) -> None:
        """Raise LeaseLost when the lease that this process held is another's by now."""
        if self.lease is not None and self.lease.is_held:
            self.lease.check()


def _on_the_first(ranks: Ranks, work: Callable[[], object]) -> None:
    error = attempt(work) if ranks.rank == 0 else None
    told = ranks.broadcast("" if error is None else str(error))
    if error is not None or told:
        raise error or Unclaimed(told)


@contextmanager
def claimed(
    folder: str, ranks: Ranks = ALONE, *, then: Callable[[], object] = lambda: None, required: bool = True
) -> Generator[Claim]:
    """Own a folder, by the first process; on all of them, and where it cannot, all of them raise.

    Args:
        folder: any path; made when missing, and removed again if nothing is put into it.
        ranks: the processes that train together.
        then: what the first process does with the folder, once it is its own.
        required: else a folder that cannot be written to is warned of, and nothing is told there.

    Raises:
        LeaseHeld: another run owns the folder; on other processes than the first, Unclaimed.
    """
    lease = commit.Lease(folder)

    def take() -> None:
        try:
            lease.acquire()
        except commit.LeaseHeld:
            raise
        except OSError as error:
            if required:
                raise
            log.warning(
                f"{folder} cannot be written to ({error}): nothing keeps other trainings out of it or tells how this "
                "one stands, and its first checkpoint will fail unless that is mended by then."
            )
        then()

    try:
        _on_the_first(ranks, take)
        yield Claim(folder if lease.is_held or ranks.rank else None, ranks, lease)
    finally:
        lease.release()


def live(
    training: Training,
    claim: Claim,
    *,
    preemption: Preemption,
    log_file: str | None = None,
    hang_seconds: float | None = HANG_SECONDS,
) -> Stop:
    """Train to the end, and say why it ended; on all processes. However it ends, `status.json` tells.

    Args:
        training: what the door brings.
        claim: the folder, where the first process writes the status and the log.
        preemption: notes signals; a process that trains alone also stops waiting for data when one comes.
        log_file: name of the log in the folder; None for none. Lines that are told before it may be written are in it.
        hang_seconds: after which processes that train together end because one of them is frozen or hangs, see
            `training.watching`; None or 0 watches none.

    Raises:
        LeaseLost: another run has taken the folder over; nothing was written into it since that was seen.
    """
    kept_in, ranks = claim.folder if claim.ranks.rank == 0 else None, claim.ranks
    with log.early() as early, watched(ranks, claim.folder, hang_seconds) as last_words:
        session = training.begin()
        if isinstance(session, Stop):
            log.info(session.reason)
            return session
        replay_if_asked(session)
        session.guard = claim.check
        with _status_told(training, session, kept_in, claim, last_words) as tell:
            training.settle(session)
            early.open_file(io.join(kept_in, log_file) if kept_in and log_file else None)
            callbacks, groups, phases = training.callbacks(session), training.groups(session), Phases()
            hunter = Hunter(claim.folder, ranks)
            groups = hunter.groups(preemption.watched(groups) if ranks.size == 1 else groups, session)
            with hunter.ending(session):
                stop = fit(session, phases.groups(groups), [phases, hunter, Spending(), *callbacks])
            claim.check()
            training.end(session, stop)
            tell(stop)
    return stop


@contextmanager
def _status_told(
    training: Training, session: Session, folder: str | None, claim: Claim, last_words: LastWords
) -> Generator[Callable[[Stop], None]]:
    """Write "running" now, and "failed" with the reason on an exception, or when another process is dead or hangs.

    Yields what writes how it ended well.
    """

    def write(status: Status) -> None:
        if folder is not None:
            claim.check_here()
            status.write(folder)

    def tell(stop: Stop) -> None:
        state: RunState = "finished" if stop.finished else "preempted"
        write(replace(training.status(session), status=state, reason=stop.reason))

    failed = threading.Event()

    def fail(reason: str) -> None:
        if failed.is_set():  # the watch has told which process is to blame; that ours lost it is what follows
            return
        failed.set()
        with suppress(OSError):  # the disk may be what failed; what is told is the error itself
            write(replace(training.status(session), status="failed", reason=reason))

    if folder is not None:
        commit.sweep_top(folder)  # a killed training may have left half of its status, or of another file
    write(training.status(session))
    last_words.tell = fail
    try:
        yield tell
    except BaseException as error:
        fail(f"{type(error).__name__}: {error}")
        raise
