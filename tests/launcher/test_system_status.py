# SPDX-License-Identifier: Apache-2.0
"""`cudaguard system status` in a root directory and a PID namespace with known processes."""

import os
import re
import shutil
import subprocess
import time

from support import fixtures, machine, system_root
from support.system_root import FILE, GUARD

# Process 1, whose /etc is the machine's. `start NAME PROGRAM...` returns when the process has written
# its name, and the process then waits for the end of its input.
BOOT = """set -eu
root=$1 command=$2
mount -t proc proc "$root/proc"
mkfifo "$root/tmp/ready"
exec 9<&0  # a shell gives its background processes another input
start() {
  name=$1; shift
  chroot "$root" "$@" <&9 >"$root/tmp/ready" &
  read -r line <"$root/tmp/ready"
  echo "$name=$!"
}
status() {
  echo "== $1"
  "$command" system status --root "$root" || echo "code=$?"
}
WAIT='echo ready; read line'
"""
STATIC = "#include <unistd.h>\nint main(void) { char c; write(1, \"ready\\n\", 6); read(0, &c, 1); }\n"


class Case(system_root.Case):
    def setUp(self):
        super().setUp()
        self.need("unshare")
        os.mkdir(self.inside("proc"))
        source = self.make("static.c", STATIC, 0o644)
        shutil.copy(self.compile("static", source, "-static"), self.inside("/usr/bin/static"))

    def wait_for_next_tick(self):
        """Until no new process can start in the kernel's tick in which ld.so.preload changed."""
        ticks = os.sysconf("SC_CLK_TCK")
        changed = os.stat(self.inside(FILE)).st_ctime
        boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        after = int((changed - boot) * ticks) + 2  # one more, as the two clocks are read one by one
        while time.clock_gettime(time.CLOCK_BOOTTIME) * ticks < after:
            pass

    def run_there(self, script):
        """Runs the script in a PID namespace. Returns {name: pid} and {title: [lines]}."""
        read, write = os.pipe()  # the processes wait for its end
        machine.need("mounts")
        try:
            done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash",
                                   "-c", BOOT + script, "bash", self.root, self.command],
                                  stdin=read, capture_output=True, text=True, timeout=120,
                                  check=False)
        finally:
            os.close(read)
            os.close(write)
        self.assertEqual(done.returncode, 0, done)
        head, *parts = done.stdout.split("== ")
        pids = dict(re.findall(r"(?m)^(\w+)=(\d+)$", done.stdout))
        return pids, {title: rest for title, rest in (part.split("\n", 1) for part in parts)}


make_case = fixtures.lent("case", Case)


def groups(text):
    """Returns {what: the ids of its processes}."""
    found = {}
    for what, listed in re.findall(r"(?m)^(\S.*): \d+ process(?:es)?\n((?:  .*\n)+)", text):
        found[what] = set(re.findall(r"\((\d+)\)", listed))
    return found


def test_status_names_each_process_and_why_it_is_unguarded(case):
    pids, parts = case.run_there("""
status disabled
start early /bin/sh -c "$WAIT"
"$command" system enable --root "$root" >/dev/null
start late /bin/sh -c "$WAIT"
start static /usr/bin/static
start another /bin/sh -c "$WAIT"
status enabled
cp "$root%(guard)s" "$root/opt/new"
mv "$root/opt/new" "$root%(guard)s"
start fresh /bin/sh -c "$WAIT"
status replaced
"$command" system disable --root "$root" >/dev/null
status removed
""" % {"guard": GUARD})
    version = re.search(r"version (\S+)\.\n", parts["enabled"])[1]
    names = "%s names %s, version %s.\n" % (FILE, GUARD, version)
    guarded = "guarded by version " + version
    early = "not guarded: it was started before the file named the guard"
    static = "not guarded: it is a static executable"
    other = "not guarded: its %s names no guard" % FILE
    assert parts["disabled"].startswith(FILE + " names no guard.\n")
    assert groups(parts["disabled"]) == {other: {"1"}}
    assert parts["enabled"].startswith(names)
    assert groups(parts["enabled"]) == {
        other: {"1"}, early: {pids["early"]}, static: {pids["static"]},
        guarded: {pids["late"], pids["another"]}}
    assert "restart due: 1 process\ncode=1\n" in parts["enabled"]
    old = guarded + ", whose file was replaced or removed"
    assert groups(parts["replaced"]) == {
        other: {"1"}, early: {pids["early"]}, static: {pids["static"]},
        old: {pids["late"], pids["another"]}, guarded: {pids["fresh"]}}
    assert "restart due: 3 processes\ncode=1\n" in parts["replaced"]
    gone = groups(parts["removed"])
    assert gone[other] == {"1", pids["early"], pids["static"]}
    assert gone["%s, %s, which the file does not name" % (guarded, GUARD)] == {pids["fresh"]}


def test_pipe_in_the_root_of_a_process_does_not_stop_status(case):
    """A user can make such a root directory in a user namespace."""
    pids, parts = case.run_there("""
mkdir -p "$root/jail/etc"
cp "$root/usr/bin/static" "$root/jail"
mkfifo "$root/jail/etc/ld.so.preload"
chroot "$root/jail" /static <&9 >"$root/tmp/ready" &
read -r line <"$root/tmp/ready"
echo "jailed=$!"
status jailed
""")
    other = "not guarded: its %s names no guard" % FILE
    assert groups(parts["jailed"]) == {other: {"1", pids["jailed"]}}


def test_status_is_well_if_every_process_is_guarded(case):
    case.done("enable")
    _, parts = case.run_there("""
start one /bin/sh -c "$WAIT"
status enabled
""")
    assert parts["enabled"].endswith("restart due: no\n")


def test_status_without_proc_is_about_the_file(case):
    done = case.system("status")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "%s names no guard.\nProcesses are not listed: there is no /proc.\n" % FILE
    case.done("enable")
    assert re.fullmatch(r"%s names %s, version \S+\.\nProcesses .*\n" % (FILE, GUARD),
                        case.done("status"))
    shutil.rmtree(case.inside("/opt/cudaguard/lib"))
    done = case.system("status")
    assert done.returncode == 1
    assert "names %s, which cannot be found: No such file or directory." % GUARD in done.stdout
