# SPDX-License-Identifier: Apache-2.0
"""The Debian package and the RPM install, upgrade while programs run, and leave nothing behind when
removed."""

import glob
import os
import re
import shutil
import subprocess

import pytest

from support import harness, messages, packaged

LOADER = os.path.join(harness.BUILD, "tests", "packages", "loader")
PLACE = "/usr/lib/%s/libcudaguard.so" % packaged.MULTIARCH
DENIED = re.compile("^" + messages.line("no_cuda", cause="FORCE_CPU") + "100$", re.MULTILINE)
ASK = '/usr/bin/python3 -c "%s"' % packaged.ASK
LD_SO = "ERROR: ld.so"
BASIS = """Name: basis
Version: 1
Release: 1
Summary: in place of the system's own
License: none
%description
%files
"""
PROCESSES = 200 if harness.FULL else 8


class Package(packaged.Case):
    """These tests check the package's files without installing it."""

    def setUp(self):
        super().setUp()
        self.need("dpkg-deb")
        self.deb = packaged.released(self, packaged.DEB)

    def field(self, name):
        return packaged.run(["dpkg-deb", "-f", self.deb, name]).stdout.strip()

    def test_deb_needs_libc_alone(self):
        self.assertRegex(self.field("Depends"), r"\Alibc6 \(>= 2\.1[67]\)\Z")
        self.assertEqual(self.field("Version"), packaged.version())

    def test_package_has_the_listed_files(self):
        tree = self.path("tree")
        subprocess.run(["dpkg-deb", "-x", self.deb, tree], check=True, timeout=60)
        listed = {re.sub("^usr/lib/", "usr/lib/%s/" % packaged.MULTIARCH, "usr/" + name)
                  for name in packaged.listed()}
        found = packaged.tree(tree)
        manuals = {"usr/share/man/man1/cudaguard.1", "usr/share/man/man5/cudaguard.conf.5"}
        self.assertEqual({name for name in found
                          if not re.match("usr/share/(doc|lintian)/", name)},
                         listed - manuals | {name + ".gz" for name in manuals} |
                         {"etc/logrotate.d/cudaguard"})
        # The copied files name the paths of this package.
        for name in ("systemd/cudaguard-run.conf", "systemd/cudaguard-preload.conf",
                     "slurm/task-prolog"):
            text = found["usr/share/cudaguard/" + name]
            self.assertNotIn(b"/usr/local", text)
            self.assertRegex(text, b"/usr/bin/cudaguard|" + PLACE.encode())
        examples = os.path.join(tree, "usr/share/doc/cudaguard/examples")
        for directory in ("conda", "container", "jupyter", "kubernetes", "slurm", "systemd"):
            self.assertTrue(os.listdir(os.path.join(examples, directory)))

    def lintian(self, path, *words):
        done = packaged.run(["lintian", "--allow-root", "--fail-on", "error,warning", *words, path])
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    @pytest.mark.full
    def test_lintian_finds_no_problem(self):
        """The launcher of a release is static, so that it runs on every system."""
        self.need("lintian")
        self.lintian(self.deb, "--suppress-tags", "statically-linked-binary")

    @pytest.mark.full
    @pytest.mark.timeout(7200)
    def test_build_daemon_makes_packages_without_a_problem(self):
        """A distribution's flags, tests, link of the launcher and debugging data. There is no
        network, no driver and no root."""
        self.need("lintian", "setpriv")
        if os.geteuid() != 0:
            harness.skip(self, "only root can take the network away")
        source = self.unpacked("cudaguard-%s.tar.gz" % packaged.version(), "daemon")
        shutil.copytree(os.path.join(source, "scripts", "packaging", "debian"),
                        os.path.join(source, "debian"))
        os.chmod(self.path(), 0o755)
        subprocess.run(["chown", "-R", "nobody", self.path("daemon")], check=True)
        built = packaged.run(
            ["unshare", "--net", "setpriv", "--reuid", "nobody", "--clear-groups", "env", "-i",
             "PATH=/usr/bin:/bin", "HOME=/nonexistent", "dpkg-buildpackage", "--no-sign"],
            cwd=source, timeout=7000)
        self.assertEqual(built.returncode, 0, built.stdout[-5000:])
        for printed in (r"\[  PASSED  \] \d+ tests", r"\n\d+ passed"):
            self.assertRegex(built.stdout, printed)
        changes = "cudaguard_%s_%s.changes" % (packaged.version(), packaged.DEBIAN_ARCHITECTURE)
        self.lintian(self.path("daemon", changes))
        (debugging,) = glob.glob(self.path("daemon", "cudaguard-dbgsym_*.deb"))
        self.assertIn(".build-id/", packaged.run(["dpkg-deb", "-c", debugging]).stdout)


