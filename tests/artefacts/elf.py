# SPDX-License-Identifier: Apache-2.0
"""What the artefact tests ask of an ELF file: its dynamic table, segments, sections and symbols.

64-bit little-endian only (x86-64, AArch64). Read from the bytes, not from a tool's printout.
"""

import collections
import struct

DYNAMIC_TAGS = {
    1: "NEEDED", 12: "INIT", 13: "FINI", 14: "SONAME", 15: "RPATH", 16: "SYMBOLIC", 22: "TEXTREL",
    25: "INIT_ARRAY", 26: "FINI_ARRAY", 29: "RUNPATH", 30: "FLAGS", 32: "PREINIT_ARRAY",
    0x6ffffef5: "GNU_HASH", 0x6ffffffb: "FLAGS_1", 0x6ffffffc: "VERDEF", 0x6ffffffe: "VERNEED",
    0x6ffffefc: "AUDIT", 0x6ffffefb: "DEPAUDIT", 0x7ffffffd: "AUXILIARY", 0x7fffffff: "FILTER",
}  # fmt: skip
SEGMENTS = {1: "LOAD", 2: "DYNAMIC", 3: "INTERP", 7: "TLS", 0x6474e551: "STACK",
            0x6474e552: "RELRO", 0x6474e553: "PROPERTY"}  # fmt: skip
BINDS = {0: "LOCAL", 1: "GLOBAL", 2: "WEAK", 10: "UNIQUE"}
TYPES = {0: "NOTYPE", 1: "OBJECT", 2: "FUNC", 6: "TLS", 10: "IFUNC"}
MACHINES = {62: "x86-64", 183: "AArch64"}

Segment = collections.namedtuple("Segment", "kind flags offset address filesize memsize align")
Section = collections.namedtuple("Section", "name kind flags address offset size link info entry")
Symbol = collections.namedtuple("Symbol", "name version bind type defined address size")


class Elf:
    """One file. `version` of a symbol is "" where it has none; flags of segments are "rwx" letters."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as stream:
            self.bytes = stream.read()
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError(path + ": not a 64-bit little-endian ELF file")
        self.machine = MACHINES.get(self.read("<H", 18)[0], "unknown")
        program, section = self.read("<QQ", 32)
        _, size_p, count_p, size_s, count_s, names = self.read("<6H", 52)
        self.segments = []
        for i in range(count_p):
            kind, flags, offset, address, _, filesize, memsize, align = self.read(
                "<IIQQQQQQ", program + i * size_p)
            letters = "".join(c for c, bit in (("r", 4), ("w", 2), ("x", 1)) if flags & bit)
            self.segments.append(Segment(SEGMENTS.get(kind, hex(kind)), letters, offset, address,
                                         filesize, memsize, align))
        raw = [self.read("<IIQQQQIIQQ", section + i * size_s) for i in range(count_s)]
        self.sections = [
            Section(self.text(raw[names][4] + r[0]), r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[9])
            for r in raw
        ]
        self.dynamic = self.read_dynamic()
        self.version_needs = {}  # file -> versions
        self.versions = self.read_version_needs()
        self.symbols = self.read_symbols()

    def read(self, layout, offset):
        return struct.unpack_from(layout, self.bytes, offset)

    def text(self, offset):
        return self.bytes[offset:self.bytes.index(b"\0", offset)].decode()

    def section(self, name):
        return next((s for s in self.sections if s.name == name), None)

    def content(self, name):
        found = self.section(name)
        return self.bytes[found.offset:found.offset + found.size] if found else b""

    def kind(self, kind):
        return [segment for segment in self.segments if segment.kind == kind]

    def read_dynamic(self):
        strings = self.section(".dynstr")
        found = []
        for at in range(0, len(self.content(".dynamic")), 16):
            tag, value = struct.unpack_from("<QQ", self.content(".dynamic"), at)
            if tag == 0:
                break
            name = DYNAMIC_TAGS.get(tag, hex(tag))
            if name in ("NEEDED", "SONAME", "RPATH", "RUNPATH", "AUDIT", "DEPAUDIT", "FILTER",
                        "AUXILIARY"):
                value = self.text(strings.offset + value)
            found.append((name, value))
        return found

    def tags(self, name):
        return [value for tag, value in self.dynamic if tag == name]

    def flag(self, tag, bit):
        return any(value & bit for value in self.tags(tag))

    def read_version_needs(self):
        """version index -> name; fills version_needs."""
        names = {}
        needs = self.section(".gnu.version_r")
        if needs is None:
            return names
        strings = self.sections[needs.link].offset
        at = needs.offset
        for _ in range(needs.info):
            _, count, file, first, following = self.read("<HHIII", at)
            versions = self.version_needs.setdefault(self.text(strings + file), [])
            entry = at + first
            for _ in range(count):
                _, _, index, name, after = self.read("<IHHII", entry)
                names[index] = self.text(strings + name)
                versions.append(names[index])
                entry += after
            at += following
        return names

    def read_symbols(self):
        table = self.section(".dynsym")
        strings = self.sections[table.link].offset
        versions = self.section(".gnu.version")
        found = []
        for i in range(1, table.size // 24):
            name, info, _, index, address, size = self.read("<IBBHQQ", table.offset + i * 24)
            number = self.read("<H", versions.offset + i * 2)[0] & 0x7fff if versions else 1
            found.append(Symbol(self.text(strings + name), self.versions.get(number, ""),
                                BINDS.get(info >> 4, "?"), TYPES.get(info & 15, "?"), index != 0,
                                address, size))
        return found

    @property
    def imports(self):
        return [symbol for symbol in self.symbols if not symbol.defined]

    @property
    def exports(self):
        return [s for s in self.symbols if s.defined and s.bind != "LOCAL"]

    def code(self, symbol, size=None):
        """The bytes that ld.so maps at a symbol's address."""
        for segment in self.kind("LOAD"):
            if 0 <= symbol.address - segment.address < segment.filesize:
                at = segment.offset + symbol.address - segment.address
                return self.bytes[at:at + (symbol.size if size is None else size)]
        return b""

    def features(self):
        """The bits of the property note (x86: 1 IBT, 2 SHSTK; AArch64: 1 BTI, 2 PAC), else 0."""
        note = self.content(".note.gnu.property")
        at = 0
        while at + 16 <= len(note):
            name_size, size, _ = struct.unpack_from("<III", note, at)
            at += 12 + name_size
            end = at + size
            while at + 12 <= end:
                kind, length, value = struct.unpack_from("<III", note, at)
                if kind in (0xc0000002, 0xc0000000):
                    return value
                at += 8 + (length + 7) // 8 * 8
            at = (end + 7) // 8 * 8
        return 0
