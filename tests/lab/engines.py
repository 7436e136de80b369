# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/integrations and docs/fence.md with real container engines, Slurm and
Python schedulers.

A row reads its commands out of the pages (pages.py), and replaces only the words that stand for the
user's own ones, such as IMAGE. A row whose command is no longer in its page fails. Each row also
runs its program without the guard: this control has to reach the fake driver.

An engine runs in a throw-away Debian, an overlay over a system of scripts/fetch-roots, which has
its own /dev, mounts, processes and network. The Python schedulers run in a sandbox over this
machine, with the packages from the Python package index. engine_scripts/NAME.sh sets a row up.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess

from lab import pages
from lab.debian import PATIENCE, SCRIPTS, Machine, NotInstalled, installed_tree, last_line
from support import harness, messages, packaged

PYTHON = "/usr/bin/python3"  # not pyenv's script of this name
PIP_CACHE = "/var/tmp/lab-pip-cache"
KEPT = 4000  # characters of a step's output in the results

CONTAINERS = "docs/integrations/containers.md"
KUBERNETES = "docs/integrations/kubernetes.md"
SLURM = "docs/integrations/slurm-and-systemd.md"
PYTHON_PAGE = "docs/integrations/python.md"
FENCE = "docs/fence.md"


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page; code: a `code` in its text."""

    page: str
    heading: str = ""
    having: str = ""
    language: str = None
    words: tuple = ()  # pairs: a word of the page, and what the row writes for it
    code: bool = False

    def read(self, checkout):
        text = (checkout / self.page).read_text(encoding="utf-8")
        try:
            found = (pages.span(text, self.having) if self.code else
                     pages.block(text, self.heading, self.having, self.language))
            return pages.filled(found, dict(self.words))
        except pages.NotFound as error:
            raise pages.NotFound(f"{self.page}: {error}") from None


@dataclasses.dataclass(frozen=True)
class File:
    """A whole file of the checkout."""

    path: str

    def read(self, checkout):
        return (checkout / self.path).read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Yaml:
    """A YAML file of the checkout as JSON, which the machine's Python can read."""

    path: str

    def read(self, checkout):
        import yaml  # which only these rows need
        return json.dumps(yaml.safe_load((checkout / self.path).read_text(encoding="utf-8")))


class PodSchema:
    """What Kubernetes' OpenAPI schemas say of a pod, in the form that client-go reads."""

    def read(self, checkout):
        tree = checkout / "build/_deps/frameworks/platforms"
        files = sorted(tree.glob("**/v1.36*-local/_definitions.json"))
        if not files:
            return ""  # kubernetes-policy.sh says what is missing
        text = files[0].read_text(encoding="utf-8").replace("#/$defs/", "#/components/schemas/")
        schemas = json.loads(text)["$defs"]
        found, wanted = {}, ["io.k8s.api.core.v1.Pod"]
        for name in wanted:  # which grows
            found[name] = without_null(schemas[name])
            wanted += {ref for ref in re.findall(r'schemas/([\w.-]+)"', json.dumps(found[name]))
                       if ref not in wanted}
        return json.dumps({"openapi": "3.0.0", "info": {"title": "pods", "version": "1"},
                           "paths": {}, "components": {"schemas": found}})


def without_null(value):
    """JSON Schema's type ["array", "null"] is OpenAPI's "array"."""
    if isinstance(value, list):
        return [without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: item[0] if key == "type" and isinstance(item, list) else without_null(item)
            for key, item in value.items()}


@dataclasses.dataclass(frozen=True)
class Step:
    """Shell text, the lines that it has to print, and the lines that it must not print."""

    name: str
    text: str
    prints: tuple = ()
    never: tuple = ()
    exit: int = 0


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    steps: tuple
    blocks: dict  # name: text, or the error of a block that is not in its page
    setup: str
    packages: tuple
    place: str  # machine or sandbox
    user: str = "root"
    tool: str = ""  # a program that the row cannot run without
    suite: str = "bookworm"


# ask.py prints the answer of cuInit: 0 is the fake driver's, 100 is CUDA_ERROR_NO_DEVICE.
MESSAGE = messages.line("no_cuda")
GUARDED = {"prints": (r"^100$", MESSAGE), "never": (r"^0$",)}
REACHED = {"prints": (r"^0$",), "never": (MESSAGE, r"^100$")}
REFUSED = {"prints": ("No such device",), "never": ("Inappropriate ioctl",)}
NOT_REFUSED = {"prints": ("Inappropriate ioctl",), "never": ("No such device",)}

