# SPDX-License-Identifier: Apache-2.0
"""What the packages and recipes say of cudaguard is the same everywhere: what CMakeLists.txt has."""

import ast
import os
import re
import subprocess
import zipfile

import pytest

from support import harness, packaged


def project(word, read=harness.read):
    return re.search(r"^ +%s \"(.*)\"" % word, read("CMakeLists.txt"), re.MULTILINE)[1]


def test_readme_begins_with_the_projects_sentence():
    assert "\n\n**%s**\n" % project("DESCRIPTION") in harness.read("README.md")


class Wheel(packaged.Case):
    def test_pip_show_has_the_sentence(self):
        with zipfile.ZipFile(packaged.released(self, packaged.WHEEL)) as archive:
            metadata = archive.read("cudaguard-%s.dist-info/METADATA" % packaged.version()).decode()
        self.assertIn("\nSummary: %s\n" % project("DESCRIPTION"), metadata)


HOME = "https://github.com/ann/cudaguard"
FILES = ("CMakeLists.txt", "README.md", "pyproject.toml", "docs/integrations/ci.md",
         *("scripts/packaging/" + name for name in (
             "cudaguard.spec", "conda-forge/recipe.yaml", "spack/package.py", "debian/changelog",
             "debian/control", "debian/copyright")))


def fill_in(tree, address):
    return packaged.run([os.path.join(harness.SOURCE, "scripts", "packaging", "fill-in"), tree,
                         address])


@pytest.fixture(name="filled")
def make_filled(tmp_path):
    """Returns a function that reads a file of a tree with the address."""
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(harness.read(name), encoding="utf-8")
    done = fill_in(tmp_path, HOME)
    assert (done.returncode, done.stdout) == (0, "")
    return lambda *path: tmp_path.joinpath(*path).read_text(encoding="utf-8")


def test_no_file_names_an_address_that_is_none():
    for name in FILES:
        assert not re.search(r"OWNER(?!_)|github\.com/|noreply", harness.read(name)), name
    assert "    HOMEPAGE_URL" not in harness.read("CMakeLists.txt")


def test_address_is_filled_in_once(filled, tmp_path):
    before = {name: filled(name) for name in FILES}
    assert before.keys() == {name for name in FILES if before[name] != harness.read(name)}
    assert not [name for name in FILES if "invalid" in before[name] or "ACCOUNT" in before[name]]
    assert fill_in(tmp_path, HOME).returncode == 0
    assert {name: filled(name) for name in FILES} == before
    assert "  - uses: ann/cudaguard@v%s\n" % packaged.version() in before["docs/integrations/ci.md"]


@pytest.mark.parametrize("address", ["", "github.com/ann/cudaguard", "https://github.com/cudaguard",
                                     "https://github.com/ann/other", "https://a b/c/cudaguard"])
def test_bad_address_is_not_accepted(tmp_path, address):
    """It finds no file there that it could change."""
    done = fill_in(tmp_path, address)
    assert done.returncode == 1 and "is not accepted" in done.stdout, done


def test_wheels_readme_has_no_link_to_a_file_beside_it(filled):
    links = re.findall(r"(!?)\[[^][]*\]\(([^)]*)\)", harness.read("README.md"))
    text = filled("scripts", "packaging", "wheel-readme.md")
    assert 'readme = "scripts/packaging/wheel-readme.md"\n' in filled("pyproject.toml")
    assert len(links) > 20 and "no release" not in text
    for image, link in links:
        place = "%s/%s/v%s/" % (HOME, "raw" if image else "blob", packaged.version())
        assert "](%s)" % (link if link.startswith("https:") else place + link) in text, link
    assert not re.findall(r"\]\((?!https:)", text)


