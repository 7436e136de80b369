# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md: what it quotes of us and of ld.so is what is said today."""

import os
import re
import subprocess

from support import box, guest, harness

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(harness.LIB)), "bin", "cudaguard")
STATIC = harness.program("static_door")
# Not had in one run here: tests of their own have these.
ELSEWHERE = {"wrong ELF class", "from /etc/ld.so.preload", "cannot be enforced", "the fence cannot be set up",
             "may use CUDA", "Read-only file system"}


def headings():
    with open(os.path.join(harness.SOURCE, "docs", "troubleshooting.md"), encoding="utf-8") as page:
        quoted = re.findall(r"(?m)^### .*?`((?:ERROR: ld|cudaguard).*?)`", page.read())
    return [text for text in quoted if not text.startswith("cudaguard run")]


def pattern(text):
    """A regular expression: the process id and what stands for something else may be anything."""
    text = re.escape(text).replace("…", ".*").replace(r"\[PID\]", r"\[\d+\]")
    return re.sub(r"libcudaguard\\?\.so(?=')", r"libcudaguard\\S*", text)


class Messages(guest.Case):
    def said(self):
        """What is printed where each of these is the case."""
        texts = []

        def note(result):
            texts.append(result.err)

        def refuse(*words):
            note_text = subprocess.run([LAUNCHER, "run", *words], capture_output=True, text=True,
                                       stdin=subprocess.DEVNULL, check=False).stderr
            texts.append(note_text)

        note(self.steps("touch", guard=False, env={"LD_PRELOAD": "libcudaguard-none.so"}))
        guard = harness.copy_install(self.path("lib"))
        os.remove(self.path("lib", "cudaguard", "libcuda.so.1"))
        note(self.steps("touch", guard=False, env={"LD_PRELOAD": guard}))
        note(self.steps("touch", env={"CUDAGUARD_POLICY": "nonsense"}))
        note(harness.run([box.program("open"), "cu.init"], world="none",
                         env=box.environment(allow="0,9")))
        for sick in ("100", "999"):
            note(harness.run([LAUNCHER, "run", "--gpus", "0", "--", box.program("open"), "cu.init"],
                             world="none", guard=False, env=box.environment(CG_SICK=sick)))
        refuse("--", STATIC, "lib=libcuda.so.1")
        refuse("--fence", "--", STATIC, "lib=libcuda.so.1")
        refuse("--", self.compiled("plain", "int main(void) { return 0; }\n", "-static"))
        table = self.compiled("libtable.so", "int (*cuInit)(unsigned); int use(void) "
                              "{ return cuInit != 0; }\n", "-shared", "-fPIC")
        refuse("--", self.compiled("user", "int use(void); int main(void) { return use(); }\n",
                                   table))
        return "\n".join(texts)

    def compiled(self, name, text, *options):
        with open(self.path(name + ".c"), "w", encoding="utf-8") as stream:
            stream.write(text)
        subprocess.run(["gcc", self.path(name + ".c"), "-o", self.path(name), *options], check=True)
        return self.path(name)

    def test_messages(self):
        self.need("gcc")
        said = self.said()
        quoted = headings()
        self.assertGreater(len(quoted), 8)
        for text in quoted:
            if not any(words in text for words in ELSEWHERE):
                self.assertRegex(said, pattern(text), text)
        self.assertNotRegex(said, pattern("cudaguard[PID]: something else"))

    def test_elsewhere(self):
        """These words are in the source as well, but for ld.so's own."""
        sources = ""
        for folder in ("policy", "shim"):
            for where, _, names in os.walk(os.path.join(harness.SOURCE, folder)):
                for name in names:
                    if name.endswith(".cpp"):
                        with open(os.path.join(where, name), encoding="utf-8") as stream:
                            sources += stream.read()
        for words in ("cannot be enforced", "--fence: the fence cannot be set up: ",
                      "; only the guard is active", ", only process %u may use CUDA",
                      "run it without --fence"):
            self.assertIn(words, sources)
