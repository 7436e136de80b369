# SPDX-License-Identifier: Apache-2.0
"""verify and the fences on other kernels: a Debian 12 in QEMU with its own kernel, those of Debian's
other releases and Ubuntu's.

The machine runs tests of the ordinary suite, from a copy of this checkout and its build.
"""

import dataclasses
import fnmatch
import re
import shutil
import subprocess

from lab import nodes_machine, vm

# Debian's releases with other kernels, and for each the end of the rows' names and the kernel's
# release.
SUITES = {"bullseye": ("5.10", "5.10.*-amd64"), "trixie": ("6.12", "6.12.*-amd64"),
          "trixie-backports": ("newest", "[7-9].*-amd64")}
POOL = "http://archive.ubuntu.com/ubuntu/pool/main/l"
# Ubuntu's source package, its version, and the SHA-256 of the kernel's package and the modules'.
PACKAGES = (
    ("linux", "4.15.0-213.224", "1165ce25b7a822ef514479b70124b9e843477619536eb562fb2d63ec9a421f61",
     "b1a4a62df56d7bcc170449958fd5e8042f6eed6042ea256016d7688323bace7e"),
    ("linux-hwe-5.0", "5.0.0-65.71",
     "e3b75c5c37d0ed69c99b3c17e9b35ffbeb2c7aceb2316483ee641542ba299a9a",
     "1c0bde17e4013b69cca6c1cf1ce6bf6dcd855cfd2a43ce4d7b168d245265b140"),
    ("linux-hwe", "5.3.0-76.72", "e94db0581fbb2ab10e84cfc5b36e79e6278548324329654988a1e35052b732e1",
     "2044fdbc19b71d52e6544a49923a53a90d6883c5881d8617c497fdf4a622718c"),
    ("linux", "5.4.0-216.236", "a0c4872252ba1e60348fd7216c9a9e27870fcb0fbc8bc9daf8dbf9735a7ea739",
     "6f8da7e233a20a6aafe9bb2c03d7394026a6253c5d5056a4be4d2264ab2e5f45"),
    ("linux-hwe-5.8", "5.8.0-63.71~20.04.1",
     "5a06d34e13b122d132a3744f6f1befcc9af25db1b0e6eb238560cd097ebd40cc",
     "d75f81562dc4e6521fa077dfe2164b5c9f6a84744e7ec35888d37127fd29b0a7"),
    ("linux-hwe-5.13", "5.13.0-52.59~20.04.1",
     "27182e23c7587d1f60edc68a5277f13459acc663bb8539f677c7979cb525d0fa",
     "8b9c9e679883b97b3d583415796c79980ac623488b20722d55a13bb60bbd616b"),
    ("linux-hwe-5.15", "5.15.0-139.149~20.04.1",
     "c28c879d56e71aaf6aff7ea19cba8d2452e4f7e0f2b0e61a2fd90d0f1b3208ec",
     "924d6a192169ccb8dcf6eb9a9a7b0ce9a37acd35090ca763165810e29cce9936"),
    ("linux-hwe-5.19", "5.19.0-50.50",
     "b225ba82fa3c297c22e23808506a986dd464b2d32b14d9bb1629a38e7a3b144f",
     "641f00e06fc36fd5443ed6b29f01a4de4b84810db424088750464eaf53ab6c89"),
    ("linux", "6.8.0-151.151", "f7383b6e775f29b1601f88b5acc10863fd8786c9534bf435628b61ce41ccba48",
     "b1784b7a049c8b1841bcb464bb2b8d101a0c265bf2263059d815bef1f4aed91a"),
)
# Unpacks the kernel of another release of Debian's. apt believes that nothing is installed, so that
# it does not prefer the newer kernel of this one.
DEBIAN = f"""
from_debian() {{
  echo "deb {vm.MIRROR} $1 main" >/tmp/suite.list
  apt="-o Dir::Etc::sourcelist=/tmp/suite.list -o Dir::Etc::sourceparts=- -o Dir::State::status=/dev/null"
  apt-get $apt update -q
  mkdir /tmp/kernel
  cd /tmp/kernel
  packages=$(apt-cache $apt depends --recurse --important linux-image-amd64 |
             grep -E '^linux-(image|base|binary|modules)-[0-9]')
  apt-get $apt download -q $packages
  for package in *.deb; do
    dpkg-deb --fsys-tarfile $package | tar -x -C / --keep-directory-symlink --exclude=./usr/share
  done
  release=$(echo "$packages" | sed -n 's/^linux-image-//p')
  for file in vmlinuz config; do
    test -e /boot/$file-$release || mv /lib/modules/$release/$file /boot/$file-$release
  done
  cd / && rm -r /tmp/kernel
  depmod $release
  update-initramfs -c -k $release
}}
"""
# The fence needs Linux 5.0 to report ioctls to verify, and Linux 5.5 to report each start.
REPORTING = (
    "tests/launcher/test_beacon.py", "tests/fence/test_listener.py",
    "tests/fence/test_refusals.py", "tests/fence/test_devices.py", "tests/launcher/test_execve.py",
    "tests/launcher/test_starts.py", "tests/launcher/test_keeper.py",
    # QEMU is slow, so verify sees a program twice in ld.so, and doubts that the guard is in it.
    "--deselect=launcher/test_beacon.py::Doubt::test_programs_that_end_in_the_loader_cause_no_doubt")
