# SPDX-License-Identifier: Apache-2.0
"""docs/messages.md: each message of the source has a row there, or is on the pages of troubleshooting
or verify, unless it asks for nothing (ONLY_REPORT) or says itself what to do (REMEDY). Each row has
a source.

The texts are the string literals of SOURCES that look like prose: two words in a row. Adjacent
literals are one, as in C++. The page has "…" for a placeholder (%s) and for whatever the code puts
between two literals, so this test compares the pieces between them. It has limits: it does not see
which pieces belong to one message, nor a literal of a single word. It does not read the command
line's own refusals (options.cpp), which docs/cli.md has. NOT_PRINTED has the names of records'
fields, paths and similar texts.
"""

import glob
import html
import os
import re
import unittest

from support import harness, messages

SOURCES = ("policy/*.cpp", "policy/*.h", "shim/text/*.cpp", "shim/text/*.h",
           "shim/proxy/*.cpp", "shim/rules/*.cpp", "shim/rules/*.h",
           "shim/hook/*.cpp", "shim/record/*.cpp", "shim/state/*.cpp", "shim/proxy_loader/*.cpp",
           "shim/launcher/message.cpp", "shim/launcher/child/child.cpp",
           "shim/launcher/commands/*.cpp",
           "shim/launcher/elf/program.cpp",
           "shim/launcher/fence/*.cpp", "shim/launcher/findings/allow.cpp",
           "shim/launcher/findings/decide.cpp", "shim/launcher/health/*.cpp",
           "shim/launcher/observe/*.cpp",
           "shim/launcher/preload/*.cpp", "shim/launcher/print/*text.cpp",
           "shim/launcher/print/output.cpp", "shim/launcher/system/*.cpp")
# elf_file.cpp is not among these: its texts are the reasons in `"…" is damaged: …`.
# Their messages have rows, too. The test does not search them for messages, because most of their
# text is help. The values that replace wrong ones are in docs/cli.md (test_manual).
WITH_HELP = ("shim/launcher/options.cpp", "shim/launcher/format.cpp", "policy/variables.h",
             "policy/variables.inc")
