# SPDX-License-Identifier: Apache-2.0
"""Whole Debian systems in QEMU, guarded as docs/integrations/whole-machine.md describes.

The commands come from that page. The page has the paths of an installation in /usr/local, and the
Debian package has its library elsewhere, so the paths in the commands are replaced.
"""

import dataclasses
import inspect
import shlex
import time

from lab import pages, vm
from support import packaged, places

SUITES = ("bookworm", "trixie")
# With busybox, the initramfs has another shell and another mount than without it.
RECIPES = {
    "bookworm": vm.Recipe(name="machine-bookworm", suite="bookworm"),
    "trixie": vm.Recipe(name="machine-trixie", suite="trixie", packages=("busybox",)),
}
GUARD = "/usr/lib/x86_64-linux-gnu/libcudaguard.so"
ASK = "python3 -c " + shlex.quote(packaged.ASK)
DEB = "/root/" + packaged.DEB
CUTS = 10

# Each line is a sandbox of systemd, in the words of systemd-run.
SANDBOXES = (
    "-p ProtectSystem=strict -p ProtectHome=yes -p PrivateTmp=yes",
    "-p DynamicUser=yes -p NoNewPrivileges=yes",
    "-p SystemCallFilter=@system-service -p SystemCallErrorNumber=EPERM -p LockPersonality=yes",
    "-p MemoryDenyWriteExecute=yes -p RestrictNamespaces=yes -p RestrictRealtime=yes",
    "-p PrivateDevices=yes -p PrivateNetwork=yes -p PrivateUsers=yes -p ProtectKernelTunables=yes",
    "-p ProtectProc=invisible -p ProcSubset=pid -p CapabilityBoundingSet= -p UMask=0077",
    "-p RestrictAddressFamilies=AF_UNIX -p ProtectClock=yes -p ProtectControlGroups=yes",
)
# These packages have services, setuid programs, triggers, daemons and Python programs.
PACKAGES = (
    "nginx", "sqlite3", "git", "at", "rsync", "tmux", "vim-tiny", "less", "file", "curl",
    "bind9-dnsutils", "tcpdump", "socat", "netcat-openbsd", "lsof", "psmisc", "htop", "jq", "zip",
    "unzip", "xz-utils", "bzip2", "gawk", "bc", "man-db", "dbus-user-session", "polkitd",
    "acl", "attr", "ethtool", "iproute2", "iptables", "nftables", "logrotate", "rsyslog",
    "openssl", "gnupg", "make", "patch", "gcc", "python3-yaml", "python3-requests", "perl",
    "ruby", "lua5.4", "tcl", "php-cli", "redis-server", "memcached", "fuse3",
)
# Prints each process's program, and whether it has loaded the guard. Kernel threads have none.
PROCESSES = """for process in /proc/[0-9]*; do
  program=$(readlink "$process/exe") || continue
  if grep -qs libcudaguard "$process/maps"; then echo "guarded $program"
  elif [ -e "$process/exe" ]; then echo "unguarded $program"; fi
done"""


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    suite: str
    text: str  # of the function that checks it, so that a changed check runs again


def rows(lab):
    return [Row(f"{suite}-{name}", suite, inspect.getsource(check))
            for suite in SUITES for name, check in CHECKS.items()]


def run(lab, row):
    image = vm.image(lab, RECIPES[row.suite])
    with vm.Machine(image, lab.scratch) as machine:
        machine.boot()
        facts = CHECKS[row.name.removeprefix(row.suite + "-")](lab, machine)
        return {"outcome": "passed", "kernel": machine.must("uname -r").strip(), **facts}


def package(lab):
    """The Debian package: the one beside the build, otherwise the checkout's."""
    names = [directory.parent / "test-release" / packaged.DEB
             for directory in (lab.build, lab.checkout / "build/ci")]
    found = [name for name in names if name.exists()]
    if not found:
        raise RuntimeError(f"no {names[0]}: scripts/test makes it")
    return found[0]


def page(number):
    """A command block of the page, for the library of the Debian package."""
    blocks = places.blocks("sh", "whole-machine")
    assert len(blocks) == 4, "the page has other commands"
    return blocks[number].replace("/usr/local/lib/libcudaguard", GUARD.removesuffix(".so"))


