"""Let the Trainer train with `push_to_hub` and a Hub that this process itself serves: `trainer_hub.py LIBRARY`.

Prints the received commits for every strategy: [{"message", "paths"}].
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from huggingface_hub import constants, hf_api

COMMITS: list[dict[str, Any]] = []


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub's protocol that an upload needs: whoami, create a repository, preupload, commit."""

    def log_message(self, *_: Any) -> None:
        """Do not log."""

    def answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if "whoami" in self.path:
            self.answer({"name": "me", "type": "user", "orgs": [], "auth": {"accessToken": {"role": "write"}}})
        elif "/api/models/me/" in self.path:
            self.answer({"id": "me/run", "sha": "0" * 40, "siblings": [], "private": False, "tags": [], "downloads": 0})
        else:
            self.answer({"error": "Entry not found"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(text)["files"]
            ]
            self.answer({"files": files})
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in text.splitlines() if line]
            paths = [line["value"]["path"] for line in lines if line["key"] == "file"]
            COMMITS.append({"message": lines[0]["value"]["summary"], "paths": sorted(paths)})
            url = f"{constants.ENDPOINT}/me/run/commit/{len(COMMITS):040d}"
            self.answer({"success": True, "commitOid": f"{len(COMMITS):040d}", "commitUrl": url})
        elif "validate-yaml" in self.path:
            self.answer({"errors": [], "warnings": []})
        else:
            self.answer({"url": f"{constants.ENDPOINT}/me/run", "name": "me/run", "id": "me/run"})


def serve() -> None:
    """Start the Hub, and point every client to it: in a process that has imported them already."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    constants.ENDPOINT = hf_api.api.endpoint = address
    constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY, constants.HF_HUB_DISABLE_XET = False, True, True


def main() -> None:
    """Train with each strategy."""
    serve()
    os.environ["XDPX_TRAINER_UNDER_TEST"] = sys.argv[1]
    spec = importlib.util.spec_from_file_location("trainer_parts", Path(__file__).with_name("trainer_parts.py"))
    assert spec is not None
    assert spec.loader is not None
    parts: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parts)
    told = {}
    for strategy in ("end", "every_save", "checkpoint", "all_checkpoints"):
        COMMITS.clear()
        trainer = parts.build(
            strategy, parts.tiny_bert(), parts.token_rows(16), push_to_hub=True, hub_strategy=strategy,
            hub_model_id="me/run", hub_token="hf_of_a_test", hub_always_push=True, save_strategy="steps", save_steps=2,
        )  # fmt: skip
        trainer.train()
        trainer.push_to_hub()
        told[strategy] = list(COMMITS)
    print(json.dumps(told))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
