# SPDX-License-Identifier: Apache-2.0
"""Runs NVIDIA's own driver under the fence in a private /dev, and reads from strace's log what it
requested and what the kernel answered."""

import os
import re
import shutil

from support import fence, harness, launcher

IOCTL = re.compile(r"ioctl\(0x\w+, (0x\w+), .*\) += (?:-1 (\w+)|\d+)")
PROGRAM = re.compile(r'execve\("([^"]*)".* = 0$')
# Preloaded, this makes a program see device files, so that NVIDIA's libraries get past their first
# checks.
NODES = "LD_PRELOAD=" + fence.program("nodes.so")


def is_nvidia(request):
    """Follows the definition in policy/nvidia_requests.h."""
    number = request & 0xFF
    return request == 0x30000001 or (
        request >> 8 & 0xFF == ord("F") and request >> 30 not in (1, 2)
        and (0x27 <= number <= 0x5F or 200 <= number <= 218))


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.need_real_driver()

    def traced(self, *words, **environment):
        """Returns the output and the requests (program, request, error), without the launcher's
        own."""
        log = self.path("trace")
        os.mkdir(log)
        command = [*harness.sandbox("real"), "strace", "-ff", "-qq", "-o", os.path.join(log, "of"),
                   "-e", "trace=ioctl,execve", "-e", "raw=ioctl", "-e", "signal=none", "--"]
        done = self.unguarded(*command, *words,
                              env=launcher.environment(HOME=self.directory, **environment))
        asked = []
        for name in sorted(os.listdir(log)):
            with open(os.path.join(log, name), encoding="utf-8") as lines:
                program = ""
                for line in lines:
                    if match := PROGRAM.match(line):
                        program = os.path.basename(match[1])
                    elif (match := IOCTL.match(line)) and program != "cudaguard":
                        asked.append((program, int(match[1], 16), match[2]))
        shutil.rmtree(log)
        return done, asked

    def without_guard(self, *words, fenced):
        """Runs the program after `env -i`, which removes the guard."""
        how = "auto" if fenced else "off"
        path = "PATH=" + os.environ["PATH"]
        return self.traced(launcher.LAUNCHER, "run", "--fence=" + how, "--", "env", "-i", path,
                           "HOME=" + self.directory, *words)

    def same_but_refused(self, *words, expected):
        """Fails unless the program makes the same requests and ends alike with and without the
        fence. Only the answers may differ."""
        unguarded, asked = self.without_guard(*words, fenced=False)
        fenced, refused = self.without_guard(*words, fenced=True)
        self.assertEqual((fenced.returncode, fenced.stdout),
                         (unguarded.returncode, unguarded.stdout), fenced)
        requests, answers = requests_of(asked)
        self.assertLessEqual(set(expected), set(requests))
        self.assertLessEqual(answers, {"ENOTTY", "EBADF"})
        self.assertEqual(requests_of(refused), (requests, {"ENODEV"}))
        return fenced


def requests_of(asked):
    """Returns NVIDIA's requests and their answers."""
    ours = [(request, error) for _, request, error in asked if is_nvidia(request)]
    return sorted(request for request, _ in ours), {error for _, error in ours}