DOCKERFILE = {"dockerfile": Block(CONTAINERS, "An image", language="dockerfile")}
PROGRAM = ("PROGRAM", "python3 /ask.py")
BLOCKS = {
    "check": Block(CONTAINERS, "Check that it works", "python3 -c", words=(("IMAGE", "guarded"),)),
    "unguarded": Block(CONTAINERS, "Check that it works", "python3 -c",
                       words=(("IMAGE", "plain"),)),
    "doctor": Block(CONTAINERS, "Check that it works", "doctor",
                    words=(("IMAGE", "guarded"), ("PROGRAM", "python3"))),
    "unchanged": Block(CONTAINERS, "An unchanged image", words=(("IMAGE", "plain"), PROGRAM)),
    "policy": Block(CONTAINERS, having="docker run -e CUDAGUARD_POLICY", code=True,
                    words=(("…", "guarded python3 /ask.py"),)),
    "exec": Block(CONTAINERS, having="docker exec NAME", code=True,
                  words=(("NAME", "sample"), PROGRAM)),
    **DOCKERFILE,
}


def fenced(engine, having, image="plain"):
    """docs/fence.md's lines that make a seccomp profile for this engine and use it."""
    words = (("IMAGE", image), ("PROGRAM", "python3 /ioctl.py"))
    if engine == "ctr":
        words += (("NAME", "fenced"),)
    return {"fence": Block(FENCE, "The fence as a seccomp profile", having, words=words)}


# The shell function `docker` is podman or buildah in the rows of these engines: the page has the
# commands for docker, and these engines take the same ones.
CONTAINER_STEPS = (
    Step("unguarded", ". ./unguarded", **REACHED),
    Step("the image's entrypoint", ". ./check", **GUARDED),
    Step("doctor", ". ./doctor", prints=("^guarded: yes", "^problems: none")),
    # Apptainer has the last line.
    Step("an unchanged image", "sed -i '/^apptainer/d' unchanged; . ./unchanged", **GUARDED),
    Step("the variable that allows CUDA", ". ./policy", **REACHED),
    Step("exec with the launcher", "docker run --detach --name sample guarded sleep 900; . ./exec",
         **GUARDED),
    Step("exec bypasses the entrypoint", "docker exec sample python3 /ask.py", **REACHED),
    Step("without the seccomp profile", "docker run --rm plain python3 /ioctl.py", **NOT_REFUSED),
    Step("the seccomp profile", ". ./fence", **REFUSED),
    Step("verify with a read-only root", "docker run --rm --read-only --user 65534 --entrypoint "
         "cudaguard guarded verify -- python3 /ask.py", exit=1,
         prints=("^100$", "FAIL: 1 line asked for CUDA", "1 program started: 1 guarded")),
)
# Why docs/fence.md says from which container a profile comes. Podman's allows more than Docker's.
PROFILE_STEPS = (
    Step("the capabilities of the sample container", """
sed '$d' fence >make
mounts() { docker run --rm --cap-add SYS_ADMIN --security-opt seccomp=fenced.json plain \
  sh -c 'mount -t tmpfs none /etc && echo "with $0"' "$1" || echo "not with $1"; }
. ./make; mounts none
sed -i 's/docker run/docker run --cap-add SYS_ADMIN/' make; . ./make; mounts SYS_ADMIN""",
         prints=("^not with none$", "^with SYS_ADMIN$")),
    Step("another engine's profile", """
weaker() { docker run --rm "$@" plain unshare --user echo "weaker$*" || echo "refused$*"; }
weaker; scripts/integrations/container/fence-profile /usr/share/containers/seccomp.json >fenced.json
weaker --security-opt=seccomp=fenced.json""",
         prints=("^refused$", "^weaker--security-opt=seccomp=fenced.json$")),
)

PODMAN = ("podman", "crun", "golang-github-containers-common", "iproute2")
ENTRYPOINT = "$(entrypoint)"