def test_recipes_have_the_version_the_address_and_the_license(filled):
    read = filled
    version, home = packaged.version(), project("HOMEPAGE_URL", read)
    assert home == HOME
    for line in ('Homepage = "%s"' % home, 'Changelog = "%s/blob/main/CHANGELOG.md"' % home):
        assert "\n%s\n" % line in read("pyproject.toml")
    assert "\nSource: %s\n" % home in read("scripts", "packaging", "debian", "copyright")
    debian, spec = ("scripts", "packaging", "debian"), read("scripts", "packaging", "cudaguard.spec")
    assert read(*debian, "changelog").startswith("cudaguard (%s) " % version)
    control = read(*debian, "control")
    for line in ("Homepage: " + home, "Vcs-Browser: " + home, "Vcs-Git: %s.git" % home):
        assert "\n%s\n" % line in control
    assert "\nVersion: %s\n" % version in spec and "- %s-1\n" % version in spec
    assert "\nURL: %s\n" % home in spec
    archive = "%s/releases/download/v%%s/cudaguard-%%s.tar.gz" % home
    spack = read("scripts", "packaging", "spack", "package.py")
    words = ast.literal_eval(re.search('"""(?s:.*?)"""', spack)[0])
    assert " ".join(words.split()) == project("DESCRIPTION")
    assert 'homepage = "%s"' % home in spack and 'version("%s",' % version in spack
    assert 'url = "%s"' % (archive % (version, version)) in spack
    conda = read("scripts", "packaging", "conda-forge", "recipe.yaml")
    for line in ('version: "%s"' % version, "homepage: " + home, "repository: " + home,
                 "summary: " + project("DESCRIPTION"), "url: " + archive % (("${{ version }}",) * 2)):
        assert re.search(r"^ +%s$" % re.escape(line), conda, re.MULTILINE), line
    assert project("DESCRIPTION") in read("pyproject.toml")
    licenses = "Apache-2.0 AND %sMIT"
    assert licenses % "" in spec and licenses % "" in conda
    assert licenses % "LGPL-2.1-or-later AND " in read("pyproject.toml")


def test_spack_finds_the_plugin_in_the_package(filled):
    """scripts/packaging/README.md says which Spack has built and tested the recipe."""
    spack = filled("scripts", "packaging", "spack", "package.py")
    assert '"PYTHONPATH", self.prefix.share.cudaguard.python)' in spack
    assert 'self.define("CUDAGUARD_STATIC", False)' in spack
    assert '\n    depends_on("rapidjson", type="build")\n' in spack
    assert 'cudaguard("run", "--log", "off", "--", ' in spack and 'assert answer == "100\\n"' in spack
    assert "option(CUDAGUARD_STATIC " in harness.read("CMakeLists.txt")
    assert "./share/cudaguard/python/cudaguard/pytest_plugin.py\n" in harness.read(
        "tests", "artefacts", "installed.txt")


class Spec(packaged.Case):
    @pytest.mark.full
    def test_fedora_has_a_package_for_builds_and_a_release_has_one(self):
        self.need("rpmspec")
        spec = os.path.join(harness.SOURCE, "scripts", "packaging", "cudaguard.spec")
        for words, names in ((), "cudaguard cudaguard-devel"), (("--with", "release"), "cudaguard"):
            done = packaged.run(["rpmspec", "-q", "--qf", "%{NAME} ", *words, spec])
            self.assertEqual(done.stdout.split(), names.split())
            parsed = packaged.run(["rpmspec", "-P", *words, spec]).stdout
            # Fedora's glibc does it.
            self.assertEqual("\n/sbin/ldconfig\n" in parsed, bool(words))
        _, files = packaged.run(["rpmspec", "-P", spec]).stdout.split("\n%files devel\n")
        self.assertEqual([os.path.basename(line.rstrip("/")) for line in files.splitlines()
                          if line.startswith("/")], ["cudaguard.h", "cudaguard", "cudaguard.pc"])


RENDER = """
import sys
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig
place = dict.fromkeys(("target_platform", "build_platform", "host_platform"), "linux-64")
for one in Stage0Recipe.from_file(sys.argv[1]).render(
        VariantConfig.from_yaml("python: [3.12.*]\\nc_stdlib: [sysroot]\\nc_stdlib_version: ['2.17']"),
        RenderConfig(PlatformConfig(**place))):
    print(one.recipe.package.name, one.recipe.package.version, *one.recipe.requirements.to_dict()["build"])
    print("patchelf:", *one.recipe.build.to_dict()["dynamic_linking"]["binary_relocation"])
"""


@pytest.mark.full
def test_conda_can_evaluate_its_recipe():
    recipe = os.path.join(harness.SOURCE, "scripts", "packaging", "conda-forge", "recipe.yaml")
    python = harness.Case().need_fetched("platforms") + "/python"
    printed = subprocess.run([python, "-c", RENDER, recipe], check=True, text=True,
                             capture_output=True).stdout
    assert printed == ("cudaguard %s gcc_linux-64 gxx_linux-64 sysroot_linux-64 2.17.* cmake >=3.22 ninja\n"
                       "patchelf: bin/cudaguard\n" % packaged.version())
