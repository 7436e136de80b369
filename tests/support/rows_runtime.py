# SPDX-License-Identifier: Apache-2.0
"""The rows of programs linked to cudart, of programs linked to both, and of
cudaGetDriverEntryPoint."""

from support.matrix import DRIVEN, Row

NONE = {"text": "no_CUDA-capable_device_is_detected", "name": "cudaErrorNoDevice"}
FETCH = "scripts/fetch-cuda puts the runtimes there, with --static-11 the static one of CUDA 11"

ROWS = []
for version in ("11", "12.2", "12", "13"):
    # With driver 535, a CUDA 13 program stops at the version check, before any CUDA attempt.
    unguarded = ("fake",) if version == "13" else DRIVEN
    for kind in ("shared", "static"):
        if (version, kind) == ("12.2", "static"):
            continue  # The wheels of 12.2 have only the shared one; those of 12 have both
        program = "{programs}/runtime_%s_%s" % (version, kind)
        group = "cudart-shared" if kind == "shared" else "cudart-static"
        about = "linked to %s cudart %s, " % (kind, version)
        common = {"unguarded": unguarded, "needs": (program,), "why": FETCH,
                  "full": (version, kind) == ("11", "static")}
        ROWS.append(Row("%s.%s-count" % (group, version), about + "cudaGetDeviceCount",
                        [program, "count"],
                        dict(NONE, cudaGetDeviceCount="100", count=("-7", "0")), **common))
        ROWS.append(Row("%s.%s-malloc" % (group, version), about + "cudaMalloc first",
                        [program, "only", "cudaMalloc"], dict(NONE, cudaMalloc="100"), **common))
        ROWS.append(Row("procaddress.entry-%s-%s" % (version, kind), about + "cudaGetDriverEntryPoint",
                        [program, "entry"], {"entry": "100", "function": "null"}, **common))
    linked = "{programs}/runtime_%s_linked" % version
    if version in ("12", "13"):
        for way, expect in (("count", dict(NONE, cudaGetDeviceCount="100")),
                            ("driver", {"cuInit": "100"})):
            ROWS.append(Row("linked.cudart%s-%s" % (version, way),
                            "static cudart %s in a program linked to libcuda, by %s" % (version,
                                                                                       way),
                            [linked, way], expect, needs=(linked,), why=FETCH, worlds=DRIVEN,
                            linked=True, unguarded=DRIVEN if way == "driver" else unguarded))
