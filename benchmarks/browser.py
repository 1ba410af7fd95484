"""A headless Chromium, driven by its DevTools protocol, for tests, benchmarks and screenshots."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 30.0
"""Default timeout."""


def program() -> str | None:
    """Return the path of a Chromium; None if there is none (Debian: `apt-get install chromium`)."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class PageError(RuntimeError):
    """The page threw an error, or did not finish in time."""


class Browser:
    """A page in its own browser process. Use it in `async with`.

    Attributes:
        console: errors logged or thrown by the page.

    Args:
        width, height: of the window, in pixels.
        dark: make the page prefer a dark colour scheme.
    """

    def __init__(self, width: int = 1280, height: int = 800, *, dark: bool = False) -> None:
        self.console: list[str] = []
        self._size = width, height
        self._dark = dark
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={self._profile.name}",
                 f"--window-size={self._size[0]},{self._size[1]}", "about:blank"]  # fmt: skip
        found = program()
        assert found is not None, "there is no Chromium"
        self._process = subprocess.Popen([found, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._session = aiohttp.ClientSession()
        port = await self._port()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            page = next(each for each in await answer.json() if each["type"] == "page")
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        feature = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self._size[0], height=self._size[1], deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._session.close()
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, SECONDS)
        self._profile.cleanup()

    async def _port(self) -> int:
        told = Path(self._profile.name, "DevToolsActivePort")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            lines = told.read_text().split() if told.exists() else []
            if lines:
                return int(lines[0])
            await asyncio.sleep(0.05)
        raise PageError("the browser did not start")

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Runtime.exceptionThrown":
                self.console.append(str(told["params"]["exceptionDetails"].get("exception", {}).get("description")))
            elif told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.console.append(str(told["params"]["entry"]["text"]))

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        told = await asyncio.wait_for(answer, SECONDS)
        if "error" in told:
            raise PageError(f"{method}: {told['error']}")
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, address: str) -> None:
        """Navigate to an address."""
        await self.call("Page.navigate", url=address)

    async def ask(self, script: str) -> Any:
        """Return the value of an expression in the page, awaited if it is a promise. Raises PageError."""
        told = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise PageError(str(told["exceptionDetails"].get("exception", {}).get("description")))
        return told["result"].get("value")

    async def until(self, script: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression is true, and return its value. Raises PageError on timeout."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(PageError):  # the page is not ready
                if found := await self.ask(script):
                    return found
            await asyncio.sleep(0.02)
        raise PageError(f"not in {seconds:g} s: {script}; the console has {self.console}")

    async def click(self, selector: str) -> None:
        """Click on the first element that a selector matches."""
        await self.ask(f"document.querySelector({json.dumps(selector)}).click()")

    async def point(self, x: float, y: float) -> None:
        """Move the mouse."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def picture(self, path: str | Path) -> None:
        """Write a screenshot as PNG."""
        told = await self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(told["data"]))
