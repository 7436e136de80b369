# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium by the DevTools protocol over a pipe (--remote-debugging-pipe)."""

import base64
import itertools
import json
import os
import shutil
import subprocess

PROGRAM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
           "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb")


class Browser:
    """`directory` holds this browser's profile. `before` is a command prefix."""

    def __init__(self, directory, before=(), options=OPTIONS):
        from_us, to_browser = os.pipe()
        to_us, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec 3<&%d 4>&%d "$@"' % (from_us, from_browser), "-",
             *before, PROGRAM, *options, "--user-data-dir=" + directory, "about:blank"],
            pass_fds=(from_us, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=directory))
        os.close(from_us)
        os.close(from_browser)
        self.input = os.fdopen(to_browser, "wb", buffering=0)
        self.output = os.fdopen(to_us, "rb")
        self.numbers = itertools.count(1)
        self.events = []
        self.session = None
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"]
                      if one["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"],
                                flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.ask(domain + ".enable")

    def read(self):
        message = bytearray()
        while True:
            byte = self.output.read(1)
            if not byte:
                raise EOFError("the browser is gone")
            if byte == b"\0":
                return json.loads(message)
            message += byte

    def ask(self, method, **parameters):
        number = next(self.numbers)
        request = {"id": number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.input.write(json.dumps(request).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width=1280, dark=False, media="screen", script=True):
        """If `script` is true, the page's own JavaScript runs."""
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                 deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events = []
        self.ask("Page.navigate", url="file://" + path)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.read())

    def complaints(self):
        """Returns the browser's console messages and every address other than its own that the page
        requested."""
        messages = [event for event in self.events
                    if event["method"] in ("Log.entryAdded", "Runtime.consoleAPICalled",
                                           "Runtime.exceptionThrown")]
        asked = [event["params"]["request"]["url"] for event in self.events
                 if event["method"] == "Network.requestWillBeSent"]
        return messages, asked[1:]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def picture(self, path):
        """Saves a picture of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "scale": 1,
                "height": min(size["height"], 16000)}
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(data))

    def close(self):
        self.input.close()
        self.process.wait(timeout=60)
        self.output.close()
