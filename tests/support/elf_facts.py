# SPDX-License-Identifier: Apache-2.0
"""Returns what readelf reports about a library as Python values. Works for x86-64 and AArch64."""

import collections
import os
import re
import subprocess

Symbol = collections.namedtuple("Symbol", "value size type binding section name version")
Segment = collections.namedtuple("Segment", "type offset address file_size memory_size flags")


def tool_output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


class Library:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as stream:
            self.bytes = stream.read()
        self.machine = re.search(r"Machine:\s+(.*)", tool_output("readelf", "-hW", path))[1]
        self.is_x86 = "X86-64" in self.machine

    def dynamic(self):
        """Returns [(tag, text)], for example ("NEEDED", "libc.so.6")."""
        entries = []
        for line in tool_output("readelf", "-dW", self.path).splitlines():
            match = re.match(r"\s*0x\w+ \((\w+)\)\s*(.*)$", line)
            if match:
                bracket = re.search(r"\[(.*)\]", match[2])
                entries.append((match[1], bracket[1] if bracket else match[2].strip()))
        return entries

    def symbols(self):
        """Returns the dynamic symbol table without its empty first entry."""
        result = []
        for line in tool_output("readelf", "-W", "--dyn-syms", self.path).splitlines():
            # A stripped file does not say that its types are GNU's.
            fields = re.sub(r"^( *\d+: \S+ +\S+ )<OS specific>: 10", r"\1IFUNC", line).split()
            if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
                continue
            name, _, version = fields[7].partition("@")
            result.append(Symbol(int(fields[1], 16), int(fields[2], 0), fields[3], fields[4],
                                 fields[6], name, version.lstrip("@")))
        return [symbol for symbol in result if symbol.name]

    def exports(self):
        return [s for s in self.symbols() if s.section != "UND"]

    def imports(self):
        return [s for s in self.symbols() if s.section == "UND"]

    def segments(self):
        result = []
        for line in tool_output("readelf", "-lW", self.path).splitlines():
            match = re.match(r"\s+([A-Z_]+)\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+) (0x\w+) ([RWE ]{3})",
                             line)
            if match:
                numbers = [int(number, 16) for number in match.groups()[1:5]]
                result.append(Segment(match[1], *numbers, match[6].replace(" ", "")))
        return result

    def codes(self, symbols):
        """Returns the bytes of each of these functions by name."""
        loads = [segment for segment in self.segments() if segment.type == "LOAD"]
        result = {}
        for symbol in symbols:
            for segment in loads:
                start = symbol.value - segment.address
                if 0 <= start < segment.file_size:
                    at = segment.offset + start
                    result[symbol.name] = self.bytes[at:at + symbol.size]
        return result

    def relocations(self):
        return re.findall(r"\bR_(?:X86_64|AARCH64)_(\w+)",
                          tool_output("readelf", "-rW", self.path))

    def needed_versions(self):
        """Returns, for example, {"libc.so.6": {"GLIBC_2.16"}}."""
        result, library = collections.defaultdict(set), None
        for line in tool_output("readelf", "-VW", self.path).splitlines():
            match = re.search(r"File: (\S+)", line)
            if match:
                library = match[1]
            match = re.search(r"Name: (\S+)\s+Flags:", line)
            if match and library:
                result[library].add(match[1])
        return result


def glibc_version(text):
    """Converts "GLIBC_2.2.5" to (2, 2, 5)."""
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else None