def engines():
    """Each container engine: (name, packages, blocks, steps, more members of the row)."""
    yield ("dockerd", ("docker.io", "iproute2", "golang-github-containers-common"),
           {**BLOCKS, **fenced("docker", "docker run --detach")},
           (*CONTAINER_STEPS, *PROFILE_STEPS), {})
    yield ("ctr", ("containerd", "docker.io", "iproute2"),
           {**DOCKERFILE, **fenced("ctr", "ctr run")}, (
        Step("unguarded", "ctr run --rm $plain unguarded python3 /ask.py", **REACHED),
        Step("the image's entrypoint", "ctr run --rm $guarded check $words python3 /ask.py",
             **GUARDED),
        Step("without the seccomp profile", "ctr run --rm --seccomp $plain none python3 /ioctl.py",
             **NOT_REFUSED),
        Step("the seccomp profile", ". ./fence", **REFUSED)), {})
    podman = {**BLOCKS, **fenced("podman", "podman info")}
    yield ("podman-root", PODMAN, podman, CONTAINER_STEPS, {"script": "podman"})
    yield ("podman-rootless", (*PODMAN, "uidmap"), podman, CONTAINER_STEPS,
           {"script": "podman", "user": "alice"})
    yield ("buildah", ("buildah", *PODMAN), {**BLOCKS}, (
        Step("unguarded", "buildah run $(buildah from plain) -- python3 /ask.py", **REACHED),
        Step("run with the entrypoint",
             f"buildah run $(buildah from guarded) -- {ENTRYPOINT} python3 /ask.py", **GUARDED),
        Step("the image's entrypoint", ". ./check", **GUARDED)), {})
    yield ("crun", ("crun", "iproute2"), DOCKERFILE, (
        Step("unguarded", "bundle /srv/plain python3 /ask.py; crun run unguarded", **REACHED),
        Step("the image's entrypoint",
             f"bundle /srv/guarded {ENTRYPOINT} python3 /ask.py; crun run guarded", **GUARDED)), {})
    yield ("systemd-nspawn", ("systemd-container", "iproute2"), DOCKERFILE, (
        Step("unguarded", "nspawn /srv/plain python3 /ask.py", **REACHED),
        Step("the image's entrypoint", f"nspawn /srv/guarded {ENTRYPOINT} python3 /ask.py",
             **GUARDED)), {})
    yield ("charliecloud", ("charliecloud-runtime", "iproute2"), DOCKERFILE, (
        Step("unguarded", "ch-run $images/plain -- python3 /ask.py", **REACHED),
        Step("the image's entrypoint", f"ch-run $images/guarded -- {ENTRYPOINT} python3 /ask.py",
             **GUARDED)), {"user": "alice"})
    yield ("kubernetes-pod", (*PODMAN, "runc", "catatonit", "busybox-static"), {
        "dockerfile": Block(KUBERNETES, "The image of the init container", language="dockerfile"),
        "build": Block(KUBERNETES, "The image of the init container", "docker build",
                       words=(("docker push registry.example.com/cudaguard-init:0.2.0", ":"),)),
        "check": Block(KUBERNETES, "Check a pod", words=(
            ("POD", "cpu-only"), ("PROGRAM", "python3"))),
        "exec": Block(KUBERNETES, having="kubectl exec POD -c program --", code=True,
                      words=(("POD", "cpu-only"), PROGRAM)),
    }, (
        Step("unguarded", "podman run --rm registry.example.com/program:1.0 python3 /ask.py",
             **REACHED),
        Step("the pod", "start_pod; . ./check", **GUARDED),
        Step("exec bypasses the launcher", "kubectl exec cpu-only -c program -- /bin/python3 /ask.py",
             **REACHED),
        Step("exec with the launcher", ". ./exec", **GUARDED)), {})


IMAGE = "registry.example.com/cudaguard:0.2.0"


def cdi(engine, **blocks):
    """The CDI device of the page, which names Podman."""
    device = f"{engine} run --rm --device cudaguard.dev/guard=cpu"
    return {**DOCKERFILE, **blocks, "cdi": Block(
        CONTAINERS, "A CDI device", "podman run --device",
        words=(("podman", engine), ("IMAGE", "plain"), PROGRAM))}, (
        Step("unguarded", f"{engine} run --rm plain python3 /ask.py", **REACHED),
        Step("the device", ". ./cdi", **GUARDED),
        Step("a variable of the command does not allow CUDA",
             f"{device} -e CUDAGUARD_POLICY=OFF plain python3 /ask.py", **GUARDED),
        Step("exec bypasses the device", f"{device} --detach --name sample plain sleep 900; "
             f"{engine} exec sample python3 /ask.py", **REACHED),
        Step("a device that does not exist",
             f"{engine} run --rm --device cudaguard.dev/guard=none plain python3 /ask.py || "
             "echo refused", prints=("cudaguard.dev/guard=none", "^refused$"), never=("^0$",)))


