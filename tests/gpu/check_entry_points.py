# SPDX-License-Identifier: Apache-2.0
"""Runs every entry point of tests/entry_points under FORCE_CPU with the device present, one row for
each group.

Guarded, an entry point gets the answers of the design's table, opens no /dev/nvidia* and maps no
driver file. The control is the same program unguarded, which has to open the device. The programs
run from a copy. A directory of links next to it replaces the matrix' second driver.
"""

import collections
import glob
import os
import re
import shlex
import shutil

import box as machine
from support import harness, matrix

WHAT = "entry points under FORCE_CPU: answers, opens of /dev/nvidia*, driver files mapped"
TITLES = {
    "linked": "linked to libcuda", "cudart-shared": "linked to a shared runtime",
    "cudart-static": "with a static runtime", "dlopen": "dlopen by every name",
    "deepbind": "RTLD_DEEPBIND", "language": "other languages",
    "pointer": "dlopen taken by pointer", "dlmopen": "dlmopen", "plugin": "plug-ins linked to libcuda",
    "procaddress": "cuGetProcAddress", "scope": "found by name in the process", "nvml": "NVML, nvidia-smi",
    "opencl": "OpenCL", "when": "unusual times and processes",
}
ANSWERED = re.compile(r"\b(cuInit|nvmlInit\w*|cudaGetDeviceCount|cudaMalloc|entry)=0\b")
# The time limit of the unguarded programs. The guarded ones run first.
CONTROL_SECONDS = 100


def driver_file(box):
    """Returns the driver's own path as ld.so finds it. The control runs need it."""
    found = box.run([box.program("gpu_driver"), "do=where"]).words.get("driver", "")
    return found if os.path.isabs(found) else ""


def prepare(box, driver):
    """Returns the values of the matrix' placeholders on this machine."""
    copied = os.path.join(box.scratch, "entry_points")
    programs = os.path.join(copied, "tests", "programs")
    copy = os.path.join(copied, "tests", "entry_points", "copy")
    shutil.copytree(os.path.join(box.build, "tests", "programs"), programs, symlinks=True,
                    ignore=shutil.ignore_patterns("CMakeFiles", "*.cmake", "Makefile"))
    os.makedirs(copy)
    directory = os.path.dirname(driver)
    for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"):
        target = os.path.join(directory, name)
        if not os.path.exists(target):
            target = os.path.join(directory, name + ".1")
        os.symlink(os.path.realpath(target), os.path.join(copy, name))
    words = {"programs": programs, "copy": copy, "driver": directory,
             "parent": os.path.basename(directory), "null_driver": harness.NULL_DRIVER_DIR,
             "source": box.source, "loader": harness.loader_of(os.path.join(programs, "entry_point"))}
    for key, name in (("versioned", "libcuda"), ("nvml_versioned", "libnvidia-ml")):
        real = os.path.realpath(os.path.join(directory, name + ".so.1"))
        words[key] = real
        # The matrix' row needs the file name with the version, in any directory.
        found = sorted(glob.glob(os.path.join(os.path.dirname(real), name + ".so.*.*")))
        if found:
            words[key] = found[0]
    return words


def perform(box, row, words, guarded):
    """Runs a row and returns the matrix' own kind of result."""
    preload = [path.format(**words) for path in row.own_preload]
    if guarded:
        ours = ((harness.GUARD,) if row.guard else ()) + row.preload
        ours = [path.format(**words) for path in ours]
        preload = preload + ours if row.guard_last else ours + preload
    env = dict(row.env, **(row.guarded_env if guarded else {}))
    env = {key: value.format(**words) for key, value in env.items()}
    # In a packed tree, the runtimes are not where the programs were linked to them. The driver's
    # directory must stay on the path if the program finds the driver there.
    runtime = re.search(r"runtime_([\d.]+)_shared", str(row.argv[0]))
    paths = [env.get("LD_LIBRARY_PATH"),
             box.program("cudart-" + runtime[1]) if runtime else None,
             box.environment.get("LD_LIBRARY_PATH")]
    if paths[0] or runtime:
        env["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    seen = box.run([str(word).format(**words) for word in row.argv], env=env, preload=preload,
                   cwd=row.cwd.format(**words) if row.cwd else None, timeout=row.timeout, watch=True)
    result = harness.Result()
    for key in ("rc", "out", "err", "timed_out"):
        setattr(result, key, getattr(seen, key))
    result.words = shlex.split(seen.command)
    result.device_opens = seen.opens
    result.driver_files = seen.mapped
    result.exec_attempts = seen.attempts
    return result


def why_not(box, row, words):
    """Returns why this row cannot be run here, or None."""
    if box.fake and any(re.search("runtime_|nvidia-smi|clinfo|opencl", path) for path in row.needs):
        return "not against a fake driver"
    missing = [path for path in row.needs if not glob.glob(path.format(**words))]
    if missing:
        return "%s is missing" % missing[0].format(**words)
    if any("plugin_linked_cuda_path" in word for word in row.argv):
        return "needs a bind mount"
    program = str(row.argv[0]).format(**words)
    if os.path.isabs(program) and not os.path.exists(program):
        return "%s was not built" % os.path.basename(program)
    return None


def reached(box, result):
    """Returns true if an unguarded program reached the device. The fake driver has no device to
    open."""
    return bool(result.device_opens) or bool(box.fake and ANSWERED.search(result.out))


