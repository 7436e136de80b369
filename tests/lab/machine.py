# SPDX-License-Identifier: Apache-2.0
"""Whole Debian systems in QEMU, guarded as docs/integrations/whole-machine.md describes.

The commands come from that page. The page has the paths of an installation in /usr/local, and the
Debian package has its library elsewhere, so the paths in the commands are replaced.
"""

import dataclasses
import inspect
import re
import shlex
import subprocess
import time

from lab import pages, vm
from support import packaged, places

SUITES = ("bookworm", "trixie")
# NVIDIA's own nvidia-smi, and the NVML that it loads.
NVIDIA = {"packages": ("nvidia-smi", "libnvidia-ml1"),
          "components": "main contrib non-free non-free-firmware"}
# With busybox, the initramfs has another shell and another mount than without it.
RECIPES = {
    "bookworm": vm.Recipe(name="machine-bookworm", suite="bookworm", **NVIDIA),
    "trixie": vm.Recipe(name="machine-trixie", suite="trixie", components=NVIDIA["components"],
                        packages=(*NVIDIA["packages"], "busybox")),
    "bookworm-selinux": vm.Recipe(
        name="machine-bookworm-selinux", suite="bookworm",
        packages=("selinux-basics", "selinux-policy-default", "auditd", "nginx-light", "postfix",
                  "bind9", "memcached", "rsyslog"),
        commands="setfiles -F /etc/selinux/default/contexts/files/file_contexts /\n"),
}
# The row of an image of its own may need words for the kernel.
KERNEL_WORDS = {"bookworm-selinux": ("security=selinux", "enforcing=1")}
GUARD = "/usr/lib/x86_64-linux-gnu/libcudaguard.so"
ASK = "python3 -c " + shlex.quote(packaged.ASK)
DEB = "/root/" + packaged.DEB
CORE = "libc6 libc-bin systemd openssh-server passwd sudo"  # what a machine needs to go on
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
    "-p RootDirectory=/srv/root -p 'BindReadOnlyPaths=/usr /bin /lib /lib64 /etc'",
)
# This one has its own /etc without the guard's line, as docs/integrations/whole-machine.md says.
OTHER_ETC = ("-p RootDirectory=/srv/other "
             "-p 'BindReadOnlyPaths=/usr /bin /lib /lib64 /etc/ld.so.cache'")
# How root starts a program of a user.
WAYS = ("sudo -u {user} {ask}", "su {user} -c {quoted}", "su - {user} -c {quoted}",
        "setpriv --reuid {user} --init-groups --no-new-privs {ask}",
        "systemd-run --quiet --wait --pipe -p User={user} {ask}")
# These packages have services, setuid programs, triggers, daemons and Python programs.
PACKAGES = (
    "nginx", "sqlite3", "git", "at", "rsync", "tmux", "vim-tiny", "less", "file", "curl",
    "bind9-dnsutils", "tcpdump", "socat", "netcat-openbsd", "lsof", "psmisc", "htop", "jq", "zip",
    "unzip", "xz-utils", "bzip2", "gawk", "bc", "man-db", "dbus-user-session", "polkitd",
    "acl", "attr", "ethtool", "iproute2", "iptables", "nftables", "logrotate", "rsyslog",
    "openssl", "gnupg", "make", "patch", "gcc", "python3-yaml", "python3-requests", "perl",
    "ruby", "lua5.4", "tcl", "php-cli", "redis-server", "memcached", "fuse3",
)
# Prints each process's program, and whether it has loaded the guard. Kernel threads have none. While
# a process starts, its ld.so has not loaded the guard yet, so it has some seconds for that.
PROCESSES = """for process in /proc/[0-9]*; do
  for second in 1 2 3 4 5; do
    program=$(readlink "$process/exe") || continue 2
    grep -qs libcudaguard "$process/maps" && echo "guarded $program" && continue 2
    sleep 1
  done
  [ ! -e "$process/exe" ] || echo "unguarded $program"
done"""


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    suite: str
    text: str  # of the function that checks it, so that a changed check runs again


