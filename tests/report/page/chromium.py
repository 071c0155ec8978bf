"""A headless Chromium, driven over a pipe by the DevTools protocol. It needs no package but Chromium itself."""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no host can be reached
    "--remote-debugging-pipe",
)
_TIMEOUT_S = 60


class Chromium:
    """One tab. `requests` are the addresses it asked for, `messages` the errors and warnings on its console."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.messages: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its answer. Raise RuntimeError if it fails."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(_TIMEOUT_S)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path: Path) -> float:
        """Open a file and wait until all of its charts are drawn. Return the seconds to the first drawn chart."""
        began = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        state = "document.documentElement?.dataset"
        first = self.wait(f"!!({state}?.drawn || {state}?.done)", began)
        self.wait(f"!!{state}?.done", began)
        return first

    def wait(self, condition: str, began: float | None = None) -> float:
        """Wait until a condition holds and return the seconds since `began`. Raise TimeoutError."""
        began = time.monotonic() if began is None else began
        while not self.run(condition):
            if time.monotonic() - began > _TIMEOUT_S:
                raise TimeoutError(condition)
            time.sleep(0.02)
        return time.monotonic() - began

    def run(self, expression: str) -> Any:
        """Run a script in the page and return its value. Raise RuntimeError if it throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def media(self, *, dark: bool = False, print_: bool = False) -> None:
        """Set what the reader's system prefers."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if print_ else "screen", features=[scheme])

    def width(self, pixels: int, height: int = 900) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=pixels,
            height=height,
            deviceScaleFactor=1,
            mobile=pixels < 600,
        )

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, path: Path) -> None:
        """Write the page as it is printed."""
        answer = self.call("Page.printToPDF", printBackground=False)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _next(self, timeout_s: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], timeout_s)
            part = os.read(self._from, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("Chromium does not answer")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Log.entryAdded":
            self.messages.append(f"{event['entry']['level']}: {event['entry']['text']}")
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.messages.append(f"{event['type']}: {[argument.get('value') for argument in event['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.messages.append(f"exception: {event['exceptionDetails']['text']}")


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Start Chromium with a new profile in `folder`, and end all of its processes afterwards."""
    assert CHROMIUM is not None
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()

    browser = subprocess.Popen(
        # The protocol reads from descriptor 3 and writes to 4.
        [
            "bash",
            "-c",
            f'exec "$@" 3<&{in_read} 4>&{out_write}',
            "bash",
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={folder}/profile",
            "about:blank",
        ],
        env={**os.environ, "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(in_read, out_write),
        start_new_session=True,
    )
    os.close(in_read)
    os.close(out_write)
    try:
        yield Chromium(in_write, out_read)
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        os.close(in_write)
        os.close(out_read)