NOT_PRINTED = {
    "cudaguard-probe process 0",  # a line of the probe's answer
    "cudaguard knows x86-64 and AArch64",  # the compiler prints it
    "GPU; CUDA sees",  # "GPUs" has a row
    "musl libc",  # text that is searched in a file
    "no CPython", "unknown build of CPython",  # parts of a record
    "Moore Threads",  # a maker of GPUs
}
# These texts only say what was done or seen, or are a reason that explains itself. They need no row.
ONLY_REPORT = {
    "--json has all", "more (--json has all", "hosts (--json has all", "standard input",
    # cudaguard run --fence --print
    "# --fence is not among these: only cudaguard run sets it up", "and sets no_new_privs",
    "# sudo and setuid programs inside gain no rights",
    # cudaguard system
    "Programs that were tried with", "already names it, and is unchanged", "would be",
    "already names it, and now has mode 644 and belongs to root (before",
    "would be made", "has the records of programs whose rule in /etc/cudaguard.conf has report=",
    "now names it", "Programs that start from now on load it", "no longer names",
    "Programs that run keep it until they end", "no program could be guarded",
    "Processes are not listed: there is no /proc", "an unknown version",
    "it is a cudaguard command", "it was started before the file named the guard",
    "its ld.so has not loaded it", "its ld.so is still loading libraries", "names no guard",
    "would be made",
    "has the records of programs whose rule in /etc/cudaguard.conf has report=",
    "instead of",
    # rules and lists: each names its place and the mistake
    '*" for a part', "--gpus is not accepted", "CUDAGUARD_CHILDREN is not accepted",
    "CUDAGUARD_RULES is not accepted", "CUDAGUARD_VISIBLE_DEVICES is not accepted",
    "gpus= is not accepted", "has a [ that is not closed, so it matches only a [",
    "is a script, whose interpreter runs; use args= instead",
    "is no full path, so it matches no program", "matches every process", "never decides, because",
    "no rule; FORCE_CPU applies to every process", "there is no directory",
    "this machine has no GPU",
    # the fence
    "--fence: the fence cannot be set up", "--fence=devices: the fence cannot be set up",
    "--fence=require: the fence cannot be set up", "only the guard is active",
    "the fence cannot be set up",
    # report files
    "cut short (the writer was killed, or the disk is full", "is another user's link",
    "is no cudaguard record", "it is a hard link", "left out", "left out that",
    "from before", "or two of these: job,line", "unreadable path",
    # verify: the verdict
    "allowed process", "except in", "but the program", "ended with exit code",
    "was killed by signal", "not denied", "its own policy allowed it",
    "if NVML finds a GPU, CUDA may follow: --deny=init,nvml fails this",
    "sudo and setuid programs got no more rights under the fence (no_new_privs); "
    "--fence=off avoids this",
    # verify, run --observe and report: the processes, their calls and their records
    "lines that asked", "lists of devices", "processes asked", "initialised CUDA",
    "initialised CUDA by", "held a context", "used NVML", "found no GPU",
    "no process was seen to ask for CUDA or NVML", "records are missing in the report", "the report",
    "the program has ended; waiting for the processes that it left running",
    "are no cudaguard records", "no records in", "compressed file",
    "zcat FILE | cudaguard report - reads them",
    "--if-healthy started programs without CUDA on",
    "this process is under a fence (cudaguard run --fence",
    # the reasons of a refusal: strerror's words, and the fence's
    "Disk quota exceeded", "File name too long", "Is a directory", "No space left on device",
    "No such file or directory", "Not a directory", "Address family not supported by protocol",
    "Bad file descriptor", "Broken pipe", "Cannot allocate memory", "Connection reset by peer",
    "Connection timed out", "File too large", "Function not implemented", "Input/output error",
    "Interrupted system call", "No such device", "Operation not supported",
    "Protocol wrong type for socket", "Required key not available", "Stale file handle",
    "Structure needs cleaning", "Text file busy", "Too many open files",
    "Too many open files in system", "Transport endpoint is not connected",
    "Read-only file system", "this kernel has no seccomp filters",
    "another seccomp filter, or a container's profile, forbids it", "the kernel says",
    "this system accepts a seccomp filter and ignores it",
    "Landlock is not among this kernel's security modules (lsm= on its command line",
    "a seccomp filter, or a container's profile, forbids Landlock",
    "this kernel has no Landlock (Linux 5.13", "this kernel's Landlock is too old (Linux 5.19",
    "this process is in too many Landlock domains already",
    # a program that the kernel cannot start
    "is neither an ELF file nor a script", "is a shared library, no program", "the interpreter of",
    "more than 5 scripts, each the interpreter of another", "it is not executable",
    # a program that cannot be guarded
    "it is a static executable and names libcuda.so", "it is a 32-bit program", "it is for",
    "the guard is 64-bit", "it is big-endian", "it is for musl, the guard is for glibc",
    "it is musl's ld.so, the guard is for glibc", "it is setgid",
    "it is setuid", "it is a static executable", "it has file capabilities",
    "its #! line makes env remove LD_PRELOAD",
    # CUDAGUARD_LOG=all
    "CUDA initialised", "CUDA not initialised", "NVML in use", "NVML not in use",
    "context on", "context on device", "code loaded",
    # a call, a caller or a stack that is not known
    "cuInit or the like", "nvmlInit or the like", "its callers", "not available",
    "its process ended before it sent the details", "its process had no memory for the details",
    "the memory of its process could not be read", "/proc is another PID namespace's",
    "only the kernel saw the ioctl",
}
# A message that says what to do needs no row.
REMEDY = re.compile(r"\(accepted|did you mean|needs a value|(?:^|[;.] |, or )(?:accepted|add|give|install|"
                    r"leave|name|remove|run|set|Set|start|Start|to|unpack|without|write)\b")
SHORT = {"may use CUDA"}  # also plain English
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
PROSE = re.compile(r"[A-Za-z#][\w'./-]* [a-zA-Z]{2,}")
BETWEEN = re.compile(r"%[A-Za-z]")


def read(path):
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def literals(source):
    """Returns the texts of a C++ file, without its comments, its raw strings and its includes."""
    source = re.sub(r'R"\((?s:.*?)\)"', "0", source)
    # Strings match first, so that "//" in a string does not begin a comment.
    source = re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|^#include[^\n]*', lambda m: m[1] or "", source,
                    flags=re.MULTILINE)
    source = re.sub(r'"\s*\n?\s*"', "", source)
    return [text.replace('\\"', '"').replace("\\n", "\n") for text in STRING.findall(source)]


def pieces_of(texts):
    """Returns the text between placeholders if it is prose."""
    pieces = set()
    for text in texts:
        for piece in re.split(BETWEEN.pattern + "|…|\n", text):
            # Punctuation at the ends joins pieces.
            piece = piece.removeprefix("cudaguard: ").strip(" ,;:.()\"")
            if PROSE.search(piece) and piece not in NOT_PRINTED:
                pieces.add(" ".join(piece.split()))
    return pieces


def printed(with_help=False):
    texts = []
    for pattern in SOURCES + WITH_HELP:
        files = glob.glob(os.path.join(harness.SOURCE, pattern))
        assert files, pattern
        for file in files:
            if file.endswith("/policy/program.cpp"):  # lists of words, of which none is printed
                continue
            if with_help or os.path.relpath(file, harness.SOURCE) not in WITH_HELP:
                texts += literals(read(file))
    return texts


def parts_of(texts):
    """Returns the clauses between placeholders and punctuation, prose or not."""
    parts = (part for text in texts
             for part in re.split(BETWEEN.pattern + "|…|[\n;:,()]", text))
    return {" ".join(part.split()).strip(" .\"'") for part in parts} - {""}


