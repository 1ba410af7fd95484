"""The lifecycle of a training, the same for every door: claim its folder, begin, write its status, train, end.

A door provides a `Training`: the state it loads or builds, its callbacks in order, its groups of batches. The order of
events, and their guarantees, are decided here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
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
    """What each door implements. The methods are called in this order, on all processes; `status` more than once."""

    def begin(self) -> Session | Stop:
        """Load or build the state and return the session, or a Stop if there is nothing left to do.

        Must not change the folder, so that a training that is refused here leaves no trace.
        """
        ...

    def status(self, session: Session) -> Status:
        """Return the current status, as of a running training. Called whenever the status file is written."""
        ...

    def settle(self, session: Session) -> None:
        """Write parameters and code to the folder. The status file is there already, the log file is not."""
        ...

    def callbacks(self, session: Session) -> list[Callback]:
        """Return the callbacks in their order, each with its state restored from the checkpoint."""
        ...

    def groups(self, session: Session) -> Generator[tuple[Position, Any]]:
        """Yield, for each update after `session.number`, its position in the data and its micro-batches.

        Waits for data inside `Preemption.waiting`, and only for them: a signal must not cut off callbacks.
        """
        ...

    def end(self, session: Session, stop: Stop) -> None:
        """Log the outcome. Not called when training ends by an exception."""
        ...


class Unclaimed(OSError):
    """Raised on the other processes when the first one does not own the folder; its own error says why."""


@dataclass(frozen=True)
class Claim:
    """A folder that some processes train into together.

    Attributes:
        folder: where the status and the log go; None for nowhere.
        ranks: the processes.
        lease: on the folder, held by the first process; None if other runs are not kept out.
    """

    folder: str | None
    ranks: Ranks = ALONE
    lease: commit.Lease | None = None

    def check(self) -> None:
        """Raise, on all processes, if another run has taken over the folder or it is gone. All must call it.

        Raises:
            LeaseLost: on the first process.
            Unclaimed: on the others.
        """
        _on_the_first(self.ranks, self.check_here)

    def check_here(self) -> None:
        """Raise LeaseLost if this process held the lease and has lost it; no communication."""
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
    """Let the first process hold the lease on a folder; if it cannot, all raise. Call it on all processes.

    Args:
        folder: any path; made when missing, and removed again if nothing is put into it.
        ranks: the processes that train together.
        then: called on the first process once it holds the lease.
        required: if false, a folder that cannot be written to only gives a warning, and no status is written there.

    Raises:
        LeaseHeld: on the first process, another run owns the folder.
        Unclaimed: on the others.
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
                f"{folder} cannot be written to ({error}): other trainings are not kept out of it, its status is "
                "not written, and its first checkpoint will fail unless that is fixed by then."
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
    """Train to the end and return why it ended; on all processes. `status.json` records every kind of end.

    Args:
        training: what the door provides.
        claim: the folder, where the first process writes the status and the log.
        preemption: notes signals; the training asks it while it waits for data.
        log_file: name of the log in the folder; None for none. It also gets the lines logged before it is opened.
        hang_seconds: after which processes that train together end because one of them is frozen or hangs, see
            `training.watching`; None or 0 turns this off.

    Raises:
        LeaseLost: another run has taken over the folder; nothing is written into it after that was noticed.
    """
    kept_in, ranks = claim.folder if claim.ranks.rank == 0 else None, claim.ranks
    preemption.alone = ranks.size == 1
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
            groups = hunter.groups(groups, session)
            # Closed here, not when it is freed: a traceback that is still referred to would keep the reading thread.
            with hunter.ending(session), closing(phases.groups(groups)) as groups:
                stop = fit(session, groups, [phases, hunter, Spending(), *callbacks])
            claim.check()
            training.end(session, stop)
            tell(stop)
            for callback in callbacks:
                callback.on_told()
    return stop


@contextmanager
def _status_told(
    training: Training, session: Session, folder: str | None, claim: Claim, last_words: LastWords
) -> Generator[Callable[[Stop], None]]:
    """Write status "running" now, and "failed" with the reason on an exception or when another process dies or hangs.

    Yields a function that writes the status of a normal end.
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
        if failed.is_set():  # the watch has named the process at fault; the error here is only a consequence
            return
        failed.set()
        with suppress(OSError):  # the disk may be what failed: the original error must not be replaced
            write(replace(training.status(session), status="failed", reason=reason))

    if folder is not None:
        commit.sweep_top(folder)  # a killed training may have left partly written files
    write(training.status(session))
    last_words.tell = fail
    try:
        yield tell
    except BaseException as error:
        fail(f"{type(error).__name__}: {error}")
        raise