def install(lab, machine):
    """Installs the package with apt."""
    machine.send(package(lab), "/root")
    machine.must(f"apt-get update -q && apt-get install -q -y {DEB}")


def guard(machine):
    """Follows the page's steps 1, 2 and 5."""
    machine.must(page(0))
    expect(machine.ssh(page(1)), "100", code=0)
    expect(machine.ssh(page(2)), "100", code=0)
    assert machine.must("cat /etc/ld.so.preload") == GUARD + "\n"


def expect(done, answer, code=None):
    """Fails unless a line of the output begins with this answer."""
    found = any(line.startswith(answer) for line in done.stdout.splitlines())
    assert found and code in (None, done.returncode), (
        f"expected {answer}, and it ended with {done.returncode}: {done.stdout[-1500:]}")


def all_guarded(machine):
    """Fails if a process has not loaded the guard. Returns how many have."""
    lines = machine.ssh(PROCESSES).stdout.splitlines()
    unguarded = [line for line in lines if not line.startswith("guarded ")]
    assert lines and not unguarded, unguarded
    return len(lines)


def boots(lab, machine):
    """The guarded machine boots, and each process, user and service is guarded."""
    install(lab, machine)
    expect(machine.ssh(ASK), packaged.NONE, code=1)
    guard(machine)
    before = machine.must("systemctl --failed --plain --no-legend")
    machine.reboot()
    machine.ssh("systemctl is-system-running --wait")
    failed = machine.must("systemctl --failed --plain --no-legend")
    assert failed == before, f"failed units: {failed}, and unguarded: {before}"
    guarded = all_guarded(machine)
    done = {}
    for name, user, command in (
            ("ssh", "root", ASK), ("ssh as a user", "alice", ASK),
            ("sudo", "alice", "sudo -n " + ASK), ("sudo -u", "root", "sudo -u alice " + ASK),
            ("su", "root", f"su alice -c {shlex.quote(ASK)}"),
            ("su -", "root", f"su - alice -c {shlex.quote(ASK)}"),
            ("login shell", "alice", f"bash -lc {shlex.quote(ASK)}"),
            ("setpriv", "root", "setpriv --reuid alice --clear-groups --no-new-privs " + ASK)):
        expect(machine.ssh(command, user=user), "100", code=0)
        done[name] = "100"
    expect(machine.ssh("CUDAGUARD_POLICY=OFF " + ASK), packaged.NONE, code=1)
    sudo = machine.must("sudo sleep 60 >/dev/null 2>&1 & sleep 5; "
                        "grep -c libcudaguard /proc/$(pgrep -o -x sudo)/maps")
    assert int(sudo) > 0, "sudo is unguarded"
    machine.must("printf '%s\\n' " + shlex.quote(f"* * * * * alice {ASK} >/tmp/cron 2>&1") +
                 " >/etc/cron.d/ask")
    expect(machine.ssh("for i in $(seq 60); do sleep 3; [ ! -s /tmp/cron ] || break; done; "
                       "sleep 5; cat /tmp/cron"), "100", code=0)
    done["cron"] = "100"
    for words in SANDBOXES:
        expect(machine.ssh(f"systemd-run --quiet --wait --pipe {words} {ASK}"), "100", code=0)
        done[words] = "100"
    return {"guarded processes": guarded, "answers": done}


def packages(lab, machine):
    """apt installs packages on a guarded machine. Then the package is upgraded and removed."""
    install(lab, machine)
    guard(machine)
    failed = []
    for name in PACKAGES:
        done = machine.ssh("DEBIAN_FRONTEND=noninteractive apt-get install -q -y "
                           f"--no-install-recommends {name}", timeout=1800)
        if done.returncode != 0 or "ld.so" in done.stdout:
            failed.append(f"{name}: {done.stdout[-600:]}")
    assert not failed, failed
    machine.must("dpkg --audit")
    expect(machine.ssh(f"apt-get install -q -y --reinstall {DEB} && {ASK}"), "100", code=0)
    removed = machine.must("apt-get purge -q -y cudaguard")
    assert "/etc/ld.so.preload no longer names" in removed, removed
    assert "ERROR: ld.so" not in removed, removed
    expect(machine.ssh(ASK), packaged.NONE, code=1)
    left = machine.must("dpkg -l cudaguard 2>/dev/null | grep ^i; find / -xdev -name '*cudaguard*' "
                        f"-not -path {DEB} -not -path '/var/*' -not -path '/root/*'; true")
    assert left == "", left
    return {"installed": list(PACKAGES)}


