"""Try again what may pass by itself, give up in stated time, and never print a secret."""

from __future__ import annotations

import errno
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from xdpx.utils.redaction import redact

T = TypeVar("T")

_logger = logging.getLogger("xdpx.io")
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_TRANSIENT_CODES = frozenset({"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"})
_TRANSIENT_NUMBERS = frozenset({errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EPIPE, errno.ENETUNREACH})
_TRANSIENT_NAMES = frozenset({
    # Matched by name, so that no client library is imported to judge its errors.
    "ClientConnectionError", "ClientConnectorError", "ServerDisconnectedError", "ClientPayloadError",
    "ServerTimeoutError", "ClientOSError", "HTTPClientError", "EndpointConnectionError", "ConnectionClosedError",
    "ReadTimeoutError", "ConnectTimeoutError", "ResponseStreamingError", "IncompleteReadError", "IncompleteRead",
    "ProtocolError", "ChunkedEncodingError", "RequestError", "FSTimeoutError", "ShortRead",
})  # fmt: skip
_DICE = random.SystemRandom()  # not the generator that a training draws from
WARN_AT_TRY = 4
_FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class ShortRead(OSError):
    """A server sent fewer bytes than it had promised."""


@dataclass(frozen=True)
class RetryPolicy:
    """How long to keep trying: waits double from `first_delay` to `longest_delay`, all within `deadline` (seconds)."""

    first_delay: float = 0.25
    longest_delay: float = 20.0
    deadline: float = 120.0

    def delays(self) -> Iterator[float]:
        """Yield the waits, drawn from the upper half of their range: many processes do not come back together."""
        delay = self.first_delay
        while True:
            yield delay * _DICE.uniform(0.5, 1.0)
            delay = min(2 * delay, self.longest_delay)


FIRST_CONTACT = 15.0
"""Seconds to keep trying a place that has never answered: more likely than a fault that passes is a wrong address."""


def current_policy(*, answered: bool = True) -> RetryPolicy:
    """Return the policy of this process: `$XDPX_RETRY_SECONDS` sets the deadline, 0 means a single try.

    Args:
        answered: whether the place has ever answered this process; one that has not is given up sooner.
    """
    text = os.environ.get("XDPX_RETRY_SECONDS", "")
    try:
        if text:
            return RetryPolicy(deadline=float(text))
        return RetryPolicy() if answered else RetryPolicy(deadline=FIRST_CONTACT)
    except ValueError:
        raise ValueError(f"XDPX_RETRY_SECONDS is '{text}'. Use a number of seconds, e.g. 120.") from None


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status an error carries, whichever library raised it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status: int | None = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return status
    for name in ("status", "status_code", "code"):
        value = vars(error).get(name)
        if isinstance(value, int):
            return value
    return None


def code_of(error: BaseException) -> str:
    """Return the object store's own error code, such as `SlowDown` or `PreconditionFailed`."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return str(vars(error).get("code", ""))  # not getattr: aiohttp warns when its `code` is looked at


def causes(error: BaseException, *, handled: bool = False) -> Iterator[BaseException]:
    """Yield the error and everything it was raised from, each once: a library may raise an error from itself.

    Args:
        error: the last one.
        handled: give those, too, that were being handled when another was raised.
    """
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop(0)
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            pending += [link.__cause__, link.__context__ if handled else None]


def is_transient(error: BaseException) -> bool:
    """Decide whether trying the same again may help: server errors, throttling, resets, timeouts, short reads."""
    if isinstance(error, _FINAL) or type(error).__name__ == "FileExpired":
        return False
    return any(_is_transient_alone(cause) for cause in causes(error))


def _is_transient_alone(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if status_of(error) in _TRANSIENT_STATUS or code_of(error) in _TRANSIENT_CODES:
        return True
    if {kind.__name__ for kind in type(error).__mro__} & _TRANSIENT_NAMES:
        return True
    return isinstance(error, OSError) and error.errno in _TRANSIENT_NUMBERS


def persistently(attempt: Callable[[], T], *, what: str, policy: RetryPolicy | None = None) -> T:
    """Call `attempt` until it works, fails for good, or the deadline has passed.

    Args:
        attempt: may be called several times; must be safe to repeat.
        what: the path or action, for messages.
        policy: how long to keep trying; this process's own by default.

    Raises:
        OSError: when the deadline has passed, chained from the last error.
    """
    policy = policy or current_policy()
    start = time.monotonic()
    for tries, delay in enumerate(policy.delays(), 1):
        try:
            return attempt()
        except Exception as error:
            if not is_transient(error):
                raise
            waited = time.monotonic() - start
            reason = redact(f"{type(error).__name__}: {error}")
            if waited + delay > policy.deadline:
                raise _given_up(redact(what), tries, waited, reason) from error
            level = logging.WARNING if tries == WARN_AT_TRY else logging.DEBUG
            _logger.log(level, "%s: try %d failed, trying on: %s", redact(what), tries, reason)
        time.sleep(delay)
    raise AssertionError("unreachable: delays() never ends")


def _given_up(what: str, tries: int, waited: float, reason: str) -> OSError:
    times = "1 try" if tries == 1 else f"{tries} tries"
    return OSError(f"{what}: gave up after {times} in {waited:.0f} s. The last error was {reason}")
