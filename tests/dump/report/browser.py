"""A headless Chromium, driven through its DevTools pipe: for the tests of the report.

    with Browser() as browser:
        browser.open(path)
        browser.evaluate("document.title")
        browser.screenshot("page.png")

Errors and warnings of the page's console are kept in `problems`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = (
    "chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser",
    "google-chrome", "google-chrome-stable",
)  # fmt: skip
_SECONDS = 60
_CODES = {"Escape": 27, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}


def executable():
    """The path of a browser: UOPC_TEST_BROWSER, or one of this machine; None if it has none."""
    given = os.environ.get("UOPC_TEST_BROWSER")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser process."""

    def __init__(self, width=1440, height=900, dark=False):
        self.problems = []
        self._folder = tempfile.TemporaryDirectory()
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def give_pipe():  # the browser reads commands from 3 and writes answers to 4
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [
                executable(), "--headless", "--remote-debugging-pipe", "--no-sandbox",
                "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
                f"--user-data-dir={self._folder.name}", "about:blank",
            ],
            preexec_fn=give_pipe, close_fds=False, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()

    def call(self, method, **params):
        """The result of a command of the DevTools protocol."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._note(message)
        raise TimeoutError(method)

    def _message(self):
        while b"\0" not in self._buffer:
            more = os.read(self._read, 1 << 16)
            assert more, "the browser has ended"
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or str(details))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith(("file:", "data:", "about:", "blob:")):
                self.problems.append(f"the page asked for {address}")

    def size(self, width, height):
        """Set the size of the window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def open(self, path, fragment=""):
        """Load a file and wait until the page is drawn."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=Path(path).absolute().as_uri() + fragment)
        self.wait("document.body && document.body.dataset.ready === 'yes'")
        self.settle()

    def evaluate(self, expression):
        """The value of an expression of the page's script."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition):
        """Wait until an expression is true."""
        end = time.monotonic() + _SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def settle(self):
        """Wait until what was asked for is drawn."""
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self.evaluate(f"{frame}.then(() => {frame}).then(() => true)")

    def go(self, fragment):
        """Follow a link inside of the page."""
        self.evaluate(f"location.hash = {json.dumps(fragment)}")
        self.settle()

    def click(self, selector):
        """A real click in the middle of the first element that a selector finds."""
        found = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " if (!e) return null; e.scrollIntoView({block: 'nearest', inline: 'nearest'});"
            " const b = e.getBoundingClientRect();"
            " return [b.x + Math.min(b.width, 200) / 2, b.y + b.height / 2]; })()"
        )
        assert found, f"nothing is {selector}"
        for kind in ("mousePressed", "mouseReleased"):
            place = {"x": found[0], "y": found[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **place)
        self.settle()

    def key(self, key):
        """Press a key: a character, or a name such as Escape."""
        code = {"windowsVirtualKeyCode": _CODES[key]} if key in _CODES else {"text": key}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.settle()

    def screenshot(self, file):
        """Write what the window shows as a PNG."""
        shown = self.call("Page.captureScreenshot", format="png")
        Path(file).write_bytes(base64.b64decode(shown["data"]))
