# SPDX-License-Identifier: Apache-2.0
"""Opens GPU device nodes under the fence of devices in a small machine: a kernel and an initramfs
with the launcher and the tests' programs. QEMU runs it in seconds, where Debian needs minutes."""

import re
import shutil
import subprocess

from lab import vm
from support import nodes

# A list of GPUs leaves the second one in PCI order: its PCI address, UUID and minor. The minors are
# those of /dev/null's driver that open.
GPUS = [("0000:%02x:00.0" % bus, nodes.UNKNOWN, minor) for bus, minor in ((7, 8), (15, 5), (71, 9))]
LISTED = ("/dev/nvidia5", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
          "/dev/nvidia-modeset")
UNLISTED = ("/dev/nvidia8", "/dev/nvidia9", "/dev/dri/card0", "/dev/dri/renderD128", "/dev/kfd",
            "/dev/nvidia-caps/nvidia-cap1")
# The small machine has no tar.
MADE = (*nodes.NODES, *((path, 1, 3) for path in (*nodes.PATHS, *nodes.OTHERS[2:], LISTED[3])),
        *((f"/dev/nvidia{minor}", 1, minor) for _, _, minor in GPUS))
MAKE = "".join("mkdir -p $(dirname %s)\nmknod -m 666 %s c %d %d\n" % (path, path, major, minor)
               for path, major, minor in MADE)

# Each prints "WAY PATH ANSWER" for each open, after a line with its name and before its exit code.
# The shell has a /dev with fake nodes. $run starts its arguments under the fence.
SCRIPT = f"""
mount -t proc proc /proc
mount -t tmpfs tmp /tmp
{nodes.ORDINARY}
{MAKE}
exec 2>&1
cd /
nodes="{' '.join(nodes.PATHS)}"
run="/build/bin/cudaguard run --log=off --fence=devices --"
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
chmod 1777 /tmp
cp /opens_static /tmp/setuid && chmod 4755 /tmp/setuid
mknod -m 600 /dev/nvidia1 c 1 3
mkdir -p /bound/dev /bound/dri && touch /bound/one
mount --bind /dev /bound/dev
mount --bind /dev/dri /bound/dri
mount --bind /dev/nvidia0 /bound/one
say() {{ echo "=== $*"; shift; "$@" && echo "rc 0" || echo "rc $?"; }}
set +e
say fence $run true
$run true || {{ echo "=== end" && poweroff -f; }}
say control /opens_static $nodes
say static $run /opens_static $nodes
say dynamic $run /opens $nodes
[ ! -e /opens_musl_static ] || say musl $run /opens_musl_static $nodes
say environment $run env -i /opens_static $nodes
say user $nobody $run /opens_static $nodes
say user-control $nobody /opens_static $nodes
say setuid-control $nobody /tmp/setuid /dev/nvidia1
say setuid $run $nobody /tmp/setuid /dev/nvidia1
bound="/bound/dev/nvidia0 /bound/dev/dri/card0 /bound/dri/card0 /bound/one /proc/self/root/dev/kfd"
say bound-control /opens_static $bound
say bound $run /opens_static $bound
{nodes.driver_files(GPUS)}
listed="{' '.join(LISTED)}"
unlisted="{' '.join(UNLISTED)}"
list="/build/bin/cudaguard run --log=off --fence=devices --gpus 1 --"
say listed-control /opens_static $listed
say listed $list /opens_static $listed
say unlisted-control /opens_static $unlisted
say unlisted $list /opens_static $unlisted
say unlisted-environment $list env -i /opens_static $unlisted
say unlisted-user-control $nobody /opens_static $unlisted
say unlisted-user $nobody $list /opens_static $unlisted
mkfifo /tmp/started /tmp/made
later() {{ "$@" sh -c 'echo >/tmp/started; read line </tmp/made; exec /opens_static /dev/nvidia9' & }}
for fenced in "" "$run"; do
  rm -f /dev/nvidia9
  later $fenced
  read line </tmp/started
  mknod -m 666 /dev/nvidia9 c 1 3
  echo "=== later${{fenced:+-fenced}}"
  echo >/tmp/made
  wait $!
  echo "rc $?"
done
say others /opens_static {' '.join(nodes.OTHERS)}
say others-fenced $run /opens_static {' '.join(nodes.OTHERS)}
say mknod $run mknod /tmp/node c 1 3
say openat2 $run /opens_static --openat2-3 /dev/nvidia0
say uring-control /uring --open /dev/nvidia0
say uring $run /uring --open /dev/nvidia0
say ring-control /uring --leave /uring --inherited /dev/nvidia0
say ring /uring --leave $run /uring --inherited /dev/nvidia0
echo "=== end"
"""
# What has each node opened, and what none.
OPENED = ("control", "user-control", "setuid-control", "bound-control", "later", "others",
          "listed-control", "unlisted-control", "unlisted-user-control", "uring-control",
          "ring-control")
REFUSED = ("static", "dynamic", "musl", "environment", "user", "setuid", "bound", "later-fenced",
           "unlisted", "unlisted-environment", "unlisted-user", "ring")
# How no file opens under the fence.
REFUSED_ALWAYS = re.compile(r"openat2|\S+-3 ")


