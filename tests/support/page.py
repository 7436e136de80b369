# SPDX-License-Identifier: Apache-2.0
"""Reads the pages that page_samples writes, and checks the rules for every page."""

import html
import json
import os
import re
import subprocess

from support import harness

SAMPLES = os.path.join(harness.BUILD, "tests", "launcher", "page_samples")
VERDICTS = ("allowed", "bypassed", "fail", "failed", "forged", "large", "pass")
RECORDS = ("empty", "forged_report", "report", "small_report")
NAMES = (*VERDICTS, *RECORDS)
CLUSTERS = {"report": 3000, "large_report": 100000}  # so many processes
LARGEST = ("large_report", "worst")  # 100,000 processes; forged and of the largest possible size

ELEMENTS = set("""html head meta title style script body main noscript pre header footer section
    article h1 h2 h3 h4 p span strong code a i div dl dt dd ul ol li details summary table thead
    tbody tr th td""".split())
POLICY = ("default-src 'none'; base-uri 'none'; form-action 'none'; "
          "script-src 'sha256-[A-Za-z0-9+/]{43}='; style-src 'sha256-[A-Za-z0-9+/]{43}='")
# Each attribute may have these values, and the only addresses are places in the page.
ATTRIBUTES = {
    "lang": "en", "charset": "utf-8", "name": "viewport|color-scheme", "type": "application/json",
    "http-equiv": "Content-Security-Policy", "class": r"[a-z -]+", "id": r"document|coverage|t\d+",
    "href": r"#coverage|#t\d+", "scope": "col|row", "tabindex": "0", "role": "region", "open": "",
    "aria-label": r"[A-Za-z]+( [a-z]+)*( \d+)?", "aria-hidden": "true",
    "content": "width=device-width, initial-scale=1|light dark|" + POLICY,
    "style": r"( ?(--d: ?\d+|((--step|--p): ?|(left|width|height): )[\d.]+%);?)+"}
# These characters are invisible or change the direction of a text.
HIDDEN = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def cluster(processes):
    """Yields the records of two weeks of a cluster: so many processes on 40 hosts."""
    stack = {"line_frame": 1, "python": [
        {"file": "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py",
         "function": "_lazy_init", "line": 314}, {"function": "main"}]}
    lines = ("train.py:88", "select_device.py:31", "evaluate.py:12", "utils/device.py:7", "notebook.py:3")
    number = 12345
    for i in range(processes):
        number = (number * 1664525 + 1013904223) % (1 << 32)
        draw = number >> 16
        kind = ([0] * 55 + [1] * 20 + [2] * 10 + [3 + draw % 3] * 15)[draw % 100]
        record = {"v": 1, "ts": 1795256748 + 86400 * (14 * i // processes + draw % 1000 / 2500),
                  "pid": 20000 + i, "ppid": 1, "uid": 1000 + draw % 7, "host": "gpu%d" % (100 + draw % 40),
                  "api": "cuInit", "asked": "cuda", "decision": "deny", "library": "libc10_cuda.so"}
        if draw % 3:
            record["slurm"] = str(884000 + draw % 60)
        if kind == 3:
            record.update(api="nvmlInit_v2", asked="nvml", library="ctypes/cffi")
        if kind == 4:
            record.update(decision="allow", event="init", result=0)
        if kind == 5:
            record.update(exe="/opt/solver/bin/solve", argv=["solve", "-i", "case%d" % (draw % 12)],
                          library="libMagma.so.2", python_missing="not a Python process")
        else:
            name, line = lines[kind].split(":")
            stack["python"][1].update(file="/home/shared/project/" + name, line=int(line))
            record.update(stack, exe="/usr/bin/python3.11", argv=["python3", name], code=lines[kind],
                          rule="VALIDATE program=/usr/bin/python3*" if kind == 4 else "/etc/cudaguard.conf:2")
        yield json.dumps(record) + "\n"
        if i % 8 == 0:
            yield json.dumps({**record, "ts": record["ts"] + draw % 4000}) + "\n"
    yield "no record\n"


def write(directory, *names, records=b""):
    """Makes the pages of these samples. "input" is the page of these records."""
    for name in set(names) & {*CLUSTERS}:
        write(directory, "input", records="".join(cluster(CLUSTERS[name])).encode())
        for end in (".html", ".txt"):
            os.rename(os.path.join(directory, "input" + end), os.path.join(directory, name + end))
    done = subprocess.run([SAMPLES, directory, *(name for name in names if name not in CLUSTERS)],
                          capture_output=True, input=records, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, b""), done


class Parts:
    """The parts of a page: the document, the text, and the style and script that its policy must
    name."""

    def __init__(self, content):
        self.all = content.decode()
        found = re.fullmatch(r'(?P<head>.*<style>(?P<style>.*)</style>\n</head>\n<body>\n<main>\n)'
                             r'<noscript>\n<pre>(?P<text>[^<]*)</pre>\n</noscript>\n</main>\n'
                             r'<script type="application/json" id="document">(?P<document>[^<]*)'
                             r'</script>\n<script>(?P<script>.*)</script>\n</body>\n</html>\n',
                             self.all, re.S)
        self.head, self.style, self.script = found["head"], found["style"], found["script"]
        self.document, self.text = found["document"], html.unescape(found["text"])
        self.policy = re.search('"Content-Security-Policy" content="([^"]*)"', self.head)[1]

    def loaded(self):
        return json.loads(self.document)


def mistakes(text, html5lib):
    """Returns a page's mistakes as a list of texts."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    document = parser.parse(text)
    found = ["%s at %s" % (code, place) for place, code, _ in parser.errors]
    found += ["U+%04X" % ord(one) for one in set(HIDDEN.findall(text))]
    ids = [one.get("id") for one in document.iter() if one.get("id")]
    found += ["id twice: " + one for one in set(ids) if ids.count(one) > 1]
    headings = []
    for element in document.iter():
        if not isinstance(element.tag, str):  # a comment
            continue
        if element.tag not in ELEMENTS:
            found.append("element %s" % element.tag)
        for name, value in element.attrib.items():
            if not re.fullmatch(ATTRIBUTES.get(name, "(?!)"), value):
                found.append("attribute %s=%s" % (name, value[:60]))
        if element.get("href", "#")[1:] not in ["", *ids]:
            found.append("nowhere: " + element.get("href"))
        if element.tag == "th" and not element.get("scope"):
            found.append("th without a scope")
        if re.fullmatch("h[1-6]", element.tag):
            headings.append(int(element.tag[1]))
    if any(b > a + 1 for a, b in zip([0, *headings], headings)) or headings.count(1) > 1:
        found.append("headings %s" % headings)
    scripts = [one.get("type") for one in document.iter("script")]
    if scripts != ["application/json", None] or len(list(document.iter("style"))) != 1:
        found.append("scripts %s" % scripts)
    style = document.find("head/style")
    if re.search(r"url\(|@import|expression", style.text if style is not None else ""):
        found.append("the style sheet asks for something")
    return found
