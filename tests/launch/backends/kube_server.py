"""The part of a Kubernetes API server that kubectl needs: discovery, stored objects, and the log of a pod."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KINDS = {"api/v1": {"services": "Service", "pods": "Pod", "pods/log": "Pod"}, "apis/batch/v1": {"jobs": "Job"}}
KINDS |= {"apis/trainer.kubeflow.org/v1alpha1": {"trainjobs": "TrainJob"}}
STATUS = {"active": 2, "conditions": []}
POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a-0"}, "spec": {"containers": [{"name": "xdpx"}]}}


def discovery(path: str) -> dict[str, Any] | None:
    """Return the server's discovery document for a path; None if there is none."""
    place = path.strip("/")
    if place == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if place == "apis":
        found = [each.split("/")[1:] for each in KINDS if each.startswith("apis/")]
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in found]
        groups = [{"name": name, "versions": [each]} for (name, _), each in zip(found, versions, strict=True)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if place in KINDS:
        listed = [{"name": name, "kind": kind, "namespaced": True, "verbs": []} for name, kind in KINDS[place].items()]
        version = place.removeprefix("apis/").removeprefix("api/")
        return {"kind": "APIResourceList", "groupVersion": version, "resources": listed}
    if place == "openapi/v3":
        return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in KINDS}}
    if place.removeprefix("openapi/v3/") in KINDS:
        return _openapi(place.removeprefix("openapi/v3/"))
    return None


def _openapi(place: str) -> dict[str, Any]:
    """Return a schema that makes kubectl leave the validation of fields to the server."""
    group, version = place.split("/")[1:] if place.startswith("apis/") else ("", "v1")
    checks = {"parameters": [{"name": "fieldValidation", "in": "query"}], "responses": {}}
    kinds = set(KINDS[place].values())
    named = {kind: {"group": group, "version": version, "kind": kind} for kind in kinds}
    paths = {f"/{kind}": {"patch": checks | {"x-kubernetes-group-version-kind": named[kind]}} for kind in kinds}
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}


@contextmanager
def serving(folder: Path) -> Generator[tuple[Path, dict[str, Any]]]:
    """Run the server while entered; yield a kubeconfig and {path: object} of the stored objects."""
    kept: dict[str, Any] = {}

    class Server(BaseHTTPRequestHandler):
        def answer(self) -> None:
            said = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            code, found = 200, discovery(path) or kept.get(path)
            if self.command == "POST":
                found = json.loads(said)
                code, kept[f"{path}/{found['metadata']['name']}"] = 201, found | {"status": STATUS}
            elif self.command == "DELETE":
                found = kept.pop(path, None)
            elif path.endswith("/log"):
                return self.say(200, b"step 1\n", "text/plain")
            elif path.endswith("/pods"):
                found = {"kind": "PodList", "apiVersion": "v1", "items": [POD]}
            if found is None:
                missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                code, found = 404, missing | {"message": f"{path} is not there"}
            return self.say(code, json.dumps(found).encode(), "application/json")

        do_GET = do_POST = do_DELETE = answer

        def say(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Do not log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        config = folder / "kubeconfig.json"
        address = {"server": f"http://127.0.0.1:{server.server_port}"}
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [{"name": "me", "user": {}}],
            "clusters": [{"name": "here", "cluster": address}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team"}}],
        }))  # fmt: skip
        yield config, kept
        server.shutdown()
        thread.join()