def rows(lab):
    return [Row(f"{suite}-{name}", suite, inspect.getsource(check))
            for suite in SUITES for name, check in CHECKS.items()
            if check is not selinux or f"{suite}-{name}" in RECIPES]


def run(lab, row):
    image = vm.image(lab, RECIPES.get(row.name, RECIPES[row.suite]))
    with vm.Machine(image, lab.scratch, KERNEL_WORDS.get(row.name, ())) as machine:
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


def each(machine, commands, answer, user="root"):
    """Fails unless each command prints the answer. One login runs all of them, because it takes
    seconds."""
    script = "\n".join(f"echo; echo === {shlex.quote(command)}; {command} 2>&1"
                       for command in commands)
    parts = machine.ssh(script, user=user).stdout.split("\n=== ")[1:]
    wrong = [part for part in parts if answer not in part.splitlines()[1:]]
    assert len(parts) == len(commands) and not wrong, f"expected {answer}: {wrong or parts}"


def started(machine, user, answer):
    """Fails unless the user's program prints the answer, however it is started."""
    each(machine, (ASK, f"bash -lc {shlex.quote(ASK)}"), answer, user)
    each(machine, [way.format(user=user, ask=ASK, quoted=shlex.quote(ASK)) for way in WAYS], answer)


def by_cron(machine, answers):
    """Fails unless cron's program of each user prints the answer."""
    lines = [f"* * * * * {user} {ASK} >/tmp/{user}.new 2>&1; mv /tmp/{user}.new /tmp/cron-{user}\n"
             for user in answers]
    machine.must("printf %s " + shlex.quote("".join(lines)) + " >/etc/cron.d/ask")
    files = " ".join(f"/tmp/cron-{user}" for user in answers)
    machine.ssh(f"for i in $(seq 300); do sleep 3; ls {files} && break; done; rm /etc/cron.d/ask")
    for user, answer in answers.items():
        expect(machine.ssh(f"cat /tmp/cron-{user}"), answer)


def in_sandboxes(machine, words, answer, sandboxes=SANDBOXES):
    """Fails unless a unit's program prints the answer in each sandbox."""
    machine.must("mkdir -p /srv/root/etc /srv/other/etc")
    each(machine, [f"systemd-run --quiet --wait --pipe {sandbox} {words} {ASK}"
                   for sandbox in sandboxes], answer)


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
    each(machine, (ASK,), "100")
    each(machine, (ASK, "sudo -n " + ASK), "100", "alice")
    started(machine, "alice", "100")
    expect(machine.ssh("CUDAGUARD_POLICY=OFF " + ASK), packaged.NONE, code=1)
    sudo = machine.must("sudo sleep 60 >/dev/null 2>&1 & sleep 5; "
                        "grep -c libcudaguard /proc/$(pgrep -o -x sudo)/maps")
    assert int(sudo) > 0, "sudo is unguarded"
    by_cron(machine, {"alice": "100"})
    in_sandboxes(machine, "", "100")
    return {"guarded processes": guarded, "ways": ["ssh", "cron", *WAYS, *SANDBOXES]}


# Prints the answers of a parent and of its child.
SERVE = """import ctypes, subprocess, sys
print(sys.argv[1:] or "parent", ctypes.CDLL("libcuda.so.1").cuInit(0), flush=True)
if not sys.argv[1:]:
    subprocess.run(["./vllm-worker", __file__, "child"])
"""
# Prints cuInit's answer, and how many GPUs there are.
COUNT = "python3 -c " + shlex.quote(
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); "
    "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)")
# Prints how often a program looks for the device of NVIDIA's driver.
OPENS = ("strace -f -qq -e trace=%file -e signal=none -o /tmp/opens-$$ {} >/dev/null 2>&1; "
         "grep -c '\"/dev/nvidiactl' /tmp/opens-$$")
