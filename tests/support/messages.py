# SPDX-License-Identifier: Apache-2.0
"""The guard's messages by name. Their words are in tests/golden/messages.txt, so that a changed word
changes no other test.

    messages.text("no_nvml", cause="FORCE_CPU", asked_by="train")   the words with these values
    messages.find(err, "no_cuda", asked_by="train")                 the lines of stderr that are this
"""

import os
import re

from support import settings

GOLDEN = os.path.join(settings.TESTS, "golden", "messages.txt")
DENIED = ("no_cuda", "no_nvml", "no_opencl")
PREFIX = r"cudaguard\[(?P<pid>\d+)\]: "
OPTIONAL = re.compile(r"\[([^]]*)\]")
FIELD = re.compile(r"\{(\w+)\}")


def patterns_of(path):
    """Returns {name: pattern}."""
    with open(path, encoding="utf-8") as stream:
        rows = [line.split(None, 1) for line in stream if line.strip() and line[0] != "#"]
    patterns = {name: pattern.rstrip("\n") for name, pattern in rows}
    assert len(patterns) == len(rows), "a name occurs twice"
    return patterns


PATTERNS = patterns_of(GOLDEN)


def fill(name, values, words, field, optional):
    """Puts a pattern together: words(text) for each text, field(name) for each field, and
    optional(piece, its fields) for each part in brackets."""
    unknown = values.keys() - FIELD.findall(PATTERNS[name])
    assert not unknown, "%s has no field %s" % (name, unknown)

    def piece(text):
        return "".join(field(part) if place % 2 else words(part)
                       for place, part in enumerate(FIELD.split(text)))

    return "".join(optional(piece(part), FIELD.findall(part)) if place % 2 else piece(part)
                   for place, part in enumerate(OPTIONAL.split(PATTERNS[name])))


def text(name, **values):
    """Returns the words of a message. Each part in brackets is there if its fields have values."""
    return fill(name, values, str, lambda field: str(values.get(field, "{%s}" % field)),
                lambda piece, fields: piece if values.keys() >= set(fields) else "")


def expression(name, **values):
    """Returns the regular expression of a message. A field without a value matches any text. A
    value is a text or a compiled expression."""
    def group(field):
        value = values.get(field, re.compile(".+?"))
        return "(?P<%s>%s)" % (field, value.pattern if isinstance(value, re.Pattern)
                               else re.escape(str(value)))

    return fill(name, values, re.escape, group, lambda piece, fields:
                piece if values.keys() & set(fields) else "(?:%s)?" % piece)


def line(name, **values):
    """Returns the regular expression of one printed line, with its end."""
    return r"%s%s(?:\n|\Z)" % (PREFIX, expression(name, **values))


def read(name, words):
    """Returns the fields of a text that is this message or part of one, or None if it is not."""
    match = re.fullmatch(expression(name), words)
    return match and match.groupdict()


def matches(output, names, values):
    """Yields (match, name) of each line that is one of these messages. The value None means that
    the part in brackets that has the field must not be there."""
    absent = {field for field, value in values.items() if value is None}
    given = {field: value for field, value in values.items() if value is not None}
    for name in names:
        assert absent <= set(FIELD.findall(PATTERNS[name])), name
        for match in re.finditer("^" + line(name, **given), output, re.MULTILINE):
            if all(match[field] is None for field in absent):
                yield match, name


def find(output, *names, **values):
    """Returns the fields of each line of `output` that is one of these messages, in their order.
    Each also has "name" and "pid"."""
    found = sorted(matches(output, names, values), key=lambda one: one[0].start())
    return [{"name": name, **match.groupdict()} for match, name in found]


def without(output, *names, **values):
    """Returns `output` without the lines that are one of these messages."""
    for match, _ in sorted(matches(output, names, values), key=lambda one: -one[0].start()):
        output = output[:match.start()] + output[match.end():]
    return output