# They take the machine's kernel.yama.ptrace_scope. 3 stays until the machine ends.
YAMA = ("tests/launcher/test_yama.py",)
# A smaller machine opens nodes under the fence of devices (nodes_machine.py).
NODES = ()
NODES_ONLY = {(5, 13), (5, 19), (6, 8)}
# On an older kernel, verify reads a file that the guards write.
OLDER = (
    "tests/fence/test_refusals.py", "tests/fence/test_unavailable.py",
    "tests/launcher/test_verify.py",
    "--deselect=launcher/test_verify.py::test_verify_needs_no_writable_directory",
    # Their own program receives reports of a fence.
    "--deselect=fence/test_unavailable.py::test_fence_is_set_up_in_another_way",
    "--deselect=fence/test_unavailable.py::test_doctor_reports_that_a_fence_is_available")
SUMMARY = re.compile(r"(\d+) passed.* in ([\d.]+)s")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    kernel: str  # its release, or a pattern
    tests: tuple


def release(version):
    """The kernel's release in `uname -r`, of the version of Ubuntu's package: 5.0.0-65-generic."""
    return re.match(r"[\d.]+-\d+", version)[0] + "-generic"


def downloads():
    """Shell commands that unpack the kernels. /lib is a link, which tar must keep."""
    for source, version, kernel, modules in PACKAGES:
        for name, digest in (("image-unsigned", kernel), ("modules", modules)):
            file = f"linux-{name}-{release(version)}_{version}_amd64.deb"
            yield (f"/usr/lib/apt/apt-helper download-file {POOL}/{source}/{file} /tmp/kernel.deb "
                   f"SHA256:{digest}\n"
                   "dpkg-deb --fsys-tarfile /tmp/kernel.deb | "
                   "tar -x -C / --keep-directory-symlink --exclude=./usr\nrm /tmp/kernel.deb\n")
        yield f"depmod {release(version)}\nupdate-initramfs -c -k {release(version)}\n"


def from_debian():
    return DEBIAN + "".join(f"from_debian {suite}\n" for suite in SUITES)


RECIPE = vm.Recipe(
    name="kernels", suite="bookworm", commands="".join(downloads()) + from_debian(), gigabytes=8,
    packages=("python3-pytest", "python3-pytest-xdist", "python3-jsonschema", "gcc", "g++",
              "libc6-dev", "make", "bubblewrap", "musl-tools", "gdb", "tmux"))


