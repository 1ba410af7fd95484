"""An OSS server: the S3 server behind a translation of the differences. It does not check signatures."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
BUCKET_INFO = (
    "<BucketInfo><Bucket><CreationDate>2026-01-01T00:00:00.000Z</CreationDate><ExtranetEndpoint>x</ExtranetEndpoint>"
    "<IntranetEndpoint>x</IntranetEndpoint><Location>oss-local</Location><Name>{}</Name>"
    "<StorageClass>Standard</StorageClass><Owner><DisplayName>a</DisplayName><ID>a</ID></Owner>"
    "<AccessControlList><Grant>private</Grant></AccessControlList></Bucket></BucketInfo>"
)
FORBIDDEN = b"<Error><Code>FileAlreadyExists</Code><Message>exists</Message></Error>"


def translated(application: Application) -> Application:
    """Wrap an S3 application so that oss2 understands it."""

    def oss(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("QUERY_STRING", "").startswith("bucketInfo"):
            body = BUCKET_INFO.format(environ["PATH_INFO"].strip("/").split("/")[0]).encode()
            start("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        environ["HTTP_AUTHORIZATION"] = "AWS testing:testing"
        if environ.get("HTTP_X_OSS_FORBID_OVERWRITE") == "true":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        for name in [name for name in environ if name.startswith("HTTP_X_OSS_")]:
            environ["HTTP_X_AMZ_" + name[11:]] = environ[name]
        head: dict[str, Any] = {}
        body = b"".join(
            application(environ, lambda status, headers, _=None: head.update(status=status, headers=headers))
        )
        if head["status"].startswith("412"):
            head["status"], body = "409 Conflict", FORBIDDEN
        if body.lstrip()[:5] == b"<?xml":
            body = re.sub(rb'\sxmlns="[^"]*"', b"", body).replace(b"</Contents>", b"<Type>Normal</Type></Contents>")
        headers = [(name.lower().replace("x-amz-", "x-oss-"), value) for name, value in head["headers"]]
        if environ["REQUEST_METHOD"] != "HEAD":
            headers = [(name, value) for name, value in headers if name != "content-length"]
            headers.append(("content-length", str(len(body))))
        start(head["status"], headers)
        return [body]

    return oss


@pytest.fixture(scope="session")
def oss_server() -> Iterator[str]:
    """The address of an OSS server."""
    pytest.importorskip("ossfs", reason="the oss extra is not installed")
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = translated(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def oss_bucket(oss_server: str) -> str:
    """The name of a new bucket on the OSS server."""
    import oss2

    name = f"bucket-{uuid.uuid4().hex[:12]}"
    oss2.Bucket(oss2.Auth("key", "secret"), oss_server, name).create_bucket()
    return name
