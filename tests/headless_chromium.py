"""`Browser`: a real headless Chromium driven over its DevTools protocol, for tests of web pages."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
    "--window-size=1500,1400",
)  # fmt: skip


def find_chromium() -> str | None:
    """The browser's path, None if there is none."""
    return next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)


class Browser:
    """One page. Use as an async context manager; the browser and its profile are gone afterwards."""

    async def __aenter__(self) -> Browser:
        executable = find_chromium()
        if executable is None:
            raise FileNotFoundError("no chromium")
        self._profile = Path(tempfile.mkdtemp(prefix="sweep-chromium-"))
        arguments = [executable, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = _first_line(self._profile / "DevToolsActivePort", 60)
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            pages = await answer.json()
        url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = await self._session.ws_connect(url, max_msg_size=0)
        self._number = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._profile, ignore_errors=True)

    async def open(self, url: str) -> None:
        """The page is being loaded."""
        await self._call("Page.navigate", url=url)

    async def text(self) -> str:
        """What a reader of the page sees."""
        answer = await self._call("Runtime.evaluate", expression="document.body.innerText", returnByValue=True)
        return str(answer["result"].get("value", ""))

    async def wait_for(self, *wanted: str, seconds: float) -> str:
        """The page's text once it holds everything wanted; AssertionError with the text if it does not in time."""
        deadline = time.monotonic() + seconds
        while True:
            seen = await self.text()
            missing = [w for w in wanted if w not in seen]
            if not missing:
                return seen
            assert time.monotonic() < deadline, f"{missing} not on the page: {seen[:3000]}"
            time.sleep(0.5)

    async def screenshot(self, path: Path) -> None:
        """A PNG of the window."""
        answer = await self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async for message in self._socket:
            content = json.loads(message.data)
            if content.get("id") == self._number:
                assert "error" not in content, content
                return dict(content["result"])
        raise AssertionError("the browser closed the connection")


def _first_line(path: Path, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.1)
    return path.read_text().splitlines()[0]