def rows(lab):
    found = [one for _, version, _, _ in PACKAGES for one in rows_of(version)]
    # Debian's own kernel is in each image.
    found += [Row("linux-6.1", "6.1.*-amd64", REPORTING), Row("nodes-6.1", "6.1.*-amd64", NODES)]
    found += [Row(f"{kind}-{end}", kernel, tests) for end, kernel in SUITES.values()
              for kind, tests in (("linux", REPORTING), ("nodes", NODES))]
    return sorted(found, key=lambda one: version_of(one.kernel))


def version_of(kernel):
    """The version as numbers, of a release or of a pattern of one."""
    return tuple(int(number) for number in re.findall(r"\d+", kernel)[:2])


def rows_of(version):
    """The rows of this version of Ubuntu's package."""
    major, minor = numbers = version_of(version)
    if numbers not in NODES_ONLY:
        yield Row(f"linux-{major}.{minor}", release(version), OLDER if numbers < (5, 5) else REPORTING)
    if numbers > (5, 10):
        yield Row(f"nodes-{major}.{minor}", release(version), NODES)


def reason(numbers):
    """Why the kernel of this version has no fence of devices, or an empty text."""
    if numbers < (5, 13):
        return "this kernel has no Landlock (Linux 5.13)"
    if numbers == (5, 13):  # Ubuntu's default
        return "Landlock is not among this kernel's security modules"
    return "this kernel's Landlock is too old (Linux 5.19)" if numbers < (5, 19) else ""


def run(lab, row):
    image = vm.image(lab, RECIPE)
    if row.tests == NODES:
        file = next(image.directory.glob(f"vmlinuz-{row.kernel}"))
        kernel = file.name.removeprefix("vmlinuz-")
        return {"kernel": kernel, **nodes_machine.run(lab, file, reason(version_of(kernel)))}
    with vm.Machine(image, lab.scratch / "machine", kernel=row.kernel) as machine:
        machine.boot()
        assert fnmatch.fnmatch(machine.must("uname -r").strip(), row.kernel)
        send_checkout(lab, machine)
        results = [tested(lab, machine, row.tests)]
        if row.tests == REPORTING:
            results += [tested(lab, machine, YAMA, f"sysctl -qw kernel.yama.ptrace_scope={scope} && ")
                        for scope in range(4)]
    facts = {"kernel": row.kernel, **results[0],
             "skipped": [line for one in results for line in one["skipped"]],
             "passed with each ptrace_scope": [one["passed"] for one in results[1:]]}
    reasons = [one["reason"] for one in results if "reason" in one]
    if reasons:
        return {**facts, "outcome": "failed", "reason": "; ".join(reasons),
                "output": "".join(one.get("output", "") for one in results)}
    return {"outcome": "passed", **facts}


def tested(lab, machine, tests, before=""):
    """Runs these tests in the machine after a shell's words. Returns the facts."""
    done = machine.ssh(f"cd {lab.checkout} && {before}pytest-3 -q -n 2 -rfs --tb=short "
                       f"--build {lab.build} {' '.join(tests)}", timeout=4 * 3600)
    found = SUMMARY.search(done.stdout)
    assert found, done.stdout[-2000:]
    facts = {"passed": int(found[1]), "seconds of the tests": found[2],
             "skipped": re.findall(r"^SKIPPED .*", done.stdout, re.MULTILINE)}
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)", done.stdout, re.MULTILINE)
    if failed or done.returncode != 0:
        facts |= {"reason": before + "; ".join(failed), "output": done.stdout[-8000:]}
    return facts


def send_checkout(lab, machine):
    """Copies the tracked files and the build to the same paths, because programs have paths of the
    build in them."""
    copy, build = (lab.scratch / "copy" / part / one.name
                   for part, one in (("checkout", lab.checkout), ("build", lab.build)))
    copy.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", lab.checkout, "archive", "HEAD"], check=True,
                             stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-C", copy, "-x"], check=True, input=archive)
    machine.must(f"mkdir -p {lab.checkout.parent} {lab.build.parent}")
    machine.send(copy, lab.checkout.parent)
    shutil.copytree(lab.build, build, symlinks=True,
                    ignore=shutil.ignore_patterns("CMakeFiles", "go-cache", "*.o", "*.a"))
    machine.send(build, lab.build.parent)