NVIDIA_SMI = "env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/nvidia/current nvidia-smi"
COPY = NVIDIA_SMI.replace("nvidia-smi", "./nvidia-smi")


def install_driver(lab, machine):
    """Installs the fake driver, which has eight GPUs. ld.so finds it before NVIDIA's own NVML."""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        machine.send(lab.build / "tests/fakes/lazy" / name, "/usr/local/lib")
    machine.must("ldconfig")


def status(machine, code, *texts):
    """Fails unless `system status` prints the texts."""
    done = machine.ssh("cudaguard system status")
    assert done.returncode == code and all(text in done.stdout for text in texts), (
        f"expected {code} and {texts}: {done}")


def login_node(lab, machine):
    """The login node of docs/rules.md: only nvidia-smi and one group get CUDA."""
    install(lab, machine)
    install_driver(lab, machine)
    machine.must("groupadd gpu && useradd -m -s /bin/bash -G gpu bob && "
                 "cp -a /home/alice/.ssh /home/bob && chown -R bob: /home/bob")
    machine.must("cp -L /usr/bin/nvidia-smi .", user="alice")
    for user in ("root", "alice", "bob"):
        expect(machine.ssh(COUNT, user=user), "0 0 8", code=0)
    for program in (NVIDIA_SMI, COPY):
        assert opens(machine, "alice", program) > 0
    write_rules(lab, machine)
    guard(machine)
    machine.reboot()
    status(machine, 0, "restart due: no")
    guarded = all_guarded(machine)
    rules_hold(machine)
    return {"guarded processes": guarded, "roles": roles(lab, machine)}


def upgrade(lab, machine):
    """apt upgrades a guarded machine and then cudaguard, which is disabled and removed."""
    install(lab, machine)
    install_driver(lab, machine)
    expect(machine.ssh(ASK), "0", code=0)
    guard(machine)
    apt = "DEBIAN_FRONTEND=noninteractive apt-get"
    done = machine.must(f"{apt} upgrade -q -y && {apt} install -q -y --reinstall {CORE}")
    machine.must("dpkg --audit")
    machine.reboot()
    status(machine, 0, "restart due: no")
    machine.send(packaged.other_version(package(lab), "0.99", lab.scratch), "/root")
    done += machine.must("apt-get install -q -y /root/0.99.deb")
    status(machine, 1, "whose file was replaced or removed", "restart due: ")
    expect(machine.ssh(ASK), "100", code=0)
    machine.must(page(3))
    machine.reboot()
    status(machine, 1, "/etc/ld.so.preload names no guard")
    expect(machine.ssh(ASK), "0", code=0)
    machine.must(page(2))
    done += machine.must("apt-get remove -q -y cudaguard")
    assert f"/etc/ld.so.preload no longer names {GUARD}" in done, done
    assert "ERROR: ld.so" not in done + machine.must("ls / 2>&1; test ! -e /etc/ld.so.preload")
    expect(machine.ssh(ASK), "0", code=0)
    return {"unpacked": sorted(set(re.findall(r"Unpacking (\S+) .* over ", done)))}


def write_rules(lab, machine):
    """Writes the page's rules into the machine's file. On Debian, the path of nvidia-smi is a link,
    so the page's next command prints the path for the rule."""
    text = (lab.checkout / "docs/rules.md").read_text()
    rules = pages.block(text, having="VALIDATE group=gpu gpus=")
    path = machine.must(pages.span(text, "readlink")).strip()
    machine.must("printf %s " + shlex.quote(pages.filled(rules, {"/usr/bin/nvidia-smi": path})) +
                 " >/etc/cudaguard.conf")


def opens(machine, user, command):
    """How often a user's program looks for the device of NVIDIA's driver."""
    return int(machine.ssh(OPENS.format(command), user=user).stdout.split()[-1])