def with_libraries(program, root, name=None):
    """Copies a program of this machine and what ld.so loads with it."""
    shutil.copy(program, root / (name or program.lstrip("/")))
    shown = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           text=True, check=False).stdout  # static programs: 1
    for library in re.findall(r"(/\S+) \(0x", shown):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def initramfs(lab):
    """Packs the programs. The script is /init."""
    root = lab.scratch / "root"
    for name in ("bin", "usr/bin", "dev", "proc", "tmp", "build"):
        (root / name).mkdir(parents=True)
    shutil.copytree(lab.build / "bin", root / "build/bin", symlinks=True)
    shutil.copytree(lab.build / "lib", root / "build/lib", symlinks=True)
    with_libraries("/usr/bin/busybox", root)
    with_libraries("/usr/bin/setpriv", root)
    for name in ("opens", "opens_static", "opens_musl_static", "uring"):
        program = lab.build / "tests/fence" / name
        if program.exists():
            with_libraries(str(program), root, name)
    init = root / "init"
    init.write_text("#!/usr/bin/busybox sh\nbusybox=/usr/bin/busybox\n$busybox --install -s /bin\n"
                    "export PATH=/usr/bin:/bin\n" + SCRIPT + "poweroff -f\n")
    init.chmod(0o755)
    packed = lab.scratch / "initramfs"
    names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
    with open(packed, "wb") as stream:
        subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], check=True, cwd=root,
                       input=names.encode(), stdout=stream)
    return packed


def console(kernel, packed):
    """What the machine prints until it switches itself off."""
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64", "-machine", "pc", "-accel",
         "tcg", "-cpu", "max,la57=off", "-m", "1024", "-display", "none", "-monitor", "none",
         "-serial", "stdio", "-no-reboot", "-kernel", kernel, "-initrd", packed, "-append",
         "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        timeout=vm.BOOT_SECONDS)
    return done.stdout.decode(errors="replace").replace("\r", "")


def sections(text):
    """{name: its lines}."""
    parts = re.split(r"(?m)^=== (\S+).*\n", text)
    return dict(zip(parts[1::2], (part.splitlines() for part in parts[2::2])))


def answers(lines):
    return [line.rsplit(" ", 1)[1] for line in lines
            if re.match(r"\S+ /\S+ (opened|E\w+|errno=\d+)$", line)]


def is_opened(line):
    return line.endswith(" opened")


def is_refused(line):
    """Landlock refuses with EACCES. The fence has no io_uring, and perhaps no openat2."""
    absent = line.startswith(("openat2", "uring")) and line.endswith(" ENOSYS")
    return absent or line.endswith(" EACCES")


def faults(found, why):
    """What is not as it must be. `why` is the reason for which there is no fence, or empty."""
    said = "\n".join(found.get("fence", []))
    if why:
        return [] if why in said and "rc 125" in said else [f"the fence: {said}"]
    wrong = [] if said == "rc 0" else [f"the fence: {said}"]
    for names, may in ((OPENED, is_opened), (REFUSED, is_refused)):
        for name in names:
            lines = found.get(name, [])
            if not answers(lines) and name != "musl":
                wrong.append(f"{name}: nothing")
            wrong += [f"{name}: {line}" for line in lines if answers([line]) and not may(line)]
    for name in REFUSED:
        control = {"user": "user-control", "setuid": "setuid-control", "bound": "bound-control",
                   "later-fenced": "later", "unlisted": "unlisted-control",
                   "unlisted-environment": "unlisted-control",
                   "unlisted-user": "unlisted-user-control", "ring": "ring-control"}
        if name in found and len(answers(found[name])) != len(answers(
                found.get(control.get(name, "control"), []))):
            wrong.append(f"{name}: another number of opens than without the fence")
    for name, control in ("others-fenced", "others"), ("listed", "listed-control"):
        lines = [line for line in found.get(name, []) if answers([line])]
        if len(lines) != len(answers(found.get(control, []))) or any(
                not is_opened(line) and not (is_refused(line) and REFUSED_ALWAYS.match(line))
                for line in lines):
            wrong.append(name + ": refused")
    if found.get("uring") != ["setup ENOSYS", "rc 0"]:
        wrong.append(f"uring: {found.get('uring')}")
    if found.get("openat2", [])[:-1] not in (["openat2-3 /dev/nvidia0 ENOSYS"],
                                             ["ioctl EACCES", "openat2-3 /dev/nvidia0 opened"]):
        wrong.append(f"openat2: {found.get('openat2')}")
    if found.get("mknod", [""])[-1] != "rc 1":
        wrong.append("mknod")
    return wrong


def run(lab, kernel, why):
    """The facts of a row. `kernel` is the file."""
    text = console(kernel, initramfs(lab))
    found = sections(text)
    wrong = faults(found, why) + ([] if "end" in found else ["it did not end"])
    facts = {"fence of devices": "refused: " + why if why else "holds",
             "opens refused": sum(len(answers(found.get(name, []))) for name in REFUSED)
             if not why else 0,
             "mode 3 of openat2": found.get("openat2", [])[:-1]}
    if wrong:
        return {"outcome": "failed", "reason": "; ".join(wrong), "output": text[-8000:], **facts}
    return {"outcome": "passed", **facts}
