"""Headless Chromium for tests, controlled over its DevTools pipe with the standard library only."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT = 60.0
"""Seconds to wait for an answer; a browser starts slowly on a busy machine."""
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic", "--hide-scrollbars",
)  # fmt: skip


def browser_path() -> str | None:
    """The path of an installed browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one tab; `events` are the DevTools events since the page was opened."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.command_pipe = os.pipe()
        self.answer_pipe, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        line = f'exec "$0" "$@" 3</dev/fd/{commands} 4>/dev/fd/{answers}'
        words = ["sh", "-c", line, program, *SWITCHES, "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*words, "about:blank"], pass_fds=(commands, answers), stdout=quiet, stderr=quiet, start_new_session=True
        )
        os.close(commands)
        os.close(answers)
        self.buffer, self.last_id, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        tab = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.command_pipe)
        os.close(self.answer_pipe)
        os.killpg(self.process.pid, signal.SIGKILL)  # Its process group: the browser and the processes it started.
        self.process.wait()
        self.folder.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a DevTools command and return its result."""
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.command_pipe, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.last_id:
            self.events.append(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        """The next message of the browser."""
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answer_pipe], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self.answer_pipe, 1 << 16)
            assert piece, "the browser has ended"
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        loaded: dict[str, Any] = json.loads(message)
        return loaded

    def open(self, path: Path, width: int = 1280, height: int = 800, media: str = "", dark: bool = False) -> None:
        """Open a file in a window of this size; `media="print"` uses the styles for print."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        assert "errorText" not in self.send("Page.navigate", url=path.resolve().as_uri()), f"cannot open {path}"
        self.wait(lambda: bool(self.events_of("Page.loadEventFired")))

    def wait(self, done: Callable[[], bool]) -> None:
        """Read events until `done()` is true."""
        end = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < end, "the page is not ready"
            self.events.append(self._next())

    def events_of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of one kind."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def js(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        params = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **params)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, x: float, y: float, click: bool = False) -> None:
        """Move the mouse to a place of the window, and click there if asked to."""
        kinds = ("mouseMoved", "mousePressed", "mouseReleased") if click else ("mouseMoved",)
        for kind in kinds:
            button = "none" if kind == "mouseMoved" else "left"
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=int(button == "left"))

    def screenshot(self, whole: bool = True) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"])