def rules_hold(machine):
    """Fails unless each process gets what the machine's file says."""
    expect(machine.ssh(COUNT), "100 ", code=0)
    expect(machine.ssh(COUNT, user="bob"), "0 0 2", code=0)
    started(machine, "alice", "100")
    started(machine, "bob", "0")
    by_cron(machine, {"root": "100", "alice": "100", "bob": "0"})
    in_sandboxes(machine, "", "100")
    # In a user namespace, a process has no group but its own.
    with_groups = [sandbox for sandbox in SANDBOXES if "PrivateUsers" not in sandbox]
    in_sandboxes(machine, "-p User=bob", "0", with_groups)
    in_sandboxes(machine, "-p User=bob", "100", set(SANDBOXES) - set(with_groups))
    # A variable narrows, and does not widen.
    each(machine, ("CUDAGUARD_POLICY=OFF " + ASK, "cudaguard run --gpus 0 -- " + ASK,
                   "sudo -n " + ASK), "100", "alice")
    each(machine, ("CUDAGUARD_POLICY=FORCE_CPU " + ASK, "cudaguard run -- " + ASK), "100", "bob")
    # The rule means nvidia-smi itself, of whichever user, and no copy.
    assert opens(machine, "alice", COPY) == 0
    for user in ("alice", "root"):
        assert opens(machine, user, NVIDIA_SMI) > 0
    each(machine, (f"systemd-run --quiet --wait --pipe {OTHER_ETC} {ASK}",), "0")


def roles(lab, machine):
    """A parent without a GPU, and its workers with one, by the commands of the pages. The machine's
    file decides who may."""
    workers, rules = ((lab.checkout / f"docs/{name}.md").read_text()
                      for name in ("workers", "rules"))
    (by_role,) = [line for line in pages.block(workers, "A parent without a GPU").splitlines()
                  if line.startswith("cudaguard run --children=gpu")]
    by_rule = pages.block(rules, having="-- ./router").splitlines()[0]
    found = {}
    for user, child in (("alice", "100"), ("bob", "0")):
        machine.must("cp -L /usr/bin/python3 vllm-worker; printf %s " + shlex.quote(SERVE) +
                     " >serve.py; printf '#!/bin/sh\\nexec python3 serve.py\\n' >router; "
                     "chmod +x router", user=user)
        for command in (pages.filled(by_role, {"python ": "python3 "}), by_rule):
            printed = machine.must(command + " 2>/dev/null", user=user).splitlines()
            assert printed == ["parent 100", f"['child'] {child}"], (user, command, printed)
            found[f"{user}: {command}"] = printed
    return found


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


# As after an interrupted `cp`. No program starts after this one, so it also writes to the disk.
CUT = "python3 -c " + shlex.quote(
    f"import os; os.truncate('{GUARD}', 40000); os.fsync(os.open('{GUARD}', os.O_RDONLY))")


def recovery(lab, machine):
    """The library is cut short, so no program starts. The page's commands help: in a root shell
    that is open, and in the initramfs."""
    install(lab, machine)
    guard(machine)
    failed = "When every command prints an error, or fails"
    by_shell, = [text for text in places.blocks("text", "whole-machine", failed)
                 if text.startswith(":")]
    shell = subprocess.run(
        machine.words("bash"), text=True, capture_output=True, timeout=600, check=False,
        input=f"{CUT}\n/bin/true; echo broken $?\n{by_shell}\n/bin/true; echo mended $?\n")
    broken, mended = re.findall(r"(?m)^(?:broken|mended) (\d+)$", shell.stdout)
    assert (broken != "0", mended) == (True, "0"), shell
    again(machine)
    machine.must("sync")
    machine.ssh(CUT)
    broken_ssh = machine.ssh("true", timeout=120)
    assert broken_ssh.returncode != 0, broken_ssh
    machine.cut_power()
    block = pages.block(places.page("whole-machine"), failed, "/root/etc")
    (command,) = [line.split("#")[0].strip() for line in block.splitlines() if "Debian" in line]
    machine.start("break=bottom")
    machine.expect("(initramfs)")
    machine.type(command)
    machine.type("echo code $?; sync")
    machine.expect("code 0", timeout=120)
    machine.type("exit")
    machine.wait()
    assert machine.must("cat /etc/ld.so.preload") == ""
    again(machine)
    machine.reboot()
    all_guarded(machine)
    return {"code of a program": broken, "commands": [by_shell.strip(), command]}


