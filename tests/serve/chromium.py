"""Chromium without a window, controlled through a pair of pipes: no port, no driver, no package."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

PATIENCE = 120.0  # seconds, on a busy machine
_ABOVE = 10  # the browser's own ends of the pipes must not be 3 or 4 already
_CONTRASTS = """
(() => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1] };
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => sum + part * linear(c[i] / 255), 0);
  const ratio = (a, b) => {
    const [less, more] = [light(a), light(b)].sort((x, y) => x - y);
    return (more + 0.05) / (less + 0.05);
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const found = rgba(getComputedStyle(node).backgroundColor);
      if (found[3] === 1) return found;
    }
    throw new Error("nothing is behind it");
  };
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), node = walker.currentNode.parentElement;
    if (!text || node.closest("svg, style")) continue;
    seen.push([ratio(rgba(getComputedStyle(node).color), behind(node)), text.slice(0, 40)]);
  }
  return seen;
})()
"""


class Chromium:
    """One page of one browser. What it logs and asks of the network is kept, as the browser reports it."""

    def __init__(self, profile: Path) -> None:
        program = (
            shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        )
        if program is None:
            raise FileNotFoundError("there is no Chromium here: apt-get install chromium")
        hears, self._say = os.pipe()
        self._hear, says = os.pipe()
        low = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in (hears, says)]
        os.close(hears)
        os.close(says)
        flags = (
            "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--no-proxy-server", "--hide-scrollbars", f"--user-data-dir={profile}",
        )  # fmt: skip
        null = os.open(os.devnull, os.O_RDWR)
        self._pid = os.posix_spawn(
            program,
            [program, *flags, "about:blank"],
            os.environ,
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)),
                *((os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(low, (3, 4), strict=True)),
            ],
            setpgroup=0,
        )
        for end in (*low, null):
            os.close(end)
        self._numbers, self._rest, self._session = itertools.count(1), b"", None
        self._tabs: set[str] = set()
        self.events: list[dict] = []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method: str, *, session: str | None = None, **params) -> dict:
        """One command of the DevTools protocol, to the first page or to another, and its result."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params}
        if session or self._session:
            command["sessionId"] = session or self._session
        os.write(self._say, json.dumps(command).encode() + b"\0")
        while (message := self._next()).get("id") != number:
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def tab(self, url: str) -> tuple[str, str]:
        """Another page beside the first, loaded: for :meth:`ask` and :meth:`close_tab`."""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._tabs.add(target)
        session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.do("Page.navigate", session=session, url=url)
        ready = "new Promise(done => { const look = () => document.readyState === 'complete' ? done(true)"
        self.ask(ready + " : setTimeout(look, 20); look(); })", tab=(target, session))
        return target, session

    def close_tab(self, tab: tuple[str, str]) -> None:
        """As a person closes it: the page is told nothing."""
        self._tabs.discard(tab[0])
        self.do("Target.closeTarget", targetId=tab[0])

    def forget(self) -> None:
        """Close the other pages, which may go on asking for a server that is gone, and lose all cookies."""
        for target in list(self._tabs):
            self.close_tab((target, ""))
        self.do("Page.navigate", url="about:blank")
        self.do("Network.clearBrowserCookies")
        self.events.clear()

    def open(self, url: str, *, width: int = 1280, dark: bool = False, headers: dict | None = None) -> None:
        """Load a page anew; what was logged before is forgotten."""
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.do("Network.setExtraHTTPHeaders", headers=headers or {})
        self.events.clear()
        self.do("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def ask(self, expression: str, *, tab: tuple[str, str] | None = None):
        """The value of a JavaScript expression, asked by the debugger and not by the page."""
        options = {"returnByValue": True, "awaitPromise": True, "session": tab and tab[1]}
        evaluation = self.do("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in evaluation:
            raise RuntimeError(json.dumps(evaluation["exceptionDetails"]))
        return evaluation["result"].get("value")

    def box(self, selector: str) -> dict:
        """Where the first such element is, in pixels of the window."""
        return self.ask(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")

    def contrasts(self) -> list[list]:
        """Contrast by WCAG 2.2 and the beginning of every piece of text, against the colour behind it."""
        return self.ask(_CONTRASTS)

    def press(self, key: str) -> None:
        """Press and let go of a key: Tab, Enter, ArrowLeft, ArrowRight, or a letter or space."""
        named = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}
        text = {} if key in named else {"text": {"Enter": "\r"}.get(key, key)}
        code = named.get(key) or ord(text["text"].upper())
        for kind, extra_text in (("keyDown" if text else "rawKeyDown", text), ("keyUp", {})):
            self.do(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **extra_text,
            )

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        shot = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Everything on the console: messages, errors, violations of the content security policy."""
        messages = (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        )
        return [json.dumps(event["params"]) for event in self.events if event["method"] in messages]

    def close(self) -> None:
        """End the browser and all its processes."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._session = None
            self.do("Browser.close")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._say)
        os.close(self._hear)

    def _next(self) -> dict:
        """The next message, an answer or an event."""
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._hear], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE:g} seconds")
            read = os.read(self._hear, 1 << 20)
            if not read:
                raise RuntimeError("Chromium has ended")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
