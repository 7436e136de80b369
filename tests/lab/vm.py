# SPDX-License-Identifier: Apache-2.0
"""Makes Debian systems from packages, and boots them in QEMU without KVM.

An image is an ext4 file system without a boot loader, because QEMU loads the kernel itself. It is
made once for each recipe and kept in build/lab/images. A machine writes to a copy, so the image does
not change.
"""

import contextlib
import dataclasses
import hashlib
import pathlib
import shutil
import socket
import subprocess
import time

MIRROR = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
# With these, a system boots to ssh. Without busybox, the initramfs has klibc's mount and shell.
PACKAGES = ("linux-image-amd64", "initramfs-tools", "systemd-sysv", "systemd-timesyncd", "dbus",
            "libpam-systemd", "udev", "kmod", "openssh-server", "sudo", "cron", "python3", "procps",
            "strace", "ca-certificates")
BOOT_SECONDS = 1500  # a busy machine needs many times the 65 seconds of an idle one

FILES = {
    "/etc/fstab": "/dev/vda / ext4 errors=remount-ro 0 1\n",
    "/etc/hostname": "guest\n",
    "/etc/hosts": "127.0.0.1 localhost guest\n",
    "/etc/systemd/network/wired.network": "[Match]\nName=en*\n[Network]\nDHCP=ipv4\n",
    "/etc/sudoers.d/alice": "alice ALL=(ALL) NOPASSWD: ALL\n",
    "/etc/initramfs-tools/conf.d/lab": "MODULES=list\n",
    "/usr/share/initramfs-tools/modules.d/lab": "virtio_pci\nvirtio_blk\nvirtio_net\next4\n",
}
# The system has these files only while it is made: dpkg starts no service and does not wait for the
# disk.
WHILE_MADE = {
    "/usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",
    "/etc/dpkg/dpkg.cfg.d/lab": "force-unsafe-io\n",
    "/etc/apt/apt.conf.d/99lab": 'Acquire::Languages "none";\n',
}
COMMANDS = """
useradd --create-home --shell /bin/bash alice
echo 'alice:alice' | chpasswd
for home in /root /home/alice; do
  install -d -m 700 $home/.ssh
  install -m 600 /etc/key.pub $home/.ssh/authorized_keys
done
chown -R alice: /home/alice
systemctl -q enable systemd-networkd
systemctl -q mask apt-daily.timer apt-daily-upgrade.timer man-db.timer e2scrub_all.timer
mkdir -p /var/log/journal
apt-get clean
echo nameserver 10.0.2.3 >/etc/resolv.conf  # QEMU's user network
"""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What an image is made of. The files are there before the packages, which come before the
    commands."""

    name: str
    suite: str
    packages: tuple = ()
    components: str = "main"
    files: tuple = ()  # pairs of a path and its text
    commands: str = ""
    gigabytes: int = 6


class Image:
    """The files of an image: its disk, its kernels and their initramfs."""

    def __init__(self, directory, key):
        self.directory = directory
        self.disk = directory / "disk.raw"
        self.key = key


def image(lab, recipe):
    """Returns the image of this recipe. Makes it if it is not there."""
    images = lab.checkout / "build/lab/images"
    images.mkdir(parents=True, exist_ok=True)
    key = images / "key"
    if not key.exists():
        quiet("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key)
    public = key.with_suffix(".pub").read_text()
    text = repr((recipe, PACKAGES, FILES, COMMANDS, public))
    target = images / f"{recipe.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not target.exists():
        for old in images.glob(f"{recipe.name}-*"):
            shutil.rmtree(old)
        with contextlib.ExitStack() as stack:
            work = lab.scratch.parent / f"image-{recipe.name}"
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            make(lab.checkout, recipe, public, work, target)
    return Image(target, key)


def make(checkout, recipe, public, work, target):
    """Unpacks the system below `work`, and packs it into the files of an image."""
    shutil.rmtree(work, ignore_errors=True)
    root, packed = work / "root", work / "packed"
    packed.mkdir(parents=True)
    roots = checkout / "build/_deps/roots"
    quiet(checkout / "scripts/fetch-roots", roots, recipe.suite)
    quiet("cp", "-a", roots / recipe.suite, root)
    write(root, "/etc/resolv.conf", pathlib.Path("/etc/resolv.conf").read_text())
    sources = "".join(f"deb {url} {suite} {recipe.components}\n" for url, suite in (
        (MIRROR, recipe.suite), (MIRROR, recipe.suite + "-updates"),
        (SECURITY, recipe.suite + "-security")))
    write(root, "/etc/apt/sources.list", sources)
    files = {**FILES, **WHILE_MADE, "/etc/key.pub": public, **dict(recipe.files)}
    for path, text in files.items():
        write(root, path, text)
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    inside(root, "apt-get update -q && apt-get install -q -y --no-install-recommends " +
           " ".join(PACKAGES + recipe.packages))
    inside(root, COMMANDS + recipe.commands)
    for path in WHILE_MADE:
        (root / path.lstrip("/")).unlink()
    for name in ("vmlinuz", "initrd.img"):
        for file in root.glob(f"boot/{name}-*"):
            shutil.copy(file, packed)
    with open(packed / "disk.raw", "wb") as disk:
        disk.truncate(recipe.gigabytes << 30)
    quiet("mke2fs", "-q", "-t", "ext4", "-d", root, packed / "disk.raw")
    partial = target.with_name("." + target.name)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    quiet("cp", "--sparse=always", *packed.iterdir(), partial)
    partial.rename(target)


def write(root, path, text):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text)


def inside(root, commands):
    """Runs shell commands in the system, which has its own /proc, /dev and process ids."""
    script = ('mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" && '
              'exec chroot "$0" sh -exc "$1"')
    quiet("setpriv", "--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--fork",
          "--kill-child", "env", "-i",
          "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
          "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", script, root, commands)


def quiet(*words):
    """Runs a command, whose output appears only in the error if it fails."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Machine:
    """A machine that runs in QEMU. Its disk and its console's log are in `directory`. `kernel` is a
    release as `uname -r` prints it, if the image has several."""

    def __init__(self, image, directory, kernel_words=(), kernel="*"):
        self.image = image
        self.kernel, self.initrd = (next(image.directory.glob(f"{name}-{kernel}"))
                                    for name in ("vmlinuz", "initrd.img"))
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.disk = self.directory / "disk.raw"
        self.log = self.directory / "console.log"
        self.kernel_words = kernel_words
        self.process = None
        quiet("cp", "--sparse=always", image.disk, self.disk)

    def start(self, *words):
        """Starts QEMU, with these words for the kernel in addition. The console is its stdin and
        the log. QEMU dies if this process does."""
        self.port = free_port()
        # With panic=, a machine that cannot boot ends at once, and its initramfs opens no shell.
        shell = any(word.startswith("break=") for word in words)
        # On a busy machine, QEMU's timer is too late for the kernel's check of it, and services need
        # longer than systemd's 90 seconds.
        append = ("root=/dev/vda", "rw", "console=ttyS0", "mitigations=off", "no_timer_check",
                  f"systemd.default_timeout_start_sec={BOOT_SECONDS}",
                  *(() if shell else ("panic=1",)), *self.kernel_words, *words)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64", "-machine", "pc",
                 "-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", "3072",
                 "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot",
                 "-drive", f"file={self.disk},format=raw,if=virtio,cache=writeback",
                 "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22",
                 "-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci",
                 "-kernel", self.kernel, "-initrd", self.initrd,
                 "-append", " ".join(append)],
                stdin=subprocess.PIPE, stdout=log, stderr=log)

    def boot(self, *words):
        """Starts the machine and waits until ssh works."""
        self.start(*words)
        self.wait()

    def wait(self):
        """Waits until ssh works."""
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self.ssh("true", timeout=90).returncode == 0:
                    return
            time.sleep(2)
        raise RuntimeError("no ssh; the console ends with:\n" + self.console()[-2000:])

    def words(self, script, user="root"):
        return ["ssh", "-F", "none", "-i", self.image.key, "-p", str(self.port),
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60",
                f"{user}@127.0.0.1", script]

    def ssh(self, script, user="root", timeout=1800):
        """Runs a shell script in the machine. stdout has its stderr, too."""
        return subprocess.run(self.words(script, user), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=timeout, check=False)

    def must(self, script, **options):
        """Returns the script's output, and fails if its exit code is not 0."""
        done = self.ssh(script, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{script!r} ended with {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout

    def send(self, source, target):
        """Copies a file or directory into the machine's existing directory `target`."""
        source = pathlib.Path(source)
        with subprocess.Popen(["tar", "-C", source.parent, "--owner=0", "--group=0", "-c",
                               source.name], stdout=subprocess.PIPE) as tar:
            subprocess.run(self.words(f"tar -C {target} -x"), stdin=tar.stdout, timeout=600,
                           check=True)

    @contextlib.contextmanager
    def background(self, script):
        """Runs a shell script in the machine meanwhile, whose end does not matter."""
        with subprocess.Popen(self.words(script), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.kill()

    def console(self):
        return self.log.read_text(errors="replace")

    def type(self, line):
        """Types a line on the serial console."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def expect(self, text, timeout=BOOT_SECONDS):
        """Waits until the console has shown this text."""
        end = time.monotonic() + timeout
        while text not in self.console():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"no {text!r} on the console:\n" + self.console()[-2000:])
            time.sleep(1)

    def reboot(self, *words):
        """Shuts the machine down and boots it again."""
        self.power_off()
        self.boot(*words)

    def power_off(self):
        self.ssh("systemctl poweroff --no-block")
        try:
            self.process.wait(600)
        finally:
            self.cut_power()

    def cut_power(self):
        """Ends QEMU at once. What the guest has not yet written to its disk is lost."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process and self.process.returncode is None:
            self.cut_power()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
