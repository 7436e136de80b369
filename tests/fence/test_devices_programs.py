# SPDX-License-Identifier: Apache-2.0
"""Ordinary programs end and print the same under --fence=devices as without cudaguard. They use
terminals, sockets, locks, links, traces, shared memory, sandboxes and graphics without a GPU. What
fails is in docs/fence.md (test_devices.py)."""

import os
import shutil

import pytest

from support import fence, fixtures, launcher

# The program that must be installed -> a script. Each starts in an empty directory.
PROGRAMS = {
    "bash": "bash -c 'coproc cat; echo text >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x'",
    "chromium-headless-shell":
        "echo '<p>text</p>' >a.html && chromium-headless-shell --no-sandbox --disable-gpu "
        "--user-data-dir=$PWD/p --dump-dom file://$PWD/a.html 2>/dev/null",
    "chroot": "chroot / sh -c 'echo inside; ls -d /dev/null'",
    "cp": "echo a >a && cp -a a b && cp --reflink=auto b c && cat c",
    "flock": "flock lock echo held",
    "gcc": "echo 'int main(){return 5;}' >a.c && gcc -pipe a.c -o a && ./a; echo $?",
    "gdb": "gdb -nx -batch -ex 'break main' -ex run -ex 'print 6 * 7' /bin/true 2>/dev/null | tail -1",
    "git": "git init -q r && cd r && echo a >a && git add a && git -c user.name=a -c user.email=a@b "
           "-c commit.gpgsign=false commit -q -m one && git mv a b && git stash -q && git gc -q && "
           "git clone -q . ../s && ls ../s && git worktree add -q ../w && ls ../w",
    "gpg": "export GNUPGHOME=$PWD && chmod 700 . && echo text >a && "
           "gpg -q --batch --passphrase x --pinentry-mode loopback -c a && "
           "gpg -q --batch --passphrase x --pinentry-mode loopback -d a.gpg; gpgconf --kill all",
    "ln": "echo a >a && mkdir d && ln a d/b && ln -s d/b c && cat c",
    "lsof": "exec 9>open && lsof -a -p $$ -d 9 -F n | grep -c open",
    "mkfifo": "mkfifo p && (echo text >p &) && cat p",
    "mv": "mkdir a b && echo 1 >a/x && mv a/x b/y && mv b a/ && cat a/b/y",
    "node": "node -e 'const fs=require(\"fs\");fs.writeFileSync(\"a\",\"t\");console.log("
            "fs.readFileSync(\"a\",\"utf8\"),require(\"child_process\").execSync(\"echo 3\")+\"\")'",
    "python3": "python3 -c 'import multiprocessing as m, os, pty, subprocess, tempfile\n"
               "with m.Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
               "s = m.shared_memory.SharedMemory(create=True, size=9) if hasattr(m, "
               "\"shared_memory\") else None\nprint(os.ttyname(pty.openpty()[1])[:9])\n"
               "if s: s.close(); s.unlink()'",
    "rsync": "mkdir a && echo 1 >a/b && rsync -a a/ c/ && cat c/b",
    "script": "script -qec 'tty | cut -c1-9' /dev/null | tr -d '\\r'",
    "ssh": "ssh -o BatchMode=yes -o ConnectTimeout=5 -p 1 127.0.0.1 2>&1 | grep -o refused",
    "strace": "strace -f -e trace=execve -o log true && grep -c execve log",
    "tar": "mkdir a && echo 1 >a/b && ln -s b a/c && tar -cf - a | tar -C /tmp -tvf - | wc -l",
    "tmux": "export TMUX_TMPDIR=$PWD && tmux -f /dev/null new-session -d 'tty | cut -c1-9 >out; "
            "tmux wait-for -S done; sleep 60' && tmux wait-for done && cat out && "
            "tmux kill-server",
    "valgrind": "valgrind -q true; echo $?",
    # lavapipe
    "vulkaninfo": "export VK_DRIVER_FILES=$(ls /usr/share/vulkan/icd.d/lvp_icd.*.json)\n"
                  "VK_ICD_FILENAMES=$VK_DRIVER_FILES vulkaninfo --summary 2>/dev/null | grep Name",
    "Xvfb": "Xvfb :97 -screen 0 64x64x8 -displayfd 1 & read -r n; kill $!; echo started",
}
FENCED = [launcher.LAUNCHER, "run", "--log=off", "--fence=devices", "--"]
make_case = fixtures.lent("case", fence.Case)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_behaves_as_without_a_fence_of_devices(case, program):
    case.need_fence_of_devices()
    if not shutil.which(program):
        pytest.skip(program + " is not installed")
    outcomes = []
    for start in ([], FENCED):
        place = case.path(str(len(start)))
        os.mkdir(place)
        done = case.unguarded(*start, "sh", "-c", PROGRAMS[program], cwd=place)
        outcomes.append((done.returncode, done.stdout.replace(place, "")))
    control, fenced = outcomes
    assert fenced == control
    if control[0] != 0:
        pytest.skip("it does not work here without cudaguard either")
    assert control[1] != ""
