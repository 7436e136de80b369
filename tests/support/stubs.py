# SPDX-License-Identifier: Apache-2.0
"""Makes the CUDA libraries that a plug-in needs to be loaded: each of their functions returns 1.
The real ones are downloads of a gigabyte, and without a GPU no program calls them."""

import collections
import os
import re
import subprocess

MADE = re.compile(r"lib(cublasLt|cublas|cudnn|cufft|curand)\.so")


def make_stubs(plugin, directory):
    """Makes them in the directory, with the versions of symbols that the plug-in wants."""
    def output(*words):
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-dW", plugin))
    versions = collections.defaultdict(list)  # of each library
    wanted = output("readelf", "-VW", plugin).partition(".gnu.version_r")[2]
    library = None
    for kind, name in re.findall(r"(File|Name): (\S+)", wanted):
        if kind == "File":
            library = name
        else:
            versions[library].append(name)
    functions = collections.defaultdict(list)  # of each version
    for line in output("nm", "-D", "--undefined-only", plugin).splitlines():
        name, _, version = line.split()[-1].partition("@")
        functions[version.lstrip("@")].append(name)
    for name in filter(MADE.match, needed):
        source, script = os.path.join(directory, "stub.c"), os.path.join(directory, "stub.map")
        ours = {version: functions[version] for version in versions[name]}
        prefix = MADE.match(name).group(1)
        plain = [each for each in functions[""] if each.startswith(prefix)]
        with open(source, "w", encoding="utf-8") as stream:
            for each in plain + sum(ours.values(), []):
                stream.write("int %s(void) { return 1; }\n" % each)
        with open(script, "w", encoding="utf-8") as stream:
            for version, names in ours.items():
                stream.write("%s { global: %s; };\n" % (version, "; ".join(names)))
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", os.path.join(directory, name),
                        "-Wl,-soname," + name, source] +
                       (["-Wl,--version-script=" + script] if ours else []), check=True)
