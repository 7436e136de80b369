# SPDX-License-Identifier: Apache-2.0
"""The admission policies change the pods that request no GPU, and no others. policy/pods.yaml has
the pods, policy/admitted.yaml what Kubernetes' own plug-in makes of them in the lab's row
kubernetes-policy."""

import json
import os
import subprocess

import pytest

from support import places

yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed")

FILES = ("policy.yaml", "kyverno-policy.yaml")
TEXTS = {name: places.read("kubernetes", name) for name in FILES}
POLICIES = {name: next(yaml.safe_load_all(text)) for name, text in TEXTS.items()}
HERE = os.path.join(places.HERE, "policy")


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as stream:
        return stream.read()


OBJECTS = list(yaml.safe_load_all(read("pods.yaml")))
ADMITTED = yaml.safe_load(read("admitted.yaml"))


def evaluated(case, policy):
    """{name: spec} of the pods that the policy changes."""
    case.need_platforms()
    done = subprocess.run(
        [places.PLATFORMS + "/python", os.path.join(HERE, "evaluate.py")], text=True,
        input=json.dumps({"policy": policy, "objects": OBJECTS}), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return ordered(json.loads(done.stdout))


def ordered(value):
    """Kubernetes' merge can put a new variable between two old ones, the test's puts it last."""
    if isinstance(value, list):
        return [ordered(item) for item in value]
    if isinstance(value, dict):
        return {key: (sorted(item, key=lambda entry: entry["name"]) if key == "env"
                      else ordered(item)) for key, item in value.items()}
    return value


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_policy_changes_pods_as_kubernetes_does(case, name):
    assert evaluated(case, POLICIES[name]) == ordered(ADMITTED)


@pytest.mark.full
@pytest.mark.parametrize(("right", "wrong"), [
    ("'nvidia.com/', ", ""), ("value: 'void'", "value: 'all'"), ("    objectSelector:", "    x:"),
    ("'linux') ==", "'linux') !="), (" == '0' ||", " == '2' ||"), ("resourceClaims", "claims")])
def test_control_wrong_policy_changes_other_pods(case, right, wrong):
    text = TEXTS["policy.yaml"]
    assert right in text
    policy = next(yaml.safe_load_all(text.replace(right, wrong)))
    policy["spec"]["matchConstraints"].setdefault("objectSelector", {})
    assert evaluated(case, policy) != ordered(ADMITTED)


@pytest.mark.full
@pytest.mark.parametrize(("text", "releases", "mistakes"), [
    (places.read("kubernetes", "pod.yaml"), ("1.25", "1.31", "1.37"), [
        ("readOnly:", "readonly:"), ("emptyDir: {}", "emptyDir: []"),
        ("mountPath: /cudaguard\n          readOnly", "readOnly"),
        ("initContainers:", "initContainer:")]),
    (TEXTS["policy.yaml"], ("1.36", "1.37"), [
        ("matchConditions:", "matchCondition:"),
        ("policyName: cudaguard", "policyName: [cudaguard]"),
        ("patchType: ", "patch: "), ('["CREATE"]', '"CREATE"')]),
    (yaml.safe_dump_all({**pod, "spec": ADMITTED[pod["metadata"]["name"]]} for pod in OBJECTS
                        if pod["metadata"]["name"] in ADMITTED), ("1.36", "1.37"), [])],
    ids=["pod", "policy", "admitted pods"])
def test_manifest_is_valid(case, text, releases, mistakes):
    for release in releases:
        done = case.validate(text, release)
        assert done.returncode == 0, done
    for right, wrong in mistakes:  # the control
        assert right in text
        assert case.validate(text.replace(right, wrong), releases[-1]).returncode != 0, right


def test_policy_for_kyverno_has_the_same_rules():
    policy, kyverno = POLICIES.values()
    assert kyverno["spec"] == policy["spec"]
    assert (kyverno["kind"], kyverno["apiVersion"]) == ("MutatingPolicy", "policies.kyverno.io/v1")


def test_pod_gets_what_the_cdi_device_gives():
    """test_cdi.py runs programs with these variables and this mount."""
    (device,) = json.loads(places.read("container", "cdi.json"))["devices"]
    edits = device["containerEdits"]
    (container,) = ADMITTED["requests-nothing"]["containers"]
    assert sorted("%(name)s=%(value)s" % entry for entry in container["env"]) == sorted(
        [*edits["env"], "NVIDIA_VISIBLE_DEVICES=void"])
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        mount["containerPath"] for mount in edits["mounts"]]


def test_docs_name_the_files_and_the_label():
    page = places.page("kubernetes")
    for name in FILES:
        assert "kubernetes/" + name in page
    (excluded,) = POLICIES["policy.yaml"]["spec"]["matchConstraints"]["objectSelector"][
        "matchExpressions"]
    assert "%s=%s" % (excluded["key"], *excluded["values"]) in page
