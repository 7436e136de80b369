# SPDX-License-Identifier: Apache-2.0
"""Root runs the commands of docs/integrations/whole-machine.md in a mount namespace with a copy of
/etc. Other tests show what a damaged file does to every program, and the remedy."""

import os
import re
import shutil
import subprocess
import tempfile

import pytest

from support import fixtures, harness, messages, places

GUARD = "/usr/local/lib/libcudaguard.so"
FILE = "/etc/ld.so.preload"
LINE = ("ERROR: ld.so: object '%s' from /etc/ld.so.preload cannot be preloaded (%%s): ignored." %
        GUARD)
NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups --"
# Sets up the whole machine with a driver that ld.so finds without a variable.
SETUP = """set -eu
directory=$1
mount --bind "$directory/etc" /etc
mount --bind "$directory/tree" /usr/local
%s
export CG_FAKE_LOG="$directory/fake.log" PATH=/usr/local/bin:/usr/bin:/bin
cd "$directory"
""" % "\n".join('if [ -d "%s" ]; then mount -t tmpfs none "%s"; fi' % (name, name)
                for name in harness.REAL_DRIVER_DIRS)
ASK = "env -i /usr/bin/python3 -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'\n"


@pytest.fixture(scope="module", autouse=True)
def copy_etc():
    """Copies the machine's /etc with an ld.so.cache that has the fake driver. Every user can read the
    copy, which may be below /root."""
    with tempfile.TemporaryDirectory(prefix="cg-") as Case.shared:
        if os.geteuid() == 0:
            etc, config = os.path.join(Case.shared, "etc"), os.path.join(Case.shared, "ld.so.conf")
            driver = os.path.join(Case.shared, "driver")
            shutil.copytree(harness.FAKE_DRIVER, driver, symlinks=True)
            os.chmod(Case.shared, 0o755)
            shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True,
                            ignore=shutil.ignore_patterns("ld.so.preload"))
            with open("/etc/ld.so.conf", encoding="utf-8") as old, \
                    open(config, "w", encoding="utf-8") as new:
                new.write(driver + "\n" + old.read())
            subprocess.run(["/sbin/ldconfig", "-X", "-C", etc + "/ld.so.cache", "-f", config],
                           check=True, timeout=120, stderr=subprocess.DEVNULL)
        yield


class Case(places.Case):
    shared = None  # the directory of copy_etc

    def setUp(self):
        super().setUp()
        self.need("unshare", "setpriv")
        self.need_root("have a machine of its own")
        os.rename(os.path.join(self.shared, "etc"), self.path("etc"))
        self.addCleanup(os.rename, self.path("etc"), os.path.join(self.shared, "etc"))
        places.usr_local(self.path("tree"))
        os.mkdir(self.path("home"))

    def run_there(self, script):
        """Runs the script as root in such a machine; returns its output and its errors."""
        before = os.path.exists(FILE)
        for name in os.listdir(self.path("etc")):
            if name.startswith("ld.so.preload"):
                os.remove(self.path("etc", name))
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "bash", "-c",
                               SETUP + script, "bash", self.directory], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(os.path.exists(FILE), before, "the machine was changed")
        return done

    def asked(self, script):
        """Returns cuInit's answers and the lines of `show` in the output."""
        done = self.run_there(script)
        self.assertEqual(done.returncode, 0, done)
        return re.findall(r"(?m)^(\d+|=.*)$", done.stdout), done

    def steps(self):
        """Returns the blocks (check this machine, a private view, for all, taken back)."""
        blocks = places.blocks("sh", "whole-machine")
        self.assertEqual(len(blocks), 4)
        return blocks


class Steps(Case):
    def test_steps_guard_each_user_and_are_undone(self):
        check, private, everybody, back = self.steps()
        asked, done = self.asked(check + ASK + private + ASK + everybody + NOBODY + " " + ASK + back +
                                 ASK + "[ ! -e %s ]\n" % FILE)
        # The answers are those before, in the private view, outside of it, for all users, for
        # another user, and after the removal.
        self.assertEqual(asked, ["0", "100", "0", "100", "100", "0"], done)
        self.assertEqual(len(messages.find(done.stderr, "no_cuda")), 3, done)
        self.assertNotIn("ERROR", done.stderr)

    def test_an_interactive_shell_has_the_private_view(self):
        (shell,) = places.blocks("text", "whole-machine", "Step 2: guard one shell")
        ask = ASK.replace("env -i ", "")
        asked, done = self.asked(shell.rstrip() + " <<'END'\n" + ask + "END\n" + ask)
        self.assertEqual(asked, ["100", "0"], done)

    def test_file_must_be_readable_for_every_user(self):
        """Under a umask of 077, every user can read the file. With mode 600, another user is not
        guarded."""
        _, _, everybody, _ = self.steps()
        asked, done = self.asked("umask 077\n" + everybody + NOBODY + " " + ASK)
        self.assertEqual(asked, ["100", "100"], done)
        asked, done = self.asked(everybody + "chmod 600 %s\n" % FILE + NOBODY + " " + ASK)
        self.assertEqual(asked, ["100", "0"], done)
        self.assertNotIn("ERROR", done.stderr)

    def test_variable_and_launcher_lift_the_policy(self):
        _, _, everybody, _ = self.steps()
        off = ASK.replace("env -i", "env -i CUDAGUARD_POLICY=OFF")
        asked, done = self.asked(everybody + off + ASK.replace(
            "env -i", "cudaguard run --policy OFF --"))
        self.assertEqual(asked, ["100", "0", "0"], done)

    def test_profile_guards_one_users_login_shell(self):
        (profile,) = places.blocks("text", "whole-machine", "Step 3: guard one user")
        self.make("home/.profile", profile, 0o644)
        login = 'env -i HOME="$directory/home" sh %%s \'exec %s\'\n' % (
            "/usr/bin/python3 \"$HOME/ask.py\"")
        self.make("home/ask.py", ASK.split("'")[1], 0o644)
        asked, done = self.asked(login % "-c" + login % "-lc")
        self.assertEqual(asked, ["0", "100"], done)
        (report,) = [name for name in os.listdir(self.path("home")) if name.startswith("cuda-")]
        self.assertEqual(harness.records(self.path("home", report))[-1]["api"], "cuInit")
        done = self.start("report", self.path("home", report))
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("ask.py:1", done.stdout)