def again(machine):
    """Installs the package and the guard again, as the page says."""
    machine.must(f"apt-get install -q -y --reinstall {DEB}")
    guard(machine)


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


# The domain of a process that SELinux confines, if the process has loaded the guard.
DOMAINS = """for process in /proc/[0-9]*; do
  grep -qs libcudaguard "$process/maps" && cut -d: -f3 "$process/attr/current"
done; true"""
# Systemd starts this copy of Python in the domain of nginx.
CONFINED = ("cp -L /usr/bin/python3 /usr/local/bin/confined && "
            "chcon -t httpd_exec_t /usr/local/bin/confined")
ASK_CONFINED = ("systemd-run --quiet --wait --unit ask{} {} /usr/local/bin/confined -c " +
                shlex.quote("print(open('/proc/self/attr/current').read()); " + packaged.ASK) +
                "; journalctl --sync; journalctl -u ask{} -o cat")


def selinux(lab, machine):
    """SELinux confines services, which start guarded, obey the machine's file and work."""
    assert machine.must("getenforce").strip() == "Enforcing"
    install(lab, machine)
    install_driver(lab, machine)
    machine.must(f"restorecon -R /usr/local && {CONFINED}")
    before = machine.must("systemctl --failed --plain --no-legend")
    expect(machine.ssh(ASK_CONFINED.format(1, "", 1)), "0")
    guard(machine)
    files = f"/etc/ld.so.preload {GUARD} /usr/lib/x86_64-linux-gnu/cudaguard"
    assert machine.must(f"restorecon -n -v -R {files}") == ""
    machine.reboot()
    machine.ssh("systemctl is-system-running --wait")
    assert machine.must("systemctl --failed --plain --no-legend") == before
    guarded = all_guarded(machine)
    domains = sorted(set(machine.must(DOMAINS).split()))
    assert {"crond_t", "httpd_t", "memcached_t", "named_t", "postfix_master_t", "sshd_t",
            "syslogd_t"} <= set(domains), domains
    expect(machine.ssh(ASK_CONFINED.format(2, "", 2)), "100")
    expect(machine.ssh(ASK_CONFINED.format(3, "-p Environment=CUDAGUARD_POLICY=OFF", 3)), "0")
    machine.must("printf 'FORCE_CPU\nVALIDATE program=/usr/local/bin/confined report=syslog:\n' "
                 ">/etc/cudaguard.conf")
    expect(machine.ssh(ASK_CONFINED.format(4, "", 4)), "0")
    assert "/usr/local/bin/confined" in machine.must("journalctl -t cudaguard -o cat")
    each(machine, ("cudaguard run --fence=devices -- " + ASK, ASK), "100", "alice")
    denied = machine.must("grep -a denied /var/log/audit/audit.log | grep -a 'preload\\|cudaguard'"
                          "; true")
    assert denied == "", denied
    # sshd changes the domain, so that ld.so treats a login shell as a setuid program.
    machine.must(f"printf 'SetEnv LD_PRELOAD={GUARD}\n' >/etc/ssh/sshd_config.d/lab.conf && "
                 "systemctl restart ssh")
    assert machine.must("echo \"preload:$LD_PRELOAD\"", user="alice") == "preload:\n"
    return {"guarded processes": guarded, "domains": domains}


CHECKS = {"login-node": login_node, "upgrade": upgrade, "boots": boots, "recovery": recovery,
          "power-cuts": power_cuts, "packages": packages, "docker": docker, "selinux": selinux}
