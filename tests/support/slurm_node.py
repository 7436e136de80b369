# SPDX-License-Identifier: Apache-2.0
"""Runs a Slurm cluster of one node with two GPUs, which are /dev/null, for the duration of a test
class.

The daemons are Debian's own (scripts/fetch-daemons) in a sandbox whose /usr/local has cudaguard.
"""

import glob
import os
import pwd
import re
import shutil
import socket
import subprocess
import time

from support import harness

SLURM = os.path.join(harness.DEPS, "slurm")
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def libraries():
    """Returns the directories of the unpacked packages' libraries."""
    plugins = glob.glob(SLURM + "/usr/lib/*/slurm-wlm")
    return plugins + [os.path.dirname(directory) for directory in plugins]


def loader_cache(directory):
    """Returns bubblewrap's options for an ld.so.cache that has the unpacked libraries, too. Slurm 24
    starts itself again without LD_LIBRARY_PATH to run a health check."""
    settings, cache = os.path.join(directory, "ld.so.conf"), os.path.join(directory, "ld.so.cache")
    with open(settings, "w", encoding="utf-8") as stream:
        stream.write("\n".join([*libraries(), "include /etc/ld.so.conf", ""]))
    subprocess.run([shutil.which("ldconfig", path="/sbin:/usr/sbin"), "-X", "-i", "-f", settings,
                    "-C", cache], check=True)
    return ["--ro-bind", cache, "/etc/ld.so.cache"]


def environment(directory):
    """Returns the variables that Slurm's own programs need."""
    paths = [SLURM + "/usr/bin", SLURM + "/usr/sbin", "/usr/sbin", os.environ["PATH"]]
    return {"SLURM_CONF": os.path.join(directory, "slurm.conf"), "PATH": ":".join(paths),
            "LD_LIBRARY_PATH": ":".join([harness.FAKE_DRIVER] + libraries())}


def version(env):
    done = subprocess.run(["slurmctld", "-V"], env=env, capture_output=True, text=True, check=True)
    return tuple(int(word) for word in re.search(r"(\d+)\.(\d+)", done.stdout).groups())


def write_settings(directory, prolog, env, more):
    user = pwd.getpwuid(os.geteuid()).pw_name
    plugins = libraries()[:1]
    shards = version(env) >= (22, 5)
    host = socket.gethostname()
    lines = [
        "ClusterName=test", "SlurmctldHost=%s(127.0.0.1)" % host, "SlurmUser=" + user,
        "SlurmdUser=" + user, "AuthType=auth/none", "CredType=cred/none",
        "StateSaveLocation=%s/state" % directory, "SlurmdSpoolDir=%s/spool" % directory,
        "SlurmctldPidFile=%s/slurmctld.pid" % directory, "SlurmdPidFile=%s/slurmd.pid" % directory,
        "SlurmctldLogFile=%s/slurmctld.log" % directory, "SlurmdLogFile=%s/slurmd.log" % directory,
        "SlurmctldPort=%d" % free_port(), "SlurmdPort=%d" % free_port(),
        "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none", "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "SchedulerType=sched/builtin",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=1,sched_interval=1",
        "MpiDefault=none", "ReturnToService=2",
        *(["TaskProlog=" + prolog] if prolog else []),
        "GresTypes=gpu" + (",shard" if shards else ""),
        "NodeName=%s NodeAddr=127.0.0.1 CPUs=%d State=UNKNOWN Gres=gpu:2%s" %
        (host, os.cpu_count(), ",shard:8" if shards else ""),
        "PartitionName=all Nodes=%s Default=YES State=UP OverSubscribe=FORCE:8" % host,
        "PartitionName=cpu Nodes=%s State=UP OverSubscribe=FORCE:8" % host]
    lines += ["PluginDir=" + name for name in plugins] + list(more)
    gres = ["Name=gpu File=/dev/nvidia[0-1]"] + ["Name=shard Count=8"] * shards
    files = {"slurm.conf": lines, "gres.conf": gres}
    if version(env) >= (23, 11):
        files["cgroup.conf"] = ["CgroupPlugin=disabled"]
    for name, text in files.items():
        with open(os.path.join(directory, name), "w", encoding="utf-8") as stream:
            stream.write("\n".join(text) + "\n")
    for name in ("state", "spool"):
        os.mkdir(os.path.join(directory, name))


class Node:
    """prolog: the TaskProlog, or an empty text. more: further lines of slurm.conf."""

    def __init__(self, directory, prolog, mounts, more=()):
        self.directory = directory
        self.env = environment(directory)
        write_settings(directory, prolog, self.env, more)
        devices = []
        for name in ("nvidia0", "nvidia1"):
            devices += ["--dev-bind", "/dev/null", "/dev/" + name]
        box = harness.sandbox("fake", ["--unshare-pid", "--proc", "/proc"] + devices + mounts +
                              loader_cache(directory))
        stepd = [word for word in ("-d", SLURM + "/usr/sbin/slurmstepd")
                 if os.path.exists(SLURM + "/usr/sbin/slurmstepd")]
        self.daemons = []
        for words in (["slurmctld", "-D"], ["slurmd", "-D"] + stepd):
            with open(os.path.join(directory, words[0] + ".out"), "wb") as out:
                self.daemons.append(subprocess.Popen(
                    box + words, env=self.outer(), stdin=subprocess.DEVNULL, stdout=out,
                    stderr=out))

    def outer(self, **more):
        """Returns the environment of Slurm's programs: the test's own without the launcher's
        variables."""
        env = {key: value for key, value in os.environ.items()
               if not re.match(r"(SLURM|SBATCH|CG_|JAX_|MPIR_)", key) and
               not harness.SCRUBBED.match(key)}
        env.update(self.env, LC_ALL="C.UTF-8", **more)
        return env

    def why(self):
        """Returns the last lines of the daemons' logs."""
        text = ""
        for path in sorted(glob.glob(self.directory + "/slurm*.log") +
                           glob.glob(self.directory + "/slurm*.out")):
            with open(path, encoding="utf-8", errors="replace") as stream:
                text += "%s:\n%s" % (path, "".join(stream.readlines()[-8:]))
        return text

    def wait(self):
        """Waits until the node accepts jobs. Returns the error, or an empty text."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            done = subprocess.run(["sinfo", "-h", "-o", "%T"], env=self.outer(), timeout=PATIENCE,
                                  capture_output=True, text=True, check=False)
            if set(done.stdout.split()) == {"idle"}:
                return ""
            if any(daemon.poll() is not None for daemon in self.daemons):
                break
            time.sleep(0.2)
        return "no node after %d s\n%s" % (PATIENCE, self.why())

    def stop(self):
        for daemon in self.daemons:
            # This also ends the processes that the daemon has started, with the sandbox.
            daemon.kill()
            daemon.wait()