def newer_engines():
    """Rows that need a newer Debian: (name, packages, blocks, steps, more members)."""
    yield ("cdi-podman", PODMAN, *cdi("podman"), {"script": "podman", "suite": "trixie"})
    yield ("cdi-dockerd", ("docker.io", "docker-cli", "iproute2"),
           *cdi("docker", feature=Block(CONTAINERS, having='{"features"', code=True)),
           {"suite": "trixie"})
    yield ("make-image", ("buildah", *PODMAN), {
        **DOCKERFILE,
        "make": Block(CONTAINERS, "An image to copy from", "make-image", words=(
            (f"buildah manifest push --all {IMAGE} docker://{IMAGE}", ":"),)),
        "copy": Block(CONTAINERS, "An image to copy from", "COPY --from"),
    }, (
        Step("unguarded", "podman run --rm plain python3 /ask.py", **REACHED),
        Step("an image for two architectures", f". ./make; buildah manifest inspect {IMAGE}",
             prints=('"amd64"', '"arm64"')),
        Step("COPY --from", "{ echo FROM plain; cat copy; grep ^ENTRYPOINT dockerfile; } >Dockerfile; "
             "podman build -t guarded .; podman run --rm guarded python3 /ask.py", **GUARDED),
        # The kubelet mounts an image as this option does.
        Step("the image as a volume", "podman run --rm --mount "
             f"type=image,source={IMAGE},destination=/opt/cudaguard "
             "-e LD_PRELOAD=/opt/cudaguard/lib/libcudaguard.so -e CUDAGUARD_POLICY=FORCE_CPU "
             "plain python3 /ask.py", **GUARDED)), {"suite": "trixie"})
    yield ("make-image-ctr", ("containerd", "docker.io", "docker-cli", "buildah", "netavark",
                              "iproute2"), {
        **DOCKERFILE,
        "make": Block(CONTAINERS, "An image to copy from", "make-image", words=(
            (f"docker://{IMAGE}", f"oci-archive:image.tar:{IMAGE}"),))}, (
        Step("unguarded", "ctr run --rm $plain unguarded python3 /ask.py", **REACHED),
        Step("the image as a volume", ". ./make; ctr images import --all-platforms image.tar; "
             f"ctr images mount --platform linux/amd64 {IMAGE} /mnt; ctr run --rm "
             "--mount type=bind,src=/mnt,dst=/opt/cudaguard,options=rbind:ro "
             "--env LD_PRELOAD=/opt/cudaguard/lib/libcudaguard.so --env CUDAGUARD_POLICY=FORCE_CPU "
             "$plain volume python3 /ask.py", **GUARDED)), {"suite": "trixie"})
    yield ("kubernetes-policy", ("golang-k8s-apiserver-dev", "golang-k8s-client-go-dev",
                                 "golang-k8s-api-dev", "golang-go", "iproute2"), {
        "admit.go": File("tests/lab/policy/admit.go"),
        "compare.py": File("tests/lab/policy/compare.py"),
        "pods.yaml": File("tests/integrations/policy/pods.yaml"),
        "admitted.json": Yaml("tests/integrations/policy/admitted.yaml"),
        "policy.yaml": File("scripts/integrations/kubernetes/policy.yaml"),
        "api__v1_openapi.json": PodSchema(),
    }, (
        Step("unguarded", "./admit schemas pods.yaml | python3 compare.py",
             prints=("^requests-nothing: not as expected$",), exit=1),
        Step("the policy", "./admit schemas policy.yaml pods.yaml | python3 compare.py",
             prints=("^[0-9]+ pods as expected$",), never=("not as expected",))), {"suite": "sid"})
    yield ("kubernetes-admitted", (*PODMAN, "runc", "catatonit", "buildah"), {
        "make": Block(CONTAINERS, "An image to copy from", "make-image", words=(
            (f"buildah manifest push --all {IMAGE} docker://{IMAGE}", ":"),)),
        "admitted.json": Yaml("tests/integrations/policy/admitted.yaml")}, (
        Step("unguarded", "podman run --rm plain python3 /ask.py", **REACHED),
        Step("a pod that the policy has changed", "play", **GUARDED),
        Step("exec", "podman exec pod-a python3 /ask.py", **GUARDED)), {"suite": "sid"})


