# SPDX-License-Identifier: Apache-2.0
"""Ordinary programs end and print the same under --fence=devices as without cudaguard. What does
not is in docs/fence.md (test_devices.py)."""

import os
import shutil

import pytest

from support import fence, fixtures, launcher

# The program that must be installed -> a script. Each starts in an empty directory.
PROGRAMS = {
    "apt-get": "apt-get --version | head -1; apt-config dump APT::Architecture",
    "bash": "bash -c 'coproc cat; echo text >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x'",
    "busybox": "busybox sh -c 'echo a | busybox tr a b'",
    "cargo": "cargo new --vcs none --quiet one && cat one/src/main.rs",
    "chromium-headless-shell":
        "echo '<p>text</p>' >a.html && chromium-headless-shell --no-sandbox --disable-gpu "
        "--user-data-dir=$PWD/p --dump-dom file://$PWD/a.html 2>/dev/null",
    "chroot": "chroot / sh -c 'echo inside; ls -d /dev/null'",
    "clang": "echo 'int main(){return 7;}' >a.c && clang a.c -o a && ./a; echo $?",
    "cmake": "printf 'cmake_minimum_required(VERSION 3.20)\\nproject(a NONE)\\n' >CMakeLists.txt\n"
             "cmake -S . -B b >/dev/null && ls b/CMakeCache.txt",
    "cp": "echo a >a && cp -a a b && cp --reflink=auto b c && cat c",
    "curl": "echo text >a && curl -s file://$PWD/a",
    "dd": "dd if=/dev/zero bs=1k count=3 2>/dev/null | wc -c",
    "ffmpeg": "ffmpeg -v error -f lavfi -i testsrc=d=0.1:s=64x64 -f md5 -",
    "find": "mkdir -p a/b && touch a/b/c && find . | sort",
    "flock": "flock lock echo held",
    "g++": "echo 'int main(){return 6;}' >a.cpp && g++ a.cpp -o a && ./a; echo $?",
    "gcc": "echo 'int main(){return 5;}' >a.c && gcc -pipe a.c -o a && ./a; echo $?",
    "gdb": "gdb -nx -batch -ex 'break main' -ex run -ex 'print 6 * 7' /bin/true 2>/dev/null | tail -1",
    "git": "git init -q r && cd r && echo a >a && git add a && git -c user.name=a -c user.email=a@b "
           "-c commit.gpgsign=false commit -q -m one && git mv a b && git stash -q && git gc -q && "
           "git clone -q . ../s && ls ../s && git worktree add -q ../w && ls ../w",
    "go": "export GOCACHE=$PWD/c GO111MODULE=off\n"
          "printf 'package main\\nfunc main(){println(3)}\\n' >a.go && go run a.go 2>&1",
    "gpg": "export GNUPGHOME=$PWD && chmod 700 . && echo text >a && "
           "gpg -q --batch --passphrase x --pinentry-mode loopback -c a && "
           "gpg -q --batch --passphrase x --pinentry-mode loopback -d a.gpg; gpgconf --kill all",
    "install": "echo a >a && install -D -m 640 a b/c && stat -c %a b/c",
    "ip": "ip -o link show lo | cut -d: -f2",
    "java": "java -version 2>&1 | head -1",
    "ld": "echo 'void _start(){for(;;);}' >a.c && gcc -c a.c && ld a.o -o a && file -b a | cut -c1-3",
    "ln": "echo a >a && mkdir d && ln a d/b && ln -s d/b c && cat c",
    "lsof": "exec 9>open && lsof -a -p $$ -d 9 -F n | grep -c open",
    "make": "printf 'all: a b\\na b:\\n\\t@echo $@ >$@\\n' >Makefile && make -s -j2 && cat a b",
    "mkfifo": "mkfifo p && (echo text >p &) && cat p",
    "mktemp": "test -f \"$(mktemp)\" && test -d \"$(mktemp -d)\"; echo $?",
    "mv": "mkdir a b && echo 1 >a/x && mv a/x b/y && mv b a/ && cat a/b/y",
    "ninja": "printf 'rule r\\n command = echo a >$out\\nbuild o: r\\n' >build.ninja && ninja --quiet && "
             "cat o",
    "node": "node -e 'const fs=require(\"fs\");fs.writeFileSync(\"a\",\"t\");console.log("
            "fs.readFileSync(\"a\",\"utf8\"),require(\"child_process\").execSync(\"echo 3\")+\"\")'",
    "openssl": "echo text | openssl dgst -sha256; openssl rand 8 | wc -c",
    "patch": "echo a >a; printf -- '--- a\\n+++ a\\n@@ -1 +1 @@\\n-a\\n+b\\n' | patch -s a && cat a",
    "perl": "perl -e 'open F,\">\",\"a\"; print F 3; close F; rename \"a\",\"b\"; print -s \"b\"'",
    "pip": "pip --version | cut -d' ' -f1; pip download --no-index nothing 2>&1 | tail -1",
    "ps": "ps -o comm= -p $$",
    "pytest": "echo 'def test_a(tmp_path): (tmp_path / \"a\").write_text(\"t\")' >test_a.py && "
              "pytest -q -p no:cacheprovider 2>&1 | grep -o '1 passed'",
    "python3": "python3 -c 'import multiprocessing as m, os, pty, subprocess, tempfile\n"
               "with m.Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
               "s = m.shared_memory.SharedMemory(create=True, size=9) if hasattr(m, "
               "\"shared_memory\") else None\nprint(os.ttyname(pty.openpty()[1])[:9])\n"
               "if s: s.close(); s.unlink()'",
    "rsync": "mkdir a && echo 1 >a/b && rsync -a a/ c/ && cat c/b",
    "ruby": "ruby -e 'File.write(\"a\", \"t\"); puts File.read(\"a\")'",
    "rustc": "echo 'fn main(){println!(\"4\")}' >a.rs && rustc a.rs && ./a",
    "script": "script -qec 'tty | cut -c1-9' /dev/null | tr -d '\\r'",
    "sed": "echo a >a && sed -i s/a/b/ a && cat a",
    "setpriv": "setpriv --no-new-privs id -u",
    "sqlite3": "sqlite3 a.db 'create table t(x); insert into t values(7); select x from t'",
    "ssh-keygen": "ssh-keygen -q -t ed25519 -N '' -f key && ls",
    "ssh": "ssh -o BatchMode=yes -o ConnectTimeout=5 -p 1 127.0.0.1 2>&1 | grep -o refused",
    "strace": "strace -f -e trace=execve -o log true && grep -c execve log",
    "stty": "script -qec 'stty size' /dev/null >/dev/null; echo $?",
    "tail": "seq 30 >a && tail -n 2 a",
    "tar": "mkdir a && echo 1 >a/b && ln -s b a/c && tar -cf - a | tar -C /tmp -tvf - | wc -l",
    "tee": "echo a | tee b >/dev/stderr 2>/dev/null; cat b; echo c >/dev/stdout",
    "tmux": "export TMUX_TMPDIR=$PWD && tmux -f /dev/null new-session -d 'tty | cut -c1-9 >out; "
            "tmux wait-for -S done; sleep 60' && tmux wait-for done && cat out && "
            "tmux kill-server",
    "valgrind": "valgrind -q true; echo $?",
    "vim": "vim -u NONE -es -c 'call setline(1, \"t\")' -c 'wq! a' </dev/null; cat a",
    "wget": "wget -q -O- http://127.0.0.1:1/; echo $?",
    # lavapipe
    "vulkaninfo": "export VK_DRIVER_FILES=$(ls /usr/share/vulkan/icd.d/lvp_icd.*.json)\n"
                  "VK_ICD_FILENAMES=$VK_DRIVER_FILES vulkaninfo --summary 2>/dev/null | grep Name",
    "Xvfb": "Xvfb :97 -screen 0 64x64x8 -displayfd 1 & read -r n; kill $!; echo started",
}
MESA = "/usr/share/glvnd/egl_vendor.d/50_mesa.json"
# Mesa's software renderer, which opens no node.
EGL = """
import ctypes
egl = ctypes.CDLL("libEGL.so.1")
egl.eglGetPlatformDisplay.restype = egl.eglQueryString.restype = ctypes.c_void_p
display = ctypes.c_void_p(egl.eglGetPlatformDisplay(0x31DD, None, None))
print(egl.eglInitialize(display, None, None))
print(ctypes.string_at(egl.eglQueryString(display, 0x3053)))
"""


