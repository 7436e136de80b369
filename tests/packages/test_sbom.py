# SPDX-License-Identifier: Apache-2.0
"""The SPDX document of a release names all that is linked into the launcher."""

import hashlib
import json
import os
import re
import runpy
import subprocess

import pytest

from support import harness, packaged

SBOM = runpy.run_path(os.path.join(harness.SOURCE, "scripts", "packaging", "sbom"))


def sha1(path):
    with open(path, "rb") as stream:
        return hashlib.sha1(stream.read()).hexdigest()


class Document(packaged.Case):
    def setUp(self):
        super().setUp()
        self.path_of_document = packaged.released(self, packaged.TREE + ".spdx.json")
        self.document = json.loads(harness.read(self.path_of_document))
        self.packages = {package["name"]: package for package in self.document["packages"]}

    def test_document_names_the_tarball_and_what_is_linked(self):
        sums = packaged.sums(os.path.dirname(packaged.released(self, "SHA256SUMS")))
        self.assertEqual(self.document["name"], packaged.TARBALL)
        (checksum,) = self.packages["cudaguard"]["checksums"]
        self.assertEqual(checksum["checksumValue"], sums[packaged.TARBALL])
        self.assertEqual(self.packages["cudaguard"]["versionInfo"], packaged.version())
        # NTIA's minimum elements of an SBOM have the supplier of each package.
        suppliers = {package["supplier"] for package in self.packages.values()}
        self.assertEqual(suppliers, {"Organization: Debian", "Organization: The cudaguard maintainers"})
        names = {name for name, _, _ in SBOM["LINKED"]} | {"RapidJSON"}
        self.assertEqual(set(self.packages), names | {"cudaguard"})
        linked = {edge["relatedSpdxElement"] for edge in self.document["relationships"]
                  if edge["relationshipType"] == "STATIC_LINK"}
        self.assertEqual(linked, {self.packages[name]["SPDXID"] for name in names})

    def test_versions_and_codes_are_this_machines(self):
        libc = packaged.run(["c++", "-print-file-name=libc.a"]).stdout.strip()
        version = packaged.run(["dpkg-query", "-W", "-f", "${Version}", "libc6-dev"]).stdout
        package = self.packages["glibc"]
        self.assertEqual(package["versionInfo"], version)
        self.assertEqual(package["packageVerificationCode"]["packageVerificationCodeValue"],
                         hashlib.sha1(sha1(libc).encode()).hexdigest())

    @pytest.mark.full
    def test_spdx_tools_accept_the_document(self):
        tool = self.need_fetched("platforms") + "/pyspdxtools"
        done = packaged.run([tool, "-i", self.path_of_document])
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.document["packages"][1]["licenseConcluded"] = "A license"  # control
        wrong = self.make("wrong.spdx.json", json.dumps(self.document))
        self.assertNotEqual(packaged.run([tool, "-i", wrong]).returncode, 0)


def test_launcher_is_linked_with_the_listed_files(tmp_path):
    """The linker's map names each archive with a member that it has taken."""
    launcher = os.path.join(harness.BUILD, "shim", "launcher")
    subprocess.run(["c++", "-static", "-Wl,-Map=map", "-o", "launcher",
                    os.path.join(launcher, "CMakeFiles", "launcher.dir", "main.cpp.o"),
                    os.path.join(launcher, "liblauncher_parts.a")], check=True, cwd=tmp_path)
    taken = re.findall(r"^/\S+/(\S+\.a)\(", (tmp_path / "map").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {file for _, _, files in SBOM["LINKED"] for file in files}
    assert set(taken) - {"liblauncher_parts.a"} == listed
