# SPDX-License-Identifier: Apache-2.0
"""The readers of files, sanitized, with broken files."""

import json
import os
import random
import subprocess

import pytest

from support import harness, launcher, page

pytestmark = pytest.mark.all

ELF_FILES = [harness.GUARD, harness.program("linked_cuda")]
if harness.FULL:
    ELF_FILES.append(launcher.LAUNCHER)  # It is large, and 9,000 pieces of it are read.


def test_broken_elf_file_is_read_without_a_fault():
    program = os.path.join(harness.BUILD, "tests", "launcher", "elf_fuzz")
    done = subprocess.run([program, str(20000 if harness.FULL else 250), *ELF_FILES],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


RECORDS = [
    r'''{"v":1,"ts":1795256748.494901,"pid":7,"event":"native",'''
    r'''"native":["/opt/libcudart.so.12+0x34b5a","/opt/libc10_cuda.so+0x1a2b"]}''',
    r'''{"v":1,"ts":1795256748.494901,"pid":7,"ppid":6,"tid":7,"uid":1000,"host":"node7",'''
    r'''"exe":"/usr/bin/python3.11","argv":["python3","ppo.py"],"cgroup":"/system.slice/x.service",'''
    r'''"slurm":"1234","api":"cuInit","decision":"deny","caller":"/opt/libcudart.so.12+0x34b5a",'''
    r'''"library":"libc10_cuda.so","code":"ppo.py:159",'''
    r'''"python":[{"file":"/home/u/ppo.py","line":159,"function":"<module>"}]}''',
    r'''{"v":1,"ts":1795256748.1,"pid":8,"ppid":6,"tid":8,"uid":0,"host":"caf\u00e9\u202e",'''
    r'''"exe":"/a","argv":["a\u001b[31m","\n"],"cgroup":"/kubepods/pod3f2a-11/x","api":"dlopen",'''
    r'''"object":"libnvidia-opencl.so.1","decision":"deny","caller":"?","library":"generated code",'''
    r'''"python_missing":"none","cut":["exe"]}''',
    r'''{"v":1,"ts":3,"pid":9,"ppid":6,"tid":9,"uid":0,"host":"h","exe":"/a","argv":[],"cgroup":"/",'''
    r'''"event":"start","policy":"FORCE_CPU"}''',
    r'''{"v":1,"ts":4,"pid":9,"exe":"/a","argv":["a"],"api":"cuInit","object":"GPU-1,GPU-2",'''
    r'''"event":"init","decision":"allow","result":0,"caller":"/x+0x1"}''',
    r'''{"v":1,"ts":5,"pid":9,"exe":"/a","argv":["a"],"api":"cuCtxCreate_v2","event":"context",'''
    r'''"decision":"allow","device":3,"caller":"/x+0x1"}''', "{}"]
PIECES = [b"\n", b'{"v":1,', b'"', b"\\", rb"\u0000", rb"\ud800", b"\xff", b"\x1b[2J", b"[" * 18, b"1e999",
          b"-", b"9" * 20, b',"api":"', b"}", b"{", b"\0"]


def forged(dice):
    """A few records: bytes replaced, pieces cut out, put in, doubled."""
    text = bytearray()
    for _ in range(dice.randint(1, 6)):
        text += dice.choice(RECORDS).encode() + dice.choice([b"", *[b"\n"] * 4])
    for _ in range(dice.randrange(8)):
        at = dice.randrange(len(text) or 1)
        kind = dice.randrange(4)
        if kind == 0:
            text[at:at + 1] = [dice.randrange(256)]
        else:
            text[at:at + (dice.randint(1, 200) if kind == 1 else 0)] = [
                b"", dice.choice(PIECES), text[at:at + dice.randrange(300)]][kind - 1]
    return bytes(text)


def test_forged_records_are_read_without_a_fault(tmp_path):
    """Each line is counted once, and the page and the text have nothing that is not printable."""
    dice = random.Random(1)
    counts = []
    for _ in range(20000 if harness.FULL else 300):
        records = b"\n".join(forged(dice) for _ in range(5))
        page.write(str(tmp_path), "input", records=records)
        parts = page.Parts((tmp_path / "input.html").read_bytes())
        text = (tmp_path / "input.txt").read_text(encoding="utf-8")
        assert parts.document.isascii() and not page.HIDDEN.search(text + parts.all), records
        document = parts.loaded()
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()  # no lone surrogates
        numbers = [number for call in document["calls"] for number in call["processes"]]
        assert all(0 <= number < len(document["processes"]) for number in numbers), records
        counts.append([*document["records"].values()])
    assert all(map(any, zip(*counts))), counts