def cannot_run(result):
    """Returns another product's library that this program lacks here, or None."""
    for name in re.findall(r"(lib[\w.+-]+): cannot open shared object", result.out + result.err):
        if not re.match(r"lib(cuda|nvidia-\w+)\.so", name):
            return name + " is not installed"
    return None


def proves_nothing(result):
    """A runtime that is newer than the driver (error 35) stops before any CUDA attempt."""
    return result is None or re.search(r"=35\b", result.out) is not None


def wanted(row):
    # "limit" rows show documented bypasses. The other rows are judged with NVIDIA's driver if the
    # matrix judges them so, too.
    return "real" in row.worlds and not row.limit and not row.same_as_unguarded


def watcher(box):
    """Starts a program that watches the GPUs' memory. Returns None if NVML does not report it."""
    if not box.gpus or box.used_memory() is None:
        return None
    held = box.hold([box.program("gpu_nvml"), "do=watch"])
    held.line(30)
    return held


def pids_of(words):
    return {pid for pid in words.get("pids", "").split(",") if pid}


def judge_memory(box, report, held, before):
    name = "entry_points.memory"
    what = "GPU memory and processes while all guarded entry points ran"
    if held is None:
        report.not_filled(name, what, "NVML reports no memory" if box.gpus else machine.NO_GPU)
        return
    words = machine.words_of(held.end())
    grown = max((int(words["high%d" % i]) - int(words["low%d" % i])
                 for i in range(64) if "high%d" % i in words), default=0)
    new = pids_of(words) - before
    value = "%+.1f MiB, %d new processes on the GPU, %s samples" % (
        grown / 2**20, len(new), words.get("rounds", "?"))
    if before:
        report.info(name, what, value + " (others were there before: %d)" % len(before))
    else:
        report.check(name, what, value, not new and grown < 16 * 2**20, words)


def processes(box):
    held = box.hold([box.program("gpu_nvml"), "do=watch"])
    held.line(30)
    return pids_of(machine.words_of(held.end()))


def rows(box, report):
    if not box.may_enter or box.why_not_watched():
        report.not_filled("entry_points", WHAT, box.why_not_watched() or
                          "no device, no bubblewrap: the driver is not entered")
        return
    if not os.path.exists(os.path.join(box.build, "tests", "programs", "entry_point")):
        report.not_filled("entry_points", WHAT, "tests/programs is not built in " + box.build)
        return
    if box.left() < 60:
        report.not_filled("entry_points", WHAT, "out of time")
        return
    driver = driver_file(box)
    if not driver:
        report.not_filled("entry_points", WHAT, "no libcuda.so.1 on this machine")
        return
    words = prepare(box, driver)
    chosen = [row for row in matrix.load_rows() if wanted(row)]
    skipped = {row.id: why_not(box, row, words) for row in chosen}
    skipped = {name: reason for name, reason in skipped.items() if reason}
    chosen = [row for row in chosen if row.id not in skipped]
    before = processes(box) if box.gpus else set()
    held = watcher(box)
    guarded = dict(box.many(lambda row: (row.id, perform(box, row, words, True)), chosen))
    judge_memory(box, report, held, before)

    end = box.left() - CONTROL_SECONDS

    def control(row):
        if "real" not in row.unguarded or box.left() < max(end, 30):
            return row.id, None
        return row.id, perform(box, row, words, False)

    unguarded = dict(box.many(control, chosen))
    for row in chosen:
        reason = cannot_run(unguarded[row.id] or guarded[row.id])
        if reason:
            skipped[row.id] = reason
    chosen = [row for row in chosen if row.id not in skipped]
    groups = collections.defaultdict(list)
    for row in chosen:
        groups[row.group].append(row)
    for group, members in groups.items():
        judge_group(box, report, group, members, guarded, unguarded, skipped)


def judge_group(box, report, group, members, guarded, unguarded, skipped):
    complaints = {}
    opens = 0
    # A program that does not reach the driver here, guarded or not, cannot be judged.
    idle = {row.id for row in members if not proves_nothing(unguarded[row.id]) and not (
        reached(box, unguarded[row.id]) or guarded[row.id].device_opens)}
    if 0 < len(idle) < len(members):
        skipped.update(dict.fromkeys(idle, "unguarded, it does not reach the driver"))
        members = [row for row in members if row.id not in idle]
    for row in members:
        found = matrix.judge(row, "real", unguarded[row.id] or harness.Result(), guarded[row.id])
        opens += len(guarded[row.id].device_opens)
        if found:
            complaints[row.id] = {"found": found, "run": str(guarded[row.id])[-3000:]}
    controls = [row.id for row in members if not proves_nothing(unguarded[row.id])]
    missed = [name for name in controls if not reached(box, unguarded[name])]
    value = "%d of %d closed, %d opens; unguarded %d of %d reach it" % (
        len(members) - len(complaints), len(members), opens, len(controls) - len(missed),
        len(controls))
    left_out = [name for name in skipped if name.split(".")[0] == group]
    if left_out:
        value += "; %d not run" % len(left_out)
    if complaints:
        value += "; open: " + " ".join(sorted(complaints))[:200]
    if missed:
        value += "; unguarded, not there: " + " ".join(missed)[:200]
    detail = {"complaints": complaints,
              "missed": {name: str(unguarded[name])[-3000:] for name in missed},
              "not run": {name: skipped[name] for name in left_out}}
    name, what = "entry_points." + group, TITLES.get(group, members[0].about) + ": " + WHAT
    # Without that control, the guarded programs may have opened files unseen.
    report.check(name, what, value, not complaints and not missed, detail)
