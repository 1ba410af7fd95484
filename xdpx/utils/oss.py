"""Alibaba Cloud OSS: the credentials, and a storage that works around the peculiarities of ossfs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xdpx.utils.owners import temporary_name
from xdpx.utils.redaction import keep_secret, redact
from xdpx.utils.remote_filesystems import RemoteFiles
from xdpx.utils.storage import Entry

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

    from xdpx.utils.local_files import LocalFiles

_HOW = (
    "Call io.set_io(OSS(access_key_id, access_key_secret, region_bucket)) in user/modules/oss_credentials.py, with "
    "keys out of os.environ."
)
_ONE_COPY = 1 << 30
"""The store copies files below this size (bytes) in one request."""
logging.getLogger("oss2").setLevel(logging.CRITICAL)  # it logs the errors that we raise


class OSS:
    """Credentials for `oss://` paths. Create one in user/modules/*.py and pass it to `io.set_io`.

    Args:
        access_key_id, access_key_secret: of an Alibaba Cloud account; never printed.
        region_bucket: pairs `[region, bucket]`, e.g. `[["cn-hangzhou", "my-bucket"]]`. A region may also be a whole
            endpoint that begins with `http`, e.g. an internal one.
    """

    def __init__(self, access_key_id: str, access_key_secret: str, region_bucket: Sequence[Sequence[str]]) -> None:
        self.access_key_id = access_key_id
        self.access_key_secret = access_key_secret
        self.endpoints = {bucket: _endpoint(region) for region, bucket in _pairs(region_bucket)}
        keep_secret(access_key_secret)

    def endpoint(self, bucket: str) -> str:
        """Return the endpoint URL of `bucket`. Raises PermissionError if it is not in `region_bucket`."""
        if bucket not in self.endpoints:
            known = ", ".join(sorted(self.endpoints)) or "none"
            raise PermissionError(
                f"oss://{bucket}: this bucket is not in region_bucket of your OSS credentials (there: {known}). "
                f"Add ['<region>', '{bucket}'] to it."
            )
        return self.endpoints[bucket]

    def __repr__(self) -> str:
        return f"OSS(buckets={sorted(self.endpoints)})"


def _pairs(region_bucket: Sequence[Any]) -> list[tuple[str, str]]:
    one_pair = len(region_bucket) == 2 and all(isinstance(part, str) and len(part) > 1 for part in region_bucket)
    pairs = [region_bucket] if one_pair else region_bucket
    if isinstance(pairs, str) or not all(_is_pair(pair) for pair in pairs):
        raise ValueError("region_bucket is not a list of [region, bucket]. Use e.g. [['cn-hangzhou', 'my-bucket']].")
    return [(region, bucket) for region, bucket in pairs]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(part, str) for part in pair)


def _endpoint(region: str) -> str:
    if region.startswith(("http://", "https://")):
        return region
    return f"https://oss-{region.removeprefix('oss-')}.aliyuncs.com"


class OssFiles(RemoteFiles):
    """Storage of `oss://` paths, through ossfs.

    Args:
        scheme: `oss`.
        files: returns the local disk, which uploads are read from.
        oss: the user's credentials, if set.
        spool: returns a local folder for files that are copied through this machine.
    """

    def __init__(
        self, scheme: str, *, files: Callable[[], LocalFiles], oss: OSS | None, spool: Callable[[], str]
    ) -> None:
        super().__init__(scheme, files=files)
        self._oss = oss
        self._spool = spool

    def _options(self, path: str) -> dict[str, Any]:
        if self._oss is None:
            raise PermissionError(f"{redact(path)}: no OSS credentials are set. {_HOW}")
        bucket = path.partition("://")[2].partition("/")[0]
        return {
            "key": self._oss.access_key_id,
            "secret": self._oss.access_key_secret,
            "endpoint": self._oss.endpoint(bucket),
        }

    def _connect(self, path: str) -> AbstractFileSystem:
        fs = super()._connect(path)
        fs.invalidate_cache()  # its cache of listings cannot be disabled, because it reads its own results from there
        return fs

    def _info(self, fs: AbstractFileSystem, path: str) -> dict[str, Any]:
        # ossfs would list the whole parent folder, and omits the ETag.
        bucket, key = fs.split_path(path)
        if not key:
            fs._call_oss("get_bucket_info", bucket=bucket)
            return {"name": bucket, "type": "directory"}
        try:
            head = fs._call_oss("head_object", key, bucket=bucket)
        except FileNotFoundError:
            if fs._call_oss("list_objects", prefix=f"{key}/", max_keys=1, bucket=bucket).object_list:
                return {"name": f"{bucket}/{key}", "type": "directory"}
            raise
        facts = {"size": head.content_length, "LastModified": head.last_modified, "ETag": head.etag}
        return {"name": f"{bucket}/{key}", "type": "file", **facts}

    def copy_within(self, source: str, target: str) -> None:
        """Copy one file: within the store, or through a local file if it has 1 GiB or more or the regions differ."""
        entry = self.entry(source)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if (entry.size or 0) < _ONE_COPY and self._options(source)["endpoint"] == self._options(target)["endpoint"]:
            self._call(target, lambda fs: self._copy(fs, source, target, entry.size))
            return
        files, local_copy = self._files(), temporary_name(os.path.join(self._spool(), "copy"))
        try:
            with files.open(local_copy, "wb") as file:
                self.download(entry, file)
            self.upload(local_copy, target)
        finally:
            files.delete(local_copy)

    def _copy(self, fs: AbstractFileSystem, source: str, target: str, size: int | None) -> None:
        # ossfs copies to another bucket through the working directory.
        from_bucket, from_key = fs.split_path(source)
        to_bucket, to_key = fs.split_path(target)
        fs._call_oss("copy_object", from_bucket, from_key, to_key, bucket=to_bucket)
        self._verify(fs, target, size)

    def _list(self, fs: AbstractFileSystem, path: str) -> list[Entry]:
        found = super()._list(fs, path)
        if not found and fs.split_path(path)[1]:
            self._info(fs, path)  # raises FileNotFoundError
        return found

    def _delete_marker(self, fs: AbstractFileSystem, key: str) -> None:
        bucket, name = fs.split_path(key)
        fs._call_oss("delete_object", f"{name}/", bucket=bucket)

    def _pipe_new(self, fs: AbstractFileSystem, key: str, data: bytes) -> None:
        fs.pipe_file(key, data, headers={"x-oss-forbid-overwrite": "true"})
