# SPDX-License-Identifier: Apache-2.0
"""Prints what a policy makes of pods. Runs in a Python that has cel-expr-python. Standard input has
{"policy": ..., "objects": [...]}, a MutatingAdmissionPolicy with namespaces and pods. The answer is
{NAME: SPEC} with the pods that it changes.

The library evaluates the CEL. The selectors, the types (`Object.spec{...}`) and the merge are
replacements for Kubernetes' own ones, which the lab's row kubernetes-policy runs.
"""

import json
import re
import sys

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

KEYS = {"volumeMounts": "mountPath"}  # the other lists are merged by name


def selects(selector, labels):
    assert set(selector) <= {"matchExpressions"}, selector
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "NotIn", expression
        if labels.get(expression["key"]) in expression["values"]:
            return False
    return True


def evaluate(expression, **values):
    # A type of Kubernetes, `Object.spec{name: value}`, becomes a map, `{"name": value}`.
    if "Object" in expression:
        expression = re.sub(r"\bObject[\w.]*{", "{", expression)
        expression = re.sub(r"\b(\w+): ", r'"\1": ', expression)
    env = cel.NewEnv(variables=dict.fromkeys(values, cel.Type.DYN),
                     extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()])
    return env.compile(expression).eval(data=values).plain_value()


def merge(old, new, name=""):
    if isinstance(new, dict) and isinstance(old, dict):
        return {**old, **{key: merge(old.get(key), new[key], key) for key in new}}
    if isinstance(new, list) and isinstance(old, list):
        key = KEYS.get(name, "name")
        changes = {item[key]: item for item in new}
        return [merge(item, changes.pop(item[key], item)) for item in old] + list(changes.values())
    return new


def admitted(spec, pod):
    if not all(evaluate(condition["expression"], object=pod)
               for condition in spec["matchConditions"]):
        return pod
    variables = {}
    for variable in spec["variables"]:
        variables[variable["name"]] = evaluate(
            variable["expression"], object=pod, variables=variables)
    for mutation in spec["mutations"]:
        assert mutation["patchType"] == "ApplyConfiguration", mutation
        pod = merge(pod, evaluate(mutation["applyConfiguration"]["expression"], object=pod,
                                  variables=variables))
    return pod


def main():
    given = json.load(sys.stdin)
    spec = given["policy"]["spec"]
    constraints = spec["matchConstraints"]
    namespaces, found = {}, {}
    for thing in given["objects"]:
        metadata = thing["metadata"]
        labels = metadata.get("labels", {})
        if thing["kind"] == "Namespace":
            namespaces[metadata["name"]] = labels
        elif (selects(constraints["namespaceSelector"], namespaces[metadata["namespace"]]) and
              selects(constraints["objectSelector"], labels)):
            changed = admitted(spec, thing)
            # An empty list is the same as none.
            changed["spec"] = {key: value for key, value in changed["spec"].items() if value != []}
            if changed != thing:
                found[metadata["name"]] = changed["spec"]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
