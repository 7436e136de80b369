# SPDX-License-Identifier: Apache-2.0
"""The release as a whole: its content, that the tests ran on it, and that a second build has the
same bytes."""

import os
import re
import subprocess
import tarfile

import pytest

from support import harness, packaged

ANOTHER = " is another one: scripts/test makes it anew"
BUILT = ["libcudaguard.so"] + ["cudaguard/" + name for name in (
    "cudaguard-probe", "libcuda.so.1", "libcudaguard-driver.so", "libcudaguard-nvml.so",
    "libnvidia-ml.so.1")]

# Each row says how to unpack a kind of file: the file, the directory.
OPEN = {".tar.gz": 'tar -xzf "$1" -C "$2"', ".deb": 'dpkg-deb -x "$1" "$2"',
        ".rpm": 'cd "$2" && rpm2cpio "$1" | cpio -id --quiet',
        ".whl": 'python3 -m zipfile -e "$1" "$2"'}


class Release(packaged.Case):
    def test_checksums_match_every_file(self):
        packaged.released(self, "SHA256SUMS")
        done = packaged.run(["sha256sum", "--check", "--strict", "SHA256SUMS"],
                            cwd=packaged.RELEASE)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(set(packaged.sums(packaged.RELEASE)),
                         set(os.listdir(packaged.RELEASE)) - {"SHA256SUMS"})

    def test_notes_are_the_changelogs_newest_section(self):
        notes = harness.read(packaged.released(self, "NOTES.md"))
        newest = re.split(r"^## ", harness.read("CHANGELOG.md"), flags=re.MULTILINE)[1]
        title, first = newest.split("\n", 1)
        self.assertEqual(title.split()[0], packaged.version())
        self.assertEqual(notes.strip(), first.strip())
        self.assertTrue(notes.startswith("- "), notes)

    def test_readme_names_the_files(self):
        if packaged.MACHINE != "x86_64":
            self.skipTest("README has x86-64's")
        named = re.findall(r"cudaguard[-_]\d[\w.-]*\.(?:whl|deb|rpm|tar\.gz)",
                           harness.read("README.md"))
        self.assertEqual(set(named), {packaged.WHEEL, packaged.DEB, packaged.RPM, packaged.TARBALL})

    def opened(self, name):
        """Unpacks the file and returns the directory."""
        path, directory = packaged.released(self, name), self.path(name)
        os.mkdir(directory)
        if name.endswith(".rpm"):
            self.need("rpm2cpio", "cpio")
        command = next(command for end, command in OPEN.items() if name.endswith(end))
        done = packaged.run(["sh", "-c", command, "sh", path, directory])
        self.assertEqual(done.returncode, 0, done.stdout)
        return directory

    def test_packages_have_the_tested_files(self):
        """The packages' files are byte by byte the files that all other tests have checked."""
        data = "cudaguard-%s.data/data" % packaged.version()
        for lib in (os.path.join(self.unpacked(), "lib"),
                    os.path.join(self.opened(packaged.DEB), "usr", "lib", packaged.MULTIARCH),
                    os.path.join(self.opened(packaged.WHEEL), data, "libexec")):
            for name in BUILT:
                with open(os.path.join(lib, name), "rb") as packed, \
                        open(os.path.join(harness.LIB, name), "rb") as tested:
                    self.assertTrue(packed.read() == tested.read(), name + ANOTHER)
        with open(os.path.join(self.unpacked(), "bin", "cudaguard"), "rb") as packed, \
                open(os.path.join(harness.BUILD, "bin", "cudaguard"), "rb") as tested:
            self.assertTrue(packed.read() == tested.read(), "bin/cudaguard" + ANOTHER)

    def test_files_are_built_for_the_named_machine(self):
        wanted = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}  # ELF's e_machine
        for name in self.packages():
            machine = re.search(r"[-_.](x86_64|amd64|aarch64|arm64)\.[a-z.]+$", name)[1]
            heads = [content[18:20] for content in packaged.tree(self.opened(name)).values()
                     if isinstance(content, bytes) and content.startswith(b"\x7fELF")]
            self.assertGreaterEqual(len(heads), 7, name)
            self.assertEqual(set(heads), {bytes([wanted[machine], 0])}, name)

    def test_packages_contain_the_licences(self):
        for name in self.packages():
            texts = [content for path, content in packaged.tree(self.opened(name)).items()
                     if isinstance(content, bytes) and re.search(r"/(LICENSE|copyright)$", path)]
            for words in (b"Milo Yip", b"LGPL-2.1+",
                          b"The above copyright notice and this permission notice"):
                self.assertTrue(any(words in text for text in texts), (name, words))
            if not name.endswith(".deb"):  # Debian has it in /usr/share/common-licenses
                self.assertTrue(any(b"Apache License" in text for text in texts), name)

    def packages(self):
        """Returns the release's packages without the source and the texts."""
        names = packaged.sums(os.path.dirname(packaged.released(self, "SHA256SUMS")))
        source = "cudaguard-%s.tar.gz" % packaged.version()
        return [name for name in names if name.endswith(tuple(OPEN)) and name != source]

    def test_packages_record_no_path_and_no_time(self):
        for name in (packaged.TARBALL, "cudaguard-%s.tar.gz" % packaged.version()):
            path = packaged.released(self, name)
            with open(path, "rb") as stream:
                header = stream.read(10)
            self.assertEqual(header[3:8], bytes(5))  # gzip records neither a name nor a time
            with tarfile.open(path) as archive:
                members = archive.getmembers()
            self.assertEqual(len({m.mtime for m in members}), 1)
            self.assertEqual({(m.uid, m.gid, m.uname, m.gname) for m in members}, {(0, 0, "", "")})
            modes = {m.mode for m in members if not m.issym()}
            self.assertLessEqual(modes, {0o644, 0o755})
        for name, content in packaged.tree(self.unpacked()).items():
            if isinstance(content, bytes):
                self.assertNotIn(harness.SOURCE.encode(), content, name)

    def test_source_has_every_tracked_file(self):
        path = packaged.released(self, "cudaguard-%s.tar.gz" % packaged.version())
        with tarfile.open(path) as archive:
            packed = {m.name.split("/", 1)[1] for m in archive.getmembers() if not m.isdir()}
        # Another user may own the checkout.
        listed = subprocess.run(["git", "-c", "safe.directory=*", "ls-files"], cwd=harness.SOURCE,
                                check=True, text=True, capture_output=True).stdout.splitlines()
        self.assertGreater(len(listed), 400)
        made = {"scripts/packaging/wheel-readme.md"}  # by fill-in, if there is an address
        self.assertEqual(packed | made, {*listed, *made}, "it" + ANOTHER)

    @pytest.mark.full
    @pytest.mark.timeout(3600)
    def test_second_build_elsewhere_has_the_same_bytes(self):
        """The release is built again from its own source, in another directory, which has no build
        directory yet, by a user with other settings."""
        first = packaged.sums(os.path.dirname(packaged.released(self, "SHA256SUMS")))
        name = "cudaguard-%s.tar.gz" % packaged.version()
        source, out = self.unpacked(name, "elsewhere"), self.path("out")
        with tarfile.open(packaged.released(self, name)) as archive:
            epoch = archive.getmembers()[0].mtime
        git = ["git", "-C", source, "-c", "user.name=x", "-c", "user.email=x"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *words], check=True, timeout=60)
        done = packaged.run(
            [os.path.join(source, "scripts", "release"), "--quick", out], umask=0o077, timeout=3000,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "TZ": "Asia/Tokyo",
                 "HOME": self.path(), "CCACHE_DISABLE": "1"})
        self.assertEqual(done.returncode, 0, done.stdout)
        second = packaged.sums(out)
        self.assertEqual(second, {name: first[name] for name in second})
        paths = [os.path.join(out, name) for name in os.listdir(out)]
        self.assertEqual(set(done.stdout.splitlines()[-len(paths):]), set(paths), done.stdout)