class Case(fence.Case):
    def setUp(self):
        super().setUp()
        self.need_fence_of_devices()

    def outcome(self, start, script, name):
        place = self.path(name)
        os.mkdir(place)
        done = self.unguarded(*start, "sh", "-c", script, cwd=place)
        return done.returncode, done.stdout.replace(place, "")

    def same(self, script):
        fenced = [launcher.LAUNCHER, "run", "--log=off", "--fence=devices", "--"]
        control = self.outcome([], script, "without")
        self.assertEqual(self.outcome(fenced, script, "with"), control)
        if control[0] != 0:
            self.skipTest("it does not work here without cudaguard either")
        self.assertNotEqual(control[1], "", control)


make_case = fixtures.lent("case", Case)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_behaves_as_without_a_fence_of_devices(case, program):
    if not shutil.which(program):
        pytest.skip(program + " is not installed")
    case.same(PROGRAMS[program])


@pytest.mark.full
def test_mesas_software_renderer_behaves_as_without_a_fence_of_devices(case):
    case.make("egl.py", EGL)
    if not os.path.exists(MESA):
        pytest.skip("Mesa's EGL is not installed")
    # NVIDIA's EGL must not be loaded, because it makes nodes.
    case.same("export LIBGL_ALWAYS_SOFTWARE=1 __EGL_VENDOR_LIBRARY_FILENAMES=%s; python3 %s 2>/dev/null"
              % (MESA, case.path("egl.py")))
