"""A headless Chromium spoken to over its DevTools socket: navigate, evaluate, look."""

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DIRECT = build_opener(ProxyHandler({}))


def installed() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def wait_for(path: Path, seconds: float, process: subprocess.Popen[bytes]) -> str:
    """The text of a file that `process` writes once it is ready."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.is_file() and (text := path.read_text()):
            return text
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        time.sleep(0.1)
    raise TimeoutError(f"{path} was not written within {seconds} s")


class Page:
    """One tab of a browser of its own, closed with it."""

    def __init__(self, folder: Path, width: int, height: int) -> None:
        program = installed()
        assert program is not None
        self.width = width
        options = (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--no-proxy-server", "--hide-scrollbars",
            "--remote-debugging-port=0", f"--user-data-dir={folder}",
            f"--window-size={width},{height}", "about:blank",
        )  # fmt: skip
        self.process = subprocess.Popen(
            [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = wait_for(folder / "DevToolsActivePort", 30, self.process).splitlines()[0]
            address = f"http://127.0.0.1:{port}/json/new?about:blank"
            with DIRECT.open(Request(address, method="PUT"), timeout=30) as answer:
                target = json.load(answer)["webSocketDebuggerUrl"]
            self.socket = websocket.create_connection(target, timeout=30, suppress_origin=True)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.count = 0

    def __enter__(self) -> "Page":
        self.call("Page.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, seconds: float = 30, **params: Any) -> dict[str, Any]:
        """Send one command and return its result; events in between are passed over."""
        self.count += 1
        self.socket.settimeout(seconds)
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def evaluate(self, script: str, seconds: float = 30) -> Any:
        """The value of an expression; of a promise, what it resolves to."""
        answer = self.call(
            "Runtime.evaluate", seconds, expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str, seconds: float) -> Any:
        """Evaluate until the value is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.evaluate(script):
                return value
            time.sleep(0.2)
        raise TimeoutError(f"{script} did not become true within {seconds} s")

    def resize(self, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width, height=height, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip

    def screenshot(self, path: Path) -> None:
        answer = self.call("Page.captureScreenshot", 120, format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))
