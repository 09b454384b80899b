"""A headless Chromium for tests, driven over its DevTools pipe with nothing but the standard library."""

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
PATIENCE = 60.0
"""Seconds to wait for an answer; a busy machine starts a browser slowly."""
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic", "--hide-scrollbars",
)  # fmt: skip


def found() -> str | None:
    """Where a browser is, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one tab; `events` holds what the page said and asked for since it was opened."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.out = os.pipe()
        self.inn, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        line = f'exec "$0" "$@" 3</dev/fd/{theirs} 4>/dev/fd/{answers}'
        words = ["sh", "-c", line, program, *SWITCHES, "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*words, "about:blank"], pass_fds=(theirs, answers), stdout=quiet, stderr=quiet, start_new_session=True
        )
        os.close(theirs)
        os.close(answers)
        self.rest, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        tab = next(t for t in self.send("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.out)
        os.close(self.inn)
        os.killpg(self.process.pid, signal.SIGKILL)  # Its own group: the browser and the processes it started.
        self.process.wait()
        self.folder.cleanup()

    def send(self, method: str, **given: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": given}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.inn], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self.inn, 1 << 16)
            assert piece, "the browser has gone"
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        loaded: dict[str, Any] = json.loads(message)
        return loaded

    def open(self, path: Path, width: int = 1280, height: int = 800, media: str = "", dark: bool = False) -> None:
        """Open a file in a window of this size, on screen or for `media` "print"."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        assert "errorText" not in self.send("Page.navigate", url=path.resolve().as_uri()), f"cannot open {path}"
        self.wait(lambda: bool(self.of("Page.loadEventFired")))

    def wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, "the page is not ready"
            self.events.append(self._next())

    def of(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        given = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, x: float, y: float, click: bool = False) -> None:
        kinds = ("mouseMoved", "mousePressed", "mouseReleased") if click else ("mouseMoved",)
        for kind in kinds:
            button = "none" if kind == "mouseMoved" else "left"
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=int(button == "left"))

    def screenshot(self, whole: bool = True) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True)["data"])