def slurm():
    """Slurm with three nodes, of which n3 is alone in the partition debug, and with accounting."""
    blocks = {
        "try": Block(SLURM, "Try it"),
        "setting": Block(SLURM, "Install it", "TaskProlog="),
        "path": Block(SLURM, having="cudaguard=/usr/local", code=True),
        "partitions": Block(SLURM, having="partitions='", code=True),
        "check": Block(SLURM, "Install it", "for partition in"),
        "launcher": Block(SLURM, "Slurm", "srun cudaguard run",
                          words=(("python x.py", "python3 /srv/ask.py"),)),
        "record": Block(SLURM, "Record the attempts of jobs"),
        "policy": Block(SLURM, having="CUDAGUARD_POLICY=OFF sbatch", code=True,
                        words=(("…", "--wait -o /srv/shared/policy.out job.sh"),)),
        "program": Block(SLURM, having="cudaguard run --policy OFF -- PROGRAM", code=True,
                         words=(("PROGRAM", "python3 /srv/ask.py"),)),
    }
    steps = (
        Step("three nodes", "sinfo -h -N -o '%N %T'", prints=("^n1 idle", "^n2 idle", "^n3 idle")),
        Step("unguarded", "srun python3 /srv/ask.py", **REACHED),
        Step("unguarded on all nodes", "srun -N2 -p cpu python3 /srv/ask.py",
             prints=(r"^0\n0$",), never=(MESSAGE,)),
        Step("the launcher in a job script", 'batch "$(cat launcher)"', **GUARDED),
        Step("srun --task-prolog", ". ./try", **GUARDED),
        Step("srun --task-prolog with a GPU",
             "sed 's/^srun /srun --gres=gpu:1 /' try >try_gpu; . ./try_gpu", **REACHED),
        Step("the TaskProlog for one partition", "install_prolog partitions=cpu; . ./check",
             prints=(r"^100$", MESSAGE, r"^0$")),
        Step("the TaskProlog for two partitions",
             'install_prolog "$(cat partitions)"; srun -p debug python3 /srv/ask.py', **GUARDED),
        Step("the TaskProlog for all",
             "install_prolog partitions=; srun -p debug python3 /srv/ask.py", **GUARDED),
        Step("two nodes", "srun -N2 -p cpu python3 /srv/ask.py", prints=(r"^100\n", MESSAGE),
             never=(r"^0$",)),
        Step("a job with a GPU", "srun --gres=gpu:1 python3 /srv/ask.py", **REACHED),
        Step("a batch script", "batch 'python3 /srv/ask.py'", **GUARDED),
        Step("sbatch with the variable that allows CUDA",
             "job 'python3 /srv/ask.py'; . ./policy; cat /srv/shared/policy.out", **REACHED),
        Step("a program of a job with the policy that allows CUDA",
             'batch "$(cat program)"', **REACHED),
        Step("records", "mkdir -m 1777 /srv/cuda-records; append_prolog record; "
             "srun -p cpu python3 /srv/ask.py; cat /srv/cuda-records/*",
             prints=(r"^100$", r'"call":"cuInit"|cuInit')),
        Step("accounting", "sleep 5; sacct -a -X -n -P -o JobName,Partition,State | sort | uniq -c",
             prints=(r"python3\|cpu\|COMPLETED", r"python3\|debug\|COMPLETED",
                     r"\|cpu\|COMPLETED"), never=("FAILED", "NODE_FAIL")),
    )
    return ("slurm", ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "mariadb-server", "munge",
                      "iproute2"), blocks, steps, {})


