# SPDX-License-Identifier: Apache-2.0
"""The admission policies, and the pods that they make. That they change the pods that request no GPU,
and no others, shows the lab's row kubernetes-policy: Kubernetes' own plug-in makes the pods of
policy/admitted.yaml of those of policy/pods.yaml."""

import json

import pytest

from support import harness, places

yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed")

FILES = ("policy.yaml", "kyverno-policy.yaml")
TEXTS = {name: places.read("kubernetes", name) for name in FILES}
POLICIES = {name: next(yaml.safe_load_all(text)) for name, text in TEXTS.items()}
OBJECTS = list(yaml.safe_load_all(harness.read(places.HERE, "policy", "pods.yaml")))
ADMITTED = yaml.safe_load(harness.read(places.HERE, "policy", "admitted.yaml"))


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
