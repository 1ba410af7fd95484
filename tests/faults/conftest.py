"""A disk that counts operations, and fails or kills the process at one of them."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from typing import IO, Any, cast

import pytest

from xdpx.utils import io
from xdpx.utils.local_files import LocalFiles

CHANGING = ("open", "sync", "sync_folder", "rename", "link", "unlink", "make_folder", "remove_folder", "copy_mode")


class Trouble:
    """Counts operations by name, and calls `strike` at number `at` (from 1)."""

    def __init__(self, at: int, strike: Callable[[], None], *, after: bool = False) -> None:
        self.at, self.strike, self.after = at, strike, after
        self.seen: list[str] = []

    def around(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.seen.append(name)
            here = len(self.seen) == self.at
            if here and not self.after:
                self.strike()
            try:
                return operation(*args, **options)
            finally:
                if here and self.after:
                    self.strike()

        return counted


class TroubledFile:
    """An open file that counts its writes; a strike at a write leaves half of the data behind."""

    def __init__(self, file: IO[Any], trouble: Trouble) -> None:
        self._file, self._trouble = file, trouble

    def write(self, data: Any) -> int:
        def halved() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            strike()

        strike, self._trouble.strike = self._trouble.strike, halved
        try:
            return int(self._trouble.around("write", self._file.write)(data))
        finally:
            self._trouble.strike = strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> TroubledFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def troubled_files(trouble: Trouble) -> LocalFiles:
    """Return the local disk with all operations counted."""
    files: Any = LocalFiles()
    for name in CHANGING:
        setattr(files, name, trouble.around(name, getattr(files, name)))
    opened = files.open
    files.open = lambda *args, **options: TroubledFile(opened(*args, **options), trouble)
    return cast(LocalFiles, files)


REMOTE_CHANGING = ("put", "create", "upload", "copy_within", "delete")


class Tools:
    """The tools of the fault tests, as one fixture."""

    Trouble = Trouble

    @staticmethod
    def die() -> None:
        """End this process as SIGKILL would: no handlers run, nothing is flushed."""
        os._exit(9)

    @staticmethod
    def raise_(number: int = errno.EIO) -> Callable[[], None]:
        """Return a strike that raises an OSError with this number."""

        def strike() -> None:
            raise OSError(number, os.strerror(number))

        return strike

    @staticmethod
    def disturb_disk(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count and disturb the operations of the disk from here on."""
        monkeypatch.setattr(io, "local_files", troubled_files(trouble))

    @staticmethod
    def disturb_store(trouble: Trouble, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count and disturb the operations of the store of `path` from here on."""
        store = io.remote(path)
        for name in REMOTE_CHANGING:
            monkeypatch.setattr(store, name, trouble.around(name, getattr(store, name)))

    @staticmethod
    def in_child(work: Callable[[], None]) -> int:
        """Run `work` in a forked child, and return its exit code: 0 if it finished, 9 if it was killed."""
        child = os.fork()
        if child == 0:
            gc.disable()  # a collection would end objects of libraries whose threads were not forked
            try:
                work()
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def tools() -> type[Tools]:
    """The tools of the fault tests."""
    return Tools