def power_cuts(lab, machine):
    """The power fails during an upgrade of a guarded machine, which then still boots guarded."""
    install(lab, machine)
    guard(machine)
    machine.must("sync")
    start = time.monotonic()
    machine.must(f"dpkg -i {DEB}")
    length = time.monotonic() - start
    cuts = []
    for number in range(CUTS):
        with machine.background(f"dpkg -i {DEB}"):
            time.sleep(length * (number + 0.5) / CUTS)
            machine.cut_power()
        machine.boot()
        state = machine.must("dpkg-query -W -f '${Status}' cudaguard")
        all_guarded(machine)
        expect(machine.ssh(ASK), "100", code=0)
        # dpkg refuses to configure a half-unpacked package, which must be installed again first.
        machine.must(f"dpkg -i {DEB} && dpkg --configure -a")
        cuts.append(state)
    return {"seconds of dpkg": round(length, 1), "package after each cut": cuts}


def recovery(lab, machine):
    """The library is cut short, so no program starts. The page's command in the initramfs helps."""
    install(lab, machine)
    guard(machine)
    # As after an interrupted `cp`. No program starts after this one, so it also writes to the disk.
    machine.must("sync")
    cut = f"import os; os.truncate('{GUARD}', 40000); os.fsync(os.open('{GUARD}', os.O_RDONLY))"
    machine.ssh("python3 -c " + shlex.quote(cut))
    broken = machine.ssh("true", timeout=120)
    assert broken.returncode != 0, broken
    machine.cut_power()
    (block,) = [text for text in places.blocks("text", "whole-machine") if "/root/etc" in text]
    (command,) = [line.split("#")[0].strip() for line in block.splitlines() if "Debian" in line]
    machine.start("break=bottom")
    machine.expect("(initramfs)")
    machine.type(command)
    machine.type("echo code $?; sync")
    machine.expect("code 0", timeout=120)
    machine.type("exit")
    machine.wait()
    assert machine.must("cat /etc/ld.so.preload") == ""
    machine.must(f"apt-get install -q -y --reinstall {DEB}")
    guard(machine)
    machine.reboot()
    all_guarded(machine)
    return {"command": command}


def docker(lab, machine):
    """dockerd is guarded. A container has its own /etc, so its program finds the guard only by the
    command of docs/integrations/containers.md."""
    install(lab, machine)
    guard(machine)
    # Since Debian 13, docker-cli has the command docker.
    machine.must("DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "
                 "docker.io apparmor $(apt-cache pkgnames docker-cli)", timeout=1800)
    machine.must("systemctl restart docker")
    assert int(machine.must("grep -c libcudaguard /proc/$(pgrep -o -x dockerd)/maps")) > 0
    machine.must("tar -C / --exclude=etc/ld.so.preload --exclude='*cudaguard*' "
                 "--exclude=lib/modules --exclude=lib/firmware --exclude=share "
                 "-c bin lib lib64 sbin usr etc | docker import - plain", timeout=1800)
    expect(machine.ssh(f"docker run --rm plain {ASK}"), packaged.NONE, code=1)
    machine.send(package(lab).with_name(packaged.TARBALL), "/root")
    text = places.page("containers")
    unpack = pages.filled(pages.span(text, "tar -xzf"), {"FILE": f"/root/{packaged.TARBALL}"})
    start = pages.filled(pages.block(text, "An unchanged image"),
                         {"IMAGE": "plain", "PROGRAM": ASK})
    machine.must(f"mkdir /opt/cudaguard && {unpack}")
    expect(machine.ssh(start), "100", code=0)
    return {"versions": machine.must("dpkg-query -W docker.io containerd runc").splitlines()}


CHECKS = {"boots": boots, "recovery": recovery, "power-cuts": power_cuts, "packages": packages,
          "docker": docker}
