"""A headless Chromium, driven over a pipe by its DevTools protocol."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60
"""For any one answer."""
WHAT_OVERFLOWS = """
(() => {
  const wide = window.innerWidth;
  const scrolls = (e) => {
    for (let p = e; p; p = p.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return true;
    }
    return false;
  };
  const out = [];
  if (document.documentElement.scrollWidth > wide) out.push("the page");
  for (const e of document.body.querySelectorAll("*")) {
    if (e.closest("svg") && e.tagName !== "svg") continue;
    const box = e.getBoundingClientRect();
    if (box.width && (box.right > wide + 0.5 || box.left < -0.5) && !scrolls(e)) {
      out.push(e.tagName + "." + e.className);
    }
  }
  for (const e of document.querySelectorAll("svg text")) {
    const svg = e.ownerSVGElement.getBoundingClientRect();
    const box = e.getBoundingClientRect();
    if (box.right > svg.right + 1 || box.left < svg.left - 1 ||
        box.top < svg.top - 1 || box.bottom > svg.bottom + 1) {
      out.push("in a picture: " + e.textContent);
    }
  }
  return out;
})()
"""
"""Everything that sticks out of the page, or of its picture."""


class Browser:
    """One page of a running browser.

    Args:
      profile: an empty folder.
    """

    def __init__(self, profile):
        program = next(filter(None, map(shutil.which, PROGRAMS)))
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        plumbing = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            [
                "/bin/bash", "-c", plumbing, "browser", program,
                "--headless=new", "--no-sandbox", "--disable-gpu",
                "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                "--disable-background-networking", "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
            ],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self._in, False)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        targets = self("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self(f"{domain}.enable")

    def __call__(self, method, **params):
        """Sends a command and waits for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self):
        """The next message; events are kept."""
        until = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            try:
                self._buffer += os.read(self._in, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError("the browser does not answer") from None
                time.sleep(0.005)
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path, width, height=900, dark=False):
        """Loads a file at a width, in light or dark; returns what it asked for."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        if error := self("Page.navigate", url=path.as_uri()).get("errorText"):
            raise RuntimeError(f"{path}: {error}")
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self._next()
        self.evaluate("document.fonts.ready.then(() => true)")
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def evaluate(self, expression):
        """The value of JavaScript in the page; a promise is waited for."""
        found = self(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    def screenshot(self, path, whole=True):
        """Writes what the page looks like."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=whole, **(
            {"clip": self._whole()} if whole else {}
        ))  # fmt: skip
        path.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self):
        size = self("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "scale": 1, **{k: size[k] for k in ("width", "height")}}

    def close(self):
        """Ends the browser."""
        for end in (self._out, self._in):
            with contextlib.suppress(OSError):
                os.close(end)
        try:
            self._process.wait(5)  # it goes when its pipe does
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