def schedulers():
    """The schedulers in Python: (name, packages, blocks, steps, more members of the row)."""
    by_launcher = {"train": Block(PYTHON_PAGE, "Workers", "ray start")}
    allow = Block(PYTHON_PAGE, having=".options(runtime_env=", code=True)
    yield ("ray", ("ray==2.49.2",), {
        **by_launcher, "options": allow,
        "py_executable": Block(PYTHON_PAGE, "Ray", "py_executable"),
        "env_vars": Block(PYTHON_PAGE, "Ray", "env_vars")}, (
        Step("unguarded", "cluster ray start --head; python ray_job.py plain", **REACHED),
        Step("py_executable", "python ray_job.py py_executable", **GUARDED),
        Step("env_vars", "python ray_job.py env_vars", **GUARDED),
        Step("the option that allows CUDA", "python ray_job.py env_vars options", **REACHED),
        Step("ray start by the launcher",
             'ray stop --force; cluster "$(line "ray start")"; python ray_job.py plain',
             **GUARDED)), {})
    yield ("dask", ("dask[distributed]==2025.9.1",), {
        **by_launcher, "python": Block(PYTHON_PAGE, "Dask", language="python"),
        "yaml": Block(PYTHON_PAGE, "Dask", language="yaml")}, (
        Step("unguarded", "python dask_job.py plain", **REACHED),
        Step("the setting in the program", "python dask_job.py python", **GUARDED),
        Step("a worker, unguarded",
             "worker dask worker tcp://127.0.0.1:8786; python dask_client.py", **REACHED),
        Step("the worker by the launcher",
             'worker "$(line "dask worker" | sed s/SCHEDULER/127.0.0.1/)"; python dask_client.py',
             **GUARDED),
        Step("the setting in a file",
             "mkdir -p ~/.config/dask; cp yaml ~/.config/dask/cudaguard.yaml; "
             "worker dask worker tcp://127.0.0.1:8786; python dask_client.py", **GUARDED)), {})
    variable = Block(PYTHON_PAGE, "joblib and multiprocessing", "LD_PRELOAD")
    yield ("joblib", ("joblib==1.5.2",), {**by_launcher, "python": variable}, (
        Step("unguarded", "cp joblib_job.py train.py; python train.py", **REACHED),
        Step("by the launcher", 'eval "$(line train.py)"', **GUARDED),
        Step("LD_PRELOAD for the workers",
             "head -n 3 python >train.py; cat joblib_job.py >>train.py; python train.py",
             **GUARDED)), {})
    yield ("multiprocessing", (), {**by_launcher, "python": variable}, (
        Step("unguarded", "write_pool_job 'import multiprocessing' "
             "'pool = multiprocessing.get_context(\"spawn\").Pool(2)'; python train.py", **REACHED),
        Step("by the launcher", 'eval "$(line train.py)"', **GUARDED),
        Step("LD_PRELOAD for the workers", 'write_pool_job "$(cat python)"; python train.py',
             **GUARDED)), {})
    yield ("pyspark", ("pyspark==3.5.6",), by_launcher, (
        Step("unguarded", "cp pyspark_job.py train.py; python train.py", **REACHED),
        Step("by the launcher", 'eval "$(line train.py)"', **GUARDED)), {"tool": "java"})


def rows(lab):
    common = (SCRIPTS / "common.sh").read_text(encoding="utf-8")
    found = []
    for place, group in (("machine", [*engines(), *newer_engines(), slurm()]),
                         ("sandbox", schedulers())):
        for name, packages, blocks, steps, more in group:
            setup = (SCRIPTS / f"{more.pop('script', name)}.sh").read_text(encoding="utf-8")
            texts = read(blocks, lab.checkout)
            found.append(Row(name, steps, texts, common + setup, packages, place, **more))
    return found


def read(blocks, checkout):
    texts = {}
    for name, block in blocks.items():
        try:
            texts[name] = block.read(checkout)
        except pages.NotFound as error:
            texts[name] = error
    return texts


def run(lab, row):
    missing = [str(error) for error in row.blocks.values() if isinstance(error, pages.NotFound)]
    if missing:
        return {"outcome": "failed", "reason": "; ".join(missing)}
    if row.tool and not shutil.which(row.tool):
        return {"outcome": "not installed", "reason": f"this machine has no {row.tool}"}
    with contextlib.ExitStack() as stack:
        place = (ImageMachine(lab, stack, row.suite) if row.place == "machine" else Sandbox(lab))
        try:
            versions = place.install(row.packages)
        except NotInstalled as error:
            return {"outcome": "not installed", "reason": str(error)}
        printed = place.run(script(row), row.user)
    first = name_of(row.packages[0]) if row.packages else "python"
    return {**judged(row.steps, printed), "version": versions[first], "versions": versions}


def name_of(package):
    """A package without its version and its extras."""
    return re.split(r"[\[=]", package)[0]


def script(row):
    """One shell script: the blocks of the pages as files, the set-up, then each step."""
    lines = ["set -eu", "exec 2>&1 </dev/null", 'mkdir -p "$HOME/row"', 'cd "$HOME/row"']
    for name, text in row.blocks.items():
        lines += [f"cat >{name} <<'END OF BLOCK'", text.rstrip("\n"), "END OF BLOCK"]
    lines += [row.setup, "set +e", "echo '=== ready'"]
    for step in row.steps:
        lines += [f'echo "=== step {step.name}"', f"(set -e\n{step.text}\n)", 'echo "=== exit $?"']
    return "\n".join(lines) + "\n"