KLIBC = "/usr/lib/klibc/bin"
DISK = """mkdir disk
mount -t tmpfs none disk
mkdir disk/etc
echo %s >disk/etc/ld.so.preload
mount -o remount,ro disk
""" % GUARD


class Initramfs(Case):
    """The commands for a machine that does not start, run with the mount command of an initramfs.
    """

    def emptied(self, directory, shell, path, left_out=""):
        """True if the page's line empties the file when typed into this shell, which has only the
        programs in `path`. `directory`: where the initramfs has the disk."""
        blocks = places.blocks("text", "whole-machine",
                               "When every command prints an error, or fails")
        (line,) = [line for text in blocks for line in text.splitlines()
                   if line.startswith("mount -o") and " %s " % directory in line]
        line = line.replace(directory, self.path("disk")).replace(left_out, "")
        self.make("line", line + "\n", 0o644)
        done = self.run_there(
            DISK + 'env -i PATH="%s" %s line || true\n' % (path, shell) +
            "wc -c <disk/etc/ld.so.preload\n")
        os.rmdir(self.path("disk"))
        return done.stdout.split() == ["0"]

    def test_debians_initramfs_can_empty_the_file(self):
        if not os.path.exists(KLIBC + "/mount"):
            harness.skip(self, "klibc-utils is not installed")
        self.need("busybox")
        os.mkdir(self.path("applets"))
        for name in ("sh", "mount"):
            os.symlink(shutil.which("busybox"), self.path("applets", name))
        self.assertTrue(self.emptied("/root", KLIBC + "/sh", KLIBC))
        self.assertTrue(self.emptied("/root", self.path("applets", "sh"), self.path("applets")))
        # The line has the word "none" because klibc's mount requires a device.
        self.assertFalse(self.emptied("/root", KLIBC + "/sh", KLIBC, "none "))

    def test_dracuts_initramfs_can_empty_the_file(self):
        self.assertTrue(self.emptied("/sysroot", "/bin/bash", "/usr/bin:/bin"))


class Damaged(Case):
    """The table of the page says what every program does then, and its command repairs the machine
    without starting a program."""

    def damaged(self, damage):
        """Runs /bin/true and a program that asks for CUDA with the damaged file, then the remedy,
        from a shell that was already open."""
        (remedy,) = [text for text in places.blocks("text", "whole-machine")
                     if text.startswith(":")]
        script = "\n".join([
            "set +e", damage, "echo %s >%s" % (GUARD, FILE), "/bin/true", "echo true=$?", ASK,
            "/usr/local/bin/cudaguard --version", remedy.strip(), "/bin/true", "echo after=$?", ASK])
        return self.run_there(script)

    def test_unreadable_file_does_not_guard_that_user(self):
        done = self.run_there("chmod 600 %s; echo %s >%s\n%s %s" % (GUARD, GUARD, FILE, NOBODY, ASK))
        self.assertEqual(done.stdout, "0\n", done)
        self.assertIn(LINE % "cannot open shared object file", done.stderr)


make_damaged = fixtures.lent("damaged", Damaged)


@pytest.mark.parametrize(("damage", "words"), [
    ("mv {0} {0}.gone", "cannot open shared object file"), (": >{0}", "file too short"),
    ("truncate -s 64 {0}", "cannot read file data"),
    ("sed -n '1,200p' /usr/share/common-licenses/GPL-3 >{0}", "invalid ELF header")])
def test_unreadable_guard_is_ignored_with_an_error(damaged, damage, words):
    done = damaged.damaged(damage.format(GUARD))
    out = done.stdout.split()
    assert (out[0], out[1], out[-2:]) == ("true=0", "0", ["after=0", "0"]), str(done)
    assert set(done.stderr.splitlines()) == {LINE % words}, str(done)


@pytest.mark.parametrize("damage", [
    "truncate -s 4096 {0}",
    "dd if=/dev/zero of={0} bs=1024 seek=2 count=30 conv=notrunc 2>/dev/null"])
def test_damaged_guard_ends_every_dynamic_program(damaged, damage):
    done = damaged.damaged(damage.format(GUARD))
    out = done.stdout.split()
    assert out[0] in ("true=127", "true=135", "true=139"), str(done)
    # There is no second answer, because Python ended as well. The static program works.
    assert re.search(r"\Atrue=\d+\ncudaguard [0-9.]+\nafter=0\n0\n\Z", done.stdout)
    damaged.assertRegex(done.stderr, "Bus error|Segmentation fault|error while loading "
                        "shared libraries: " + GUARD)
