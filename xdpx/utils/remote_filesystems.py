"""Object stores and web servers with the interface of local disks, on top of fsspec.

Every call is retried while its error may be transient, and the size of every upload is verified. Nothing relies on
fresh listings. fsspec and the client libraries are imported on first use of a remote path.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Any, TypeVar

from xdpx.utils.hub import answers
from xdpx.utils.redaction import redact
from xdpx.utils.retries import (
    ShortRead,
    causes,
    code_of,
    current_policy,
    is_transient,
    persistently,
    status_of,
)
from xdpx.utils.storage import Entry

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from xdpx.utils.local_files import LocalFiles

T = TypeVar("T")

logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs tracebacks of the errors that we raise
_EXTRAS = {"oss": "oss", "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_WEB = frozenset({"http", "https"})
_MEMORY = threading.Lock()
_GOOGLE = "https://storage.googleapis.com"
SECONDS_TO_CONNECT = 10.0
DOWNLOAD_BLOCK = 16 << 20
ONE_PUT = 8 << 20


class RemoteFiles:
    """The storage of one scheme. Safe to use after a fork, because each process opens its own connections.

    Args:
        scheme: the part of its paths before `://`.
        files: returns the local disk, which uploads are read from.
    """

    renames = False

    def __init__(self, scheme: str, *, files: Callable[[], LocalFiles]) -> None:
        self.scheme = scheme
        self._files = files
        self._answered: set[str] = set()  # servers and buckets

    # ---- methods of Storage

    def entry(self, path: str) -> Entry | None:
        """Return the facts of the file or folder at `path`, or None if there is none."""
        try:
            return self._call(path, lambda fs: self._entry(path, self._info(fs, path)))
        except FileNotFoundError:
            return None

    def children(self, path: str) -> list[Entry]:
        """Return the entries of a folder, one level, sorted by name. Raises FileNotFoundError, NotADirectoryError."""
        found = self._call(path, lambda fs: self._list(fs, path))
        return sorted(found, key=lambda entry: entry.path)

    def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a file. Raises FileNotFoundError."""
        return self._call(path, lambda fs: bytes(fs.cat_file(self._key(fs, path))))

    def read_range(self, path: str, start: int, count: int) -> bytes:
        """Return `count` bytes from offset `start`. Raises OSError if the file is shorter."""

        def read(fs: AbstractFileSystem) -> bytes:
            if self.scheme in _WEB:  # its cat_file does not notice if a server sends the whole file instead
                with fs.open(path, "rb", cache_type="none") as file:
                    file.seek(start)
                    data = bytes(file.read(count))
                _check_length(path, start, count, len(data))
                return data
            # ossfs treats `end` as inclusive, the others as exclusive: cut off the extra byte.
            data = bytes(fs.cat_file(self._key(fs, path), start=start, end=start + count)[:count])
            _check_length(path, start, count, len(data))
            return data

        return self._call(path, read)

    def put(self, path: str, data: bytes) -> None:
        """Replace the content of `path` by `data` in one request, and verify its size."""
        self.must_write(path)

        def send(fs: AbstractFileSystem) -> None:
            fs.pipe_file(self._key(fs, path), data)
            self._verify(fs, path, len(data))

        self._call(path, send)

    def create(self, path: str, data: bytes) -> None:
        """Create `path` with `data`; raise FileExistsError if it exists. `data` must be unique to the caller."""
        self.must_write(path)
        try:
            self._call(path, lambda fs: self._create(fs, self._key(fs, path), data))
        except FileExistsError:
            # If the response to our first try was lost, the existing file may be our own.
            if self.read_bytes(path) != data:
                raise

    def touch(self, path: str) -> None:
        """Set the modification time of the file at `path` to now by writing it again; create it if missing."""
        try:
            data = self.read_bytes(path)
        except FileNotFoundError:
            data = b""
        self.put(path, data)

    def delete(self, path: str) -> None:
        """Remove one file, if it exists."""
        self.must_write(path)
        try:
            self._call(path, lambda fs: fs.rm_file(self._key(fs, path)))
        except FileNotFoundError:
            return

    # ---- transfers and folders

    def make_folder(self, path: str) -> None:
        """Create a folder if the scheme has real ones (`memory://`); on object stores they need not be created."""
        if self.scheme == "memory":
            self._call(path, lambda fs: fs.makedirs(self._key(fs, path), exist_ok=True))

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder if the scheme has real ones (`memory://`), else the object that stands for it."""
        if self.scheme == "memory":
            self._call(path, lambda fs: fs.rmdir(self._key(fs, path)))
        else:
            self._call(path, lambda fs: self._delete_marker(fs, self._key(fs, path)))

    def copy_within(self, source: str, target: str) -> None:
        """Copy one file within this storage, without transferring its bytes through this machine."""
        self.must_write(target)
        size = getattr(self.entry(source), "size", None)

        def copy(fs: AbstractFileSystem) -> None:
            fs.cp_file(self._key(fs, source), self._key(fs, target))
            self._verify(fs, target, size)

        self._call(target, copy)

    def upload(self, local_path: str, path: str, counted: Callable[[int], None] = lambda _: None) -> None:
        """Upload a local file atomically to `path`; `counted` is called with the size of each block sent."""
        self.must_write(path)
        size = os.path.getsize(local_path)

        def send(fs: AbstractFileSystem) -> None:
            _send(fs, self._files(), local_path, self._key(fs, path), _Counter(counted))
            self._verify(fs, path, size)

        self._call(path, send)

    def download(self, entry: Entry, file: IO[bytes], counted: Callable[[int], None] = lambda _: None) -> None:
        """Write the content into an open local file, block by block; `counted` is called with the size of each."""
        if self.scheme in _WEB or entry.size is None:
            self._call(entry.path, lambda fs: self._stream(fs, entry, file, counted))
            return
        for start in range(0, entry.size, DOWNLOAD_BLOCK):
            file.write(self.read_range(entry.path, start, min(DOWNLOAD_BLOCK, entry.size - start)))
            counted(min(DOWNLOAD_BLOCK, entry.size - start))

    def _stream(self, fs: AbstractFileSystem, entry: Entry, file: IO[bytes], counted: Callable[[int], None]) -> None:
        """Download in one request, for servers without range requests; a retry starts from the beginning."""
        counted(-file.seek(0, os.SEEK_END))
        file.seek(0)
        file.truncate()
        with fs.open(self._key(fs, entry.path), "rb", block_size=0) as source:
            while block := source.read(DOWNLOAD_BLOCK):
                file.write(block)
                counted(len(block))
        _check_length(entry.path, 0, entry.size or 0, file.tell())

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match, sorted. As on local disks, a wildcard does not match a hidden name."""
        found = self._call(pattern, lambda fs: fs.glob(self._key(fs, pattern)))
        paths = (str(name) if self.scheme in _WEB else f"{self.scheme}://{str(name).strip('/')}" for name in found)
        return sorted(path for path in paths if not _is_hidden(path, pattern))

    # ---- the client

    def _connect(self, path: str) -> AbstractFileSystem:
        import fsspec

        try:
            options = self._options(path)
            fsspec.get_filesystem_class(self.scheme)  # report a missing package before an unreachable server
            self._must_answer(path.partition("://")[2].partition("/")[0])
            return fsspec.filesystem(self.scheme, **options)
        except ImportError as error:
            raise _missing_extra(self.scheme, error) from error
        except ValueError as error:
            known = "Use s3://, oss://, gs://, http(s)://, memory:// or a local path."
            raise OSError(f"{redact(path)}: '{self.scheme}://' is not a known kind of path. {known}") from error

    def _options(self, path: str) -> dict[str, Any]:
        options: dict[str, Any] = {"use_listings_cache": False}
        if self.scheme in {"s3", "s3a"}:
            retries = {"total_max_attempts": 2, "mode": "standard"}
            options["config_kwargs"] = {"retries": retries, "connect_timeout": SECONDS_TO_CONNECT}
        if self.scheme in _WEB:
            from aiohttp import ClientTimeout

            # The default, five minutes for a whole file, is too short for a large one and too long for a dead server.
            timeout = ClientTimeout(total=None, sock_connect=SECONDS_TO_CONNECT, sock_read=60)
            options["client_kwargs"] = {"timeout": timeout, "trust_env": True}
        return options

    def _key(self, fs: AbstractFileSystem, path: str) -> str:
        return str(fs._strip_protocol(path))

    def _call(self, path: str, action: Callable[[AbstractFileSystem], T]) -> T:
        server = path.partition("://")[2].partition("/")[0]

        def attempt() -> T:
            try:
                return action(self._connect(path))
            except Exception as error:
                unmasked = _unmasked(error)
                if unmasked is error:
                    raise
                raise unmasked from unmasked.__cause__  # not from `error`, whose cause it is: that would be a cycle

        try:
            result = persistently(attempt, what=path, policy=current_policy(answered=server in self._answered))
        except Exception as error:
            if not is_transient(error):
                self._answered.add(server)
            raise _explained(error, path) from error
        self._answered.add(server)
        return result

    def _must_answer(self, server: str) -> None:
        """Raise ConnectionError if Google Storage is unreachable: gcsfs would take half a minute to notice."""
        address = os.environ.get("STORAGE_EMULATOR_HOST") or _GOOGLE
        if self.scheme in {"gs", "gcs"} and server not in self._answered and not answers(address, SECONDS_TO_CONNECT):
            raise ConnectionError(f"nothing answers at {address}")

    def must_write(self, path: str) -> None:
        """Raise PermissionError if the scheme is read-only (http and https)."""
        if self.scheme in _WEB:
            raise PermissionError(f"{redact(path)}: {self.scheme}:// paths can only be read.")

    def _verify(self, fs: AbstractFileSystem, path: str, size: int | None) -> None:
        # An object store may report success although it stored a shorter object (mlcommons/storage #593).
        kept = self._info(fs, path).get("size")
        if size is not None and kept != size:
            raise ShortRead(f"{path}: {size} bytes were sent, but {kept} are stored.")

    def _create(self, fs: AbstractFileSystem, key: str, data: bytes) -> None:
        try:
            if self.scheme == "memory":
                with _MEMORY:  # in fsspec's in-memory store, check and write are not atomic
                    fs.pipe_file(key, data, mode="create")
            else:
                self._pipe_new(fs, key, data)
        except Exception as error:
            if any(_says_exists(cause) for cause in causes(error)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), key) from error
            raise

    def _pipe_new(self, fs: AbstractFileSystem, key: str, data: bytes) -> None:
        fs.pipe_file(key, data, mode="create")

    def _info(self, fs: AbstractFileSystem, path: str) -> dict[str, Any]:
        found: dict[str, Any] = fs.info(self._key(fs, path))
        return found

    def _list(self, fs: AbstractFileSystem, path: str) -> list[Entry]:
        key = self._key(fs, path)
        listed = fs.ls(key, detail=True)
        found = [self._entry(path, info) for info in listed]
        # The object `folder/`, by which consoles create a folder, is listed among its children, or alone.
        is_marker = len(listed) == 1 and str(listed[0]["name"]).endswith("/")
        if len(found) == 1 and not found[0].folder and found[0].path == path.rstrip("/") and not is_marker:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return [entry for entry in found if entry.path.rstrip("/") != path.rstrip("/")]

    def _delete_marker(self, fs: AbstractFileSystem, key: str) -> None:
        """Delete the object `folder/`, by which consoles create a folder, if there is one."""
        if self.scheme in {"s3", "s3a"}:  # the methods of s3fs drop the slash, and would delete the file `folder`
            bucket, name, _ = fs.split_path(key)
            fs.call_s3("delete_object", Bucket=bucket, Key=f"{name}/")

    def _entry(self, path: str, info: dict[str, Any]) -> Entry:
        name = path if self.scheme in _WEB else f"{self.scheme}://{str(info['name']).strip('/')}"
        if self.scheme in _WEB and str(info["name"]) != path:
            name = str(info["name"])
        # HTTP has no folders, but most servers redirect the name of a folder to the same with a slash.
        page = str(info.get("url", "")).partition("?")[0] if self.scheme in _WEB else ""
        folder = info.get("type") == "directory" or page.endswith("/")
        modified = _modified(info)
        marks = (info.get(key) for key in ("ETag", "etag", "Content-MD5", "generation"))
        tag = next((str(mark) for mark in marks if mark), str(modified or ""))
        return Entry(name, folder, None if folder else info.get("size"), modified, tag)