class Installed(packaged.Case):
    """These tests install the package on this machine's own system."""

    def setUp(self):
        super().setUp()
        self.need("dpkg-deb")
        self.box = self.machine()
        self.deb = self.box.put(packaged.released(self, packaged.DEB))

    def test_autopkgtest_passes_only_with_the_package(self):
        self.need("gcc")
        box, directory = self.box, os.path.join(harness.SOURCE, "scripts", "packaging", "debian", "tests")
        test = "sh " + box.put(os.path.join(directory, "guards"))
        box.sh("dpkg -i " + self.deb)
        box.sh(test)
        box.sh("dpkg -r cudaguard")
        self.assertIn("cuInit returned 0, not 100", box.sh(test, ok=False).stdout)

    def test_removal_takes_the_guard_out_of_ld_so_preload(self):
        """An upgrade leaves it there."""
        box = self.box
        box.sh("dpkg -i " + self.deb)
        box.sh("cudaguard system enable")
        self.assertEqual(box.sh("cat /etc/ld.so.preload").stdout, PLACE + "\n")
        self.assertRegex(box.sh("env -i " + ASK).stdout, DENIED)
        for deb in (self.other_version("0.1.0"), self.deb):
            self.assertNotIn(LD_SO, box.sh("dpkg -i --force-downgrade " + deb).stdout)
        self.assertRegex(box.sh("env -i " + ASK).stdout, DENIED)
        removed = box.sh("dpkg -r cudaguard").stdout
        self.assertIn("/etc/ld.so.preload no longer names " + PLACE, removed)
        self.assertNotIn(LD_SO, removed + box.sh("true").stdout)
        self.assertNotEqual(box.sh("cat /etc/ld.so.preload", ok=False).returncode, 0)
        for line, rest in (("libcudaguard.so", ""), ("/usr/$LIB/libcudaguard.so", ""),
                           ("/${LIB}/libcudaguard.so", ""), ("libm.so.6:" + PLACE[4:], "libm.so.6"),
                           # A comment is not a use of it, and another copy is not this package's.
                           ("# libcudaguard.so was here", "# libcudaguard.so was here"),
                           ("/opt/libcudaguard.so", "/opt/libcudaguard.so")):
            box.sh("dpkg -i " + self.deb)
            box.sh("cp %s /opt; echo '%s' >/etc/ld.so.preload" % (PLACE, line))
            box.sh("dpkg -P cudaguard")
            self.assertEqual(box.sh("sed 1q /etc/ld.so.preload 2>/dev/null; rm -f /etc/ld.so.preload"
                                    ).stdout.strip(), rest)

    def test_package_stays_if_ld_so_preload_cannot_be_changed(self):
        """No file can be renamed to a mount point."""
        box = self.box
        box.sh("dpkg -i " + self.deb)
        box.sh("echo %s >/tmp/preload; touch /etc/ld.so.preload; "
               "mount --bind /tmp/preload /etc/ld.so.preload" % PLACE)
        refused = box.sh("dpkg -r cudaguard", ok=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("/etc/ld.so.preload cannot be changed: Device or resource busy",
                      refused.stdout)
        self.assertNotIn(LD_SO, refused.stdout)
        self.assertRegex(box.sh("env -i " + ASK).stdout, DENIED)
        self.assertRegex(box.sh("dpkg -l cudaguard").stdout, "(?m)^.i  cudaguard")

    def other_version(self, version):
        """Builds the same package with another version. A guard knows the length of its null
        drivers, and meets the other version's."""
        return self.box.put(packaged.other_version(packaged.released(self, packaged.DEB), version,
                                                   self.directory))

    def start_loaders(self):
        """Starts guarded processes; every third one makes its first dlopen after the upgrade."""
        box = self.box
        if not os.path.exists(LOADER):
            harness.skip(self, LOADER + " is not built")
        loader = box.put(LOADER)
        box.sh("chmod 755 %s; rm -f /tmp/stop /tmp/late" % loader)
        running = []
        for number in range(PROCESSES):
            late = ["/tmp/late"] if number % 3 == 0 else []
            process = subprocess.Popen(
                box.command(loader, "/tmp/stop", *late, env=["LD_PRELOAD=libcudaguard.so"]),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            running.append(process)
        for process in running:
            self.assertEqual(process.stdout.readline(), "ready\n")
        return running

    def outcome(self, running):
        """Ends the processes; returns (exit code, last line of output, stderr) of each."""
        self.box.sh("touch /tmp/late; sleep 1; touch /tmp/stop")
        ended = []
        for process in running:
            out, err = process.communicate(timeout=120)
            ended.append((process.returncode, out.strip(), err))
        return ended

    def test_upgrade_keeps_running_programs_guarded(self):
        """The test upgrades, downgrades and upgrades again. A program that starts meanwhile finds
        the library by its name alone."""
        box = self.box
        old = self.other_version("0.1.0")
        box.sh("dpkg -i " + old)
        running = self.start_loaders()
        box.sh("(while ! [ -e /tmp/stop ]; do LD_PRELOAD=libcudaguard.so /usr/bin/true; %s done) "
               ">/tmp/starts 2>&1 &" % ("" if harness.FULL else "sleep 0.01;"))
        for deb in (self.deb, old, self.deb):
            box.sh("dpkg -i " + deb)
        for code, out, err in self.outcome(running):
            self.assertEqual(code, 0, out + err)
            self.assertRegex(out, r"\Aloads=\d+\Z")
            # The first denied call prints one message, and children do not repeat it.
            self.assertRegex(err, r"\A(cudaguard\[\d+\]: no (CUDA|GPU) .*\n){1,2}\Z")
        self.assertEqual(box.sh("cat /tmp/starts").stdout, "")
        self.assertIn(packaged.version(), box.sh("dpkg -l cudaguard").stdout)

    def test_limit_overwritten_files_break_running_programs(self):
        """Control: the same programs run while the files are overwritten in place."""
        box = self.box
        box.sh("dpkg -i " + self.deb)
        running = self.start_loaders()
        box.sh("cat %s/libcudaguard-nvml.so >%s" % (PLACE.replace("libcudaguard.so", "cudaguard"),
                                                     PLACE))
        self.assertTrue(any(code != 0 for code, _, _ in self.outcome(running)))


@pytest.mark.parametrize("suite", ["", *(
    pytest.param(suite, marks=pytest.mark.full) for suite in packaged.SUITES)])
def test_deb_guards_and_leaves_nothing_behind(case, suite):
    """In this machine's own system, and in those of other releases."""
    box = case.machine(suite)
    box.need_python()
    deb = box.put(packaged.released(case, packaged.DEB))
    before = box.added()
    unguarded = box.sh(ASK, ok=False).stdout
    assert not DENIED.search(unguarded)
    assert not suite or packaged.NONE in unguarded
    box.sh("apt-get install -y " + deb)
    assert "usr/bin/cudaguard" in box.added()
    for command in ("LD_PRELOAD=libcudaguard.so " + ASK, "cudaguard run -- " + ASK):
        assert DENIED.search(box.sh(command).stdout)
    assert "guarded: yes" in box.sh("cudaguard doctor /usr/bin/python3", ok=False).stdout
    # ld.so's cache has the guard, but not the null drivers, whose names are NVIDIA's.
    cache = box.sh("ldconfig -p | grep cudaguard").stdout
    assert re.fullmatch(r"\tlibcudaguard\.so .* => .*%s\n" % PLACE[len("/usr"):], cache)
    box.sh("apt-get install -y --reinstall " + deb)
    box.sh("mkdir /var/log/cudaguard")
    box.sh("apt-get purge -y cudaguard")
    assert box.added() == before
    assert box.sh("ls /var/log/cudaguard", ok=False).returncode != 0
    assert box.sh(ASK, ok=False).stdout == unguarded


class Rpm(packaged.Case):
    def setUp(self):
        super().setUp()
        self.rpm = packaged.released(self, packaged.RPM, quick=False)
        self.need("rpm")

    def test_rpm_needs_libc_alone(self):
        requires = packaged.run(["rpm", "-qp", "--requires", self.rpm]).stdout.splitlines()
        known = re.compile(r"rpmlib\(|libc\.so\.6\(|/s?bin/|rtld\(|$")
        self.assertEqual([line for line in requires if not known.match(line)], [])
        provides = packaged.run(["rpm", "-qp", "--provides", self.rpm]).stdout
        self.assertNotIn("libcuda.so", provides)
        self.assertNotIn("libnvidia-ml.so", provides)

    def test_rpmlint_finds_no_error(self):
        """A release's launcher is static, and its manual is not compressed: rpmlint takes "conf"
        for the section of cudaguard.conf.5 then."""
        self.need("rpmlint")
        directory = os.path.join(harness.SOURCE, "scripts", "packaging")
        filters = harness.read(os.path.join(directory, "cudaguard.rpmlintrc"))
        self.make("filters", filters + 'addFilter("statically-linked-binary")\n'
                  'addFilter("bad-manual-page-folder .*/cudaguard.conf.5 ")\n')
        done = packaged.run(["rpmlint", "--rpmlintrc", self.path("filters"), self.rpm,
                             os.path.join(directory, "cudaguard.spec")])
        self.assertRegex(done.stdout, r"\b0 errors\b")

    def test_rpm_guards_and_is_removed(self):
        """dnf installs it, as README describes, after a package that provides what Fedora's own
        packages would."""
        self.need("dnf", "rpmbuild")
        box = self.machine()
        needs = packaged.run(["rpm", "-qp", "--requires", self.rpm]).stdout.splitlines()
        spec = self.make("basis.spec", "".join("Provides: %s\n" % one for one in needs
                                               if not one.startswith("rpmlib")) + BASIS)
        built = packaged.run(["rpmbuild", "-bb", "--define", "_rpmdir " + self.directory, spec])
        (basis,) = glob.glob(self.path("*", "basis-1-1.*.rpm")) or self.fail(built.stdout)
        dnf = "dnf -y --disablerepo='*' --releasever=42 "
        command = dnf + "install " + box.put(self.rpm)
        self.assertIn("nothing provides libc.so.6", box.sh(command, ok=False).stdout)
        printed = box.sh(command + " " + box.put(basis)).stdout
        self.assertNotRegex(printed, "(?i)warning|error")
        for command in ("LD_PRELOAD=/usr/lib64/libcudaguard.so " + ASK, "cudaguard run -- " + ASK):
            self.assertRegex(box.sh(command).stdout, DENIED)
        box.sh("echo /usr/lib64/libcudaguard.so >/etc/ld.so.preload")
        printed = box.sh(dnf + "remove cudaguard").stdout
        self.assertIn("/etc/ld.so.preload no longer names /usr/lib64/", printed)
        self.assertNotRegex(printed, "(?i)warning|error")
        # Debian's rpm keeps its database there.
        notes = ("root/.rpmdb/", "var/lib/rpm/", "var/lib/dnf/")
        self.assertEqual([name for name in box.added() if not name.startswith(notes)], [])
