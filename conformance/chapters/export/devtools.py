"""A page in Chromium without a window, used as a person uses it: mouse, keys, pictures.

The browser speaks its DevTools protocol over two pipes: messages of JSON, each with a zero at its
end. So nothing is needed but Python and a browser.
"""
from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.chapters.export.browser import CHROMIUM, FLAGS

SECONDS = 120.0
#: Puts two descriptors where Chromium looks for them, and becomes it.
_AT_3_AND_4 = """import fcntl, os, sys
read, write = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])"""


class PageError(AssertionError):
    """A page, or the browser, says that something is wrong."""


class Browser:
    """A page in a browser that runs until the end of `opened`.

    `errors` are what scripts of the page threw, `addresses` all that it asked for.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._number, self._rest = write, read, 0, b""
        self.errors: list[str] = []
        self.addresses: list[str] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """What the browser answers to a method of its protocol."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": given}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._write, json.dumps(asked).encode() + b"\0")
        for message in self._messages():
            if message.get("id") == self._number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                found: dict[str, Any] = message["result"]
                return found
            self._note(message)
        raise PageError(f"{method}: no answer within {SECONDS:g} seconds")

    def _messages(self) -> Iterator[dict[str, Any]]:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            while b"\0" in self._rest:
                one, _, self._rest = self._rest.partition(b"\0")
                yield json.loads(one)
            if select.select([self._read], [], [], 1.0)[0]:
                got = os.read(self._read, 1 << 20)
                if not got:
                    raise PageError("the browser has ended")
                self._rest += got

    def _note(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Network.requestWillBeSent":
            self.addresses.append(told["request"]["url"])

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open an address at a size, and wait until all of it is there."""
        self.resize(width, height, dark)
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Give the page another size, and say which colours its reader wants."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            # Else a page may still scroll when the place of something in it has been read.
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def value(self, script: str) -> Any:
        """The value of an expression of JavaScript, awaited."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in found:
            raise PageError(str(found["exceptionDetails"].get("exception", found)))
        return found["result"].get("value")

    def until(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise PageError(f"never true: {condition}")
            time.sleep(0.02)

    def place(self, selector: str, index: int = 0) -> tuple[float, float]:
        """The centre of an element, which is brought into view when the page has been drawn."""
        self.frames()
        x, y = self.value(
            f"(() => {{ const one = document.querySelectorAll({json.dumps(selector)})[{index}]; "
            "one.scrollIntoView({block: 'center', behavior: 'instant'}); "
            "const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()")
        return x, y

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """One event of the mouse: Pressed, Moved, Released, Wheel."""
        held = {"button": "left", "buttons": 1, "clickCount": 1} if kind != "Wheel" else {}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **held, **more)

    def drag(self, points: Sequence[tuple[float, float]], steps: int = 6) -> None:
        """Press at the first point, go to the others, and let go: what was there is drawn, and so
        is what there is then.
        """
        self.frames()
        self.mouse("Pressed", *points[0])
        for (from_x, from_y), (to_x, to_y) in zip(points, points[1:], strict=False):
            for step in range(1, steps + 1):
                part = step / steps
                self.mouse("Moved", from_x + part * (to_x - from_x),
                           from_y + part * (to_y - from_y))
        self.mouse("Released", *points[-1])
        self.frames()

    def frames(self) -> None:
        """Wait until the page was drawn again, twice."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def click(self, selector: str, index: int = 0) -> None:
        """Press and let go in the middle of an element."""
        self.drag([self.place(selector, index)])

    def key(self, name: str) -> None:
        """Press a key, such as Tab or ArrowDown, and let it go."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        text = {"Enter": "\r", " ": " "}.get(name, name if len(name) == 1 else "")
        shared = {"key": name, "windowsVirtualKeyCode": codes.get(name, ord(name[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write the page as a PNG, whole or what is in view."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the files of a folder are given."""
    handler = type("Files", (http.server.SimpleHTTPRequestHandler,),
                   {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def opened() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    # It reads descriptor 3 and writes descriptor 4.
    theirs_read, ours_write = os.pipe()
    ours_read, theirs_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [sys.executable, "-c", _AT_3_AND_4, str(theirs_read), str(theirs_write), CHROMIUM,
             *FLAGS, "--remote-debugging-pipe", "--hide-scrollbars", "--disable-gpu",
             f"--user-data-dir={profile}"],
            pass_fds=(theirs_read, theirs_write), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_read)
        os.close(theirs_write)
        try:
            yield Browser(ours_write, ours_read)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours_write)
            os.close(ours_read)