def _is_hidden(path: str, pattern: str) -> bool:
    """Return whether a part of a path begins with a dot, behind as many parts as the pattern has without wildcards."""
    parts = pattern.split("/")
    plain = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    wanted = any(part.startswith(".") for part in parts[plain:])
    return not wanted and any(part.startswith(".") for part in path.split("/")[plain:])


def _check_length(path: str, start: int, asked: int, got: int) -> None:
    if got < asked:
        raise ShortRead(f"{path}: asked for {asked} bytes at {start}, got {got}.")


class _Counter:
    """A callback of fsspec that reports the progress of a transfer in bytes."""

    def __init__(self, counted: Callable[[int], None]) -> None:
        self._counted = counted
        self._done = 0

    def relative_update(self, inc: int = 1) -> None:
        self._done += inc
        self._counted(inc)

    def absolute_update(self, value: int) -> None:
        self.relative_update(value - self._done)

    def set_size(self, size: int) -> None:
        """Do nothing: the size is already known."""


def _send(fs: AbstractFileSystem, files: LocalFiles, local_path: str, key: str, counter: _Counter) -> None:
    size = os.path.getsize(local_path)
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol == "memory" or size <= ONE_PUT:
        fs.pipe_file(key, files.read_bytes(local_path))
        counter.absolute_update(size)
    elif protocol.startswith("s3"):
        # The default, ten parts of 50 MiB at a time, would take half a gigabyte; S3 allows at most 10,000 parts.
        part_size = max(16 << 20, -(-size // 9_000))
        fs.put_file(local_path, key, callback=counter, chunksize=part_size, max_concurrency=4)
    else:
        fs.put_file(local_path, key, callback=counter)


def _modified(info: dict[str, Any]) -> float | None:
    for key in ("LastModified", "mtime", "updated", "last_modified", "created", "Last-Modified"):
        value = info.get(key)
        if isinstance(value, datetime):
            return _seconds(value)
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            return _parsed(value)
    return None


def _parsed(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            return _seconds(parse(text))
        except ValueError:
            continue
    return None


def _seconds(when: datetime) -> float:
    """Return the seconds since 1970; a time without a zone is UTC, as stores mean it."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _says_exists(error: BaseException) -> bool:
    return (
        isinstance(error, FileExistsError)
        or code_of(error) in {"PreconditionFailed", "FileAlreadyExists"}
        or status_of(error) == 412
    )


def _unmasked(error: Exception) -> Exception:
    """Return the real error: fsspec's http raises FileNotFoundError for every failure, even if the server is down."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and type(cause).__module__ != "builtins":
        status = status_of(cause)
        if type(cause).__module__.startswith("aiohttp") and status not in {404, 410}:
            return cause
    return error


def _missing_extra(scheme: str, error: ImportError) -> OSError:
    if scheme in _EXTRAS:
        return OSError(f"{scheme}:// paths need an extra of xdpx: pip install 'xdpx[{_EXTRAS[scheme]}]'")
    return OSError(f"{scheme}:// paths need a package that is not installed. {error}")


def _explained(error: Exception, path: str) -> Exception:
    """Return an error as an OSError that names the path and has secrets redacted."""
    shown = redact(path)
    if isinstance(error, FileNotFoundError):
        no_bucket = any(code_of(cause) == "NoSuchBucket" for cause in causes(error))
        text = "There is no such bucket" if no_bucket else os.strerror(errno.ENOENT)
        return FileNotFoundError(errno.ENOENT, text, shown)
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
        return type(error)(error.errno or errno.EEXIST, error.strerror or "File exists", shown)
    if type(error).__name__ in {"NoCredentialsError", "PartialCredentialsError"}:
        return PermissionError(f"{shown}: no credentials for {shown.partition('://')[0]}:// were found. {_HINT}")
    kind = PermissionError if isinstance(error, PermissionError) or status_of(error) in {401, 403} else OSError
    text = redact(str(error))
    if not isinstance(error, OSError):
        text = f"{type(error).__name__}: {text}"
    return kind(text if shown in text else f"{shown}: {text}")


_HINT = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`."
