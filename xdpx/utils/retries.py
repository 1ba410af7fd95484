"""Retry operations after transient errors, up to a deadline, with secrets redacted from all messages."""

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
    # Matched by name, so that no client library need be imported.
    "ClientConnectionError", "ClientConnectorError", "ServerDisconnectedError", "ClientPayloadError",
    "ServerTimeoutError", "ClientOSError", "HTTPClientError", "EndpointConnectionError", "ConnectionClosedError",
    "ReadTimeoutError", "ConnectTimeoutError", "ResponseStreamingError", "IncompleteReadError", "IncompleteRead",
    "ProtocolError", "ChunkedEncodingError", "RequestError", "FSTimeoutError", "ShortRead",
})  # fmt: skip
_DICE = random.SystemRandom()  # not the global generator, whose state training depends on
WARN_AT_TRY = 4
_FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class ShortRead(OSError):
    """Fewer bytes arrived, here or at the server, than expected."""


@dataclass(frozen=True)
class RetryPolicy:
    """When to retry: delays double from `first_delay` to `longest_delay`, in total up to `deadline`; in seconds."""

    first_delay: float = 0.25
    longest_delay: float = 20.0
    deadline: float = 120.0

    def delays(self) -> Iterator[float]:
        """Yield delays in seconds, with random factors of 0.5 to 1, so that processes do not retry at the same time."""
        delay = self.first_delay
        while True:
            yield delay * _DICE.uniform(0.5, 1.0)
            delay = min(2 * delay, self.longest_delay)


FIRST_CONTACT = 15.0
"""Deadline in seconds for a server that has never responded: a wrong address is likelier than a transient error."""


def current_policy(*, answered: bool = True) -> RetryPolicy:
    """Return the policy of this process: `$XDPX_RETRY_SECONDS` sets the deadline, 0 means a single try.

    Args:
        answered: whether the server has ever responded to this process; if not, the default deadline is shorter.

    Raises:
        ValueError: the variable is not a number.
    """
    text = os.environ.get("XDPX_RETRY_SECONDS", "")
    try:
        if text:
            return RetryPolicy(deadline=float(text))
        return RetryPolicy() if answered else RetryPolicy(deadline=FIRST_CONTACT)
    except ValueError:
        raise ValueError(f"XDPX_RETRY_SECONDS is '{text}'. Use a number of seconds, e.g. 120.") from None


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error of any client library carries, None if it has none."""
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
    """Return the error code of the object store, such as `SlowDown` or `PreconditionFailed`; '' if there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", ""))
    return str(vars(error).get("code", ""))  # not getattr: aiohttp warns on access to its `code`


def causes(error: BaseException, *, handled: bool = False) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, each once: some libraries raise an error from itself.

    Args:
        error: the last one.
        handled: also follow `__context__`, i.e. errors that were being handled when another was raised.
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
    """Return whether a retry may help: after server errors, throttling, connection resets, timeouts, short reads."""
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
    """Return the result of `attempt`, retrying it after transient errors until the deadline.

    Args:
        attempt: may be called several times; must be idempotent.
        what: the path or action, for messages.
        policy: by default that of this process.

    Raises:
        OSError: the next retry would be after the deadline; chained from the last error.
        Exception: an error of `attempt` that is not transient.
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
                text = f"{redact(what)}: gave up after {tries} {'try' if tries == 1 else 'tries'} in {waited:.0f} s."
                raise OSError(f"{text} The last error was {reason}") from error
            level = logging.WARNING if tries == WARN_AT_TRY else logging.DEBUG
            _logger.log(level, "%s: try %d failed, retrying: %s", redact(what), tries, reason)
        time.sleep(delay)
    raise AssertionError("unreachable: delays() never ends")