def judged(steps, printed):
    """The facts of a row from what its script printed."""
    before, ready, rest = printed.partition("=== ready\n")
    if not ready:
        return {"outcome": "failed", "reason": "set-up: " + last_line(before),
                "output": before[-KEPT:]}
    facts, wrong = {}, []
    for step, (text, code) in zip(steps, parts_of(rest, steps), strict=True):
        problems = problems_of(step, text, code)
        facts[step.name] = {"result": "; ".join(problems) or "passed", "output": text[-KEPT:]}
        wrong += [f"{step.name}: {problem}" for problem in problems]
    outcome = {"outcome": "failed", "reason": "; ".join(wrong)} if wrong else {"outcome": "passed"}
    return {**outcome, "steps": facts}


def parts_of(text, steps):
    """(output, exit code) of each step. A step that did not end has the code None."""
    for step in steps:
        _, _, after = text.partition(f"=== step {step.name}\n")
        match = re.search(r"(?s)\A(.*?)=== exit (\d+)\n", after)
        yield (match[1], int(match[2])) if match else (after, None)


def problems_of(step, text, code):
    found = [] if code == step.exit else [f"exit {code}, not {step.exit}"]
    found += [f"does not print {pattern}" for pattern in step.prints
              if not re.search(pattern, text, re.MULTILINE)]
    return found + [f"prints {pattern}" for pattern in step.never
                    if re.search(pattern, text, re.MULTILINE)]


class ImageMachine(Machine):
    """A machine in which prepare.sh also makes the root file system of the containers."""

    def install(self, packages):
        self.put("ioctl.py", ioctl_program(self.lab.checkout))
        return super().install(packages)


class Sandbox:
    """This machine with cudaguard at /usr/local, the fake driver and a private network and /dev."""

    def __init__(self, lab):
        self.lab = lab
        self.python = lab.scratch / "venv/bin/python"

    def install(self, packages):
        """Installs the packages, and returns their versions."""
        # The machine's own pip installs the packages, because a new pip takes longer than most rows.
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", self.python.parent.parent],
                       check=True)
        if packages:
            done = self.pip("install", "-q", "--cache-dir", PIP_CACHE, *packages, timeout=PATIENCE)
            if done.returncode != 0:
                raise NotInstalled(last_line(done.stdout))
        shown = self.pip("list", "--format=freeze")
        found = dict(line.split("==") for line in shown.stdout.splitlines() if "==" in line)
        wanted = {name_of(package) for package in packages}
        return {"python": packaged.run([self.python, "-V"]).stdout.split()[1],
                **{name: found[name] for name in sorted(wanted)}}

    def pip(self, *words, **options):
        return packaged.run([PYTHON, "-m", "pip", "--python", self.python, *words], **options)

    def run(self, text, _):
        """What the script prints."""
        tree = installed_tree(self.lab)
        home = self.lab.scratch / "home"
        home.mkdir()
        hosts = self.lab.scratch / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {os.uname().nodename}\n")
        program = self.lab.scratch / "row.sh"
        program.write_text(text)
        env = {"HOME": str(home), "TMPDIR": str(self.lab.scratch), "LC_ALL": "C.UTF-8",
               "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
               "LD_LIBRARY_PATH": str(self.lab.build / "tests/fakes/driver")}
        mounts = ["--tmpfs", "/usr/local", "--ro-bind", tree / "bin", "/usr/local/bin",
                  "--ro-bind", tree / "lib", "/usr/local/lib", "--unshare-net", "--unshare-pid",
                  "--proc", "/proc", "--ro-bind", hosts, "/etc/hosts", "--tmpfs", "/tmp"]
        done = packaged.run([*harness.sandbox("fake", map(str, mounts)), "timeout", str(PATIENCE),
                             "bash", program], env=env, timeout=PATIENCE + 60)
        return done.stdout


def ioctl_program(checkout):
    """The program of docs/fence.md's first example. It sends one of NVIDIA's ioctls."""
    text = Block(FENCE, having="fcntl.ioctl", language="sh").read(checkout)
    return re.search(r"(?s)python3 -c '\n(.*)'", text)[1]