def is_made_of(part, known):
    """True if the part is one of `known`, or several of them in a row."""
    return part in known or any(part.startswith(start + " ") and
                                is_made_of(part[len(start) + 1:], known) for start in known)


def pages():
    """Returns the pages that explain messages as one line."""
    text = "".join(read(os.path.join(harness.SOURCE, "docs", name + ".md"))
                   for name in ("messages", "troubleshooting", "verify"))
    return " ".join(text.replace("\\|", "|").split())


def rows():
    """Returns the quotations in the first column of each table."""
    text = read(os.path.join(harness.SOURCE, "docs", "messages.md")).replace("\\|", "\0")
    cells = re.findall(r"(?m)^\| (`.*?`)(?: \||$)", text)
    return [quote.replace("\0", "|") for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]


def examples(text):
    """Returns the guard's messages in a page or a picture. A wrapped one goes on in indented
    lines."""
    rows = re.findall(r"<text[^>]*>(.*)</text>", text)
    if rows:
        text = html.unescape("\n".join(rows))
    text = re.sub(r"\n +(?=\S)", " ", text)
    return re.findall(r"^cudaguard\[\d+\]: .*$", text, re.MULTILINE)


class Examples(unittest.TestCase):
    """Messages that the pages and README's picture show are as in tests/golden/messages.txt."""

    def test_examples_are_messages_of_the_guard(self):
        shown = {}
        for pattern in ("README.md", "docs/*.md", "docs/*/*.md", "docs/images/*.svg"):
            for path in glob.glob(os.path.join(harness.SOURCE, pattern)):
                shown[os.path.relpath(path, harness.SOURCE)] = examples(read(path))
        for path in ("docs/messages.md", "docs/devices.md"):
            self.assertTrue(shown[path], path)
        self.assertEqual([(path, line) for path, lines in shown.items() for line in lines
                          if not messages.find(line, *messages.PATTERNS)], [],
                         "write the words of tests/golden/messages.txt into these pages")

    def test_control_changed_example_is_found(self):
        page = "text\n\ncudaguard[7]: %s\n100\n" % messages.text(
            "no_cuda", cause="a", asked_by="b", remedy="c").replace("; to", ";\n  to")
        line, = examples(page)
        self.assertTrue(messages.find(line, *messages.PATTERNS), line)
        line, = examples(page.replace("asked", "called"))
        self.assertEqual(messages.find(line, *messages.PATTERNS), [])


class Tests(unittest.TestCase):
    """Only tests/golden/messages.txt and tests/unit have the words of the guard's messages."""

    def test_no_other_test_has_the_words(self):
        pieces = {piece.strip(" ;:,.()") for name, pattern in messages.PATTERNS.items()
                  for piece in re.split(r"\{\w+\}|[][]", pattern)
                  if len(piece.split()) >= (3 if name in messages.DENIED else 6)}
        self.assertGreater(len(pieces), 20)
        found = []
        for path in glob.glob(os.path.join(harness.SOURCE, "tests", "**", "*.py"), recursive=True):
            source = re.sub(r'"\s*\n\s*[rf]?"', "", read(path))  # adjacent literals are one
            found += [(path, piece) for piece in sorted(pieces - SHORT) if piece in source]
        self.assertEqual(found, [], "use the message's name instead (tests/support/messages.py)")


class Messages(unittest.TestCase):
    def test_each_message_has_a_row(self):
        pieces = pieces_of(printed())
        self.assertGreater(len(pieces), 150)
        text = pages()
        self.assertEqual(ONLY_REPORT - pieces, set(), "no source has these")
        self.assertEqual([piece for piece in sorted(pieces - ONLY_REPORT)
                          if piece not in text and not REMEDY.search(piece)], [],
                         "write these words of the source into a row of docs/messages.md, or, if "
                         "they ask for nothing, into ONLY_REPORT")

    def test_each_row_has_a_source(self):
        quotes = rows()
        self.assertGreater(len(quotes), 150)
        known = parts_of(printed(with_help=True))
        parts = [part for part in parts_of(quotes) if PROSE.search(part)]
        self.assertEqual([part for part in parts if not is_made_of(part, known)], [],
                         "docs/messages.md has these words, but no source has them")

    def test_control_missing_row_and_source_are_found(self):
        """A message that the page lacks, and a row without a source, are found."""
        made = literals('say("it is purple, and " + name +\n    " has no " "colour"); // "not this"\n')
        self.assertEqual(made, ["it is purple, and ", " has no colour"])
        self.assertEqual(pieces_of(made), {"it is purple, and", "has no colour"})
        self.assertEqual(pieces_of(["%s: device %u of … is gone"]), {"is gone"})
        self.assertNotIn("it is purple, and", pages())
        self.assertIsNone(REMEDY.search("it is purple, and"))
        self.assertTrue(REMEDY.search("is purple (accepted: green"))
        self.assertTrue(is_made_of("it is purple and red", {"it is", "purple and", "red"}))
        self.assertFalse(is_made_of("it is purple and red", {"it is", "purple", "red"}))
