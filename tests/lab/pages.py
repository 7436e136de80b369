# SPDX-License-Identifier: Apache-2.0
"""Reads commands out of the pages in docs, so that the lab runs what a user would copy.

A block is chosen by its heading, by a text in it, or by both. If the page no longer has exactly one
such block, the reader fails. The lab then reports the page instead of running an old copy of it.
"""

import re

FENCED = re.compile(r"(?ms)^( *)```(\w*)\n(.*?)^\1```$")
HEADING = re.compile(r"(?m)^(#+) +(.*?) *$")


class NotFound(Exception):
    """A page has no such block, or more than one."""


def section(text, heading):
    """The part of a page below this heading, with the deeper headings in it."""
    found = [match for match in headings(text) if match[2] == heading]
    if len(found) != 1:
        raise NotFound(f'{len(found)} headings "{heading}"')
    (start,) = found
    later = [match.start() for match in headings(text)
             if match.start() > start.start() and len(match[1]) <= len(start[1])]
    return text[start.end():later[0] if later else len(text)]


def headings(text):
    """The headings outside of fenced blocks: a comment of a shell script is no heading."""
    inside = [match.span() for match in FENCED.finditer(text)]
    return [match for match in HEADING.finditer(text)
            if not any(start < match.start() < end for start, end in inside)]


def block(text, heading=None, having="", language=None):
    """The one fenced block in this section that contains the text `having`."""
    part = section(text, heading) if heading else text
    found = [unindented(match[3], match[1]) for match in FENCED.finditer(part)
             if having in match[3] and language in (None, match[2])]
    return only(found, f'blocks with "{having}" below "{heading}"')


def span(text, having):
    """The one `code` of a sentence or of a table that contains the text `having`."""
    found = [code for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", text)) if having in code]
    return only(found, f'codes with "{having}"')


def only(found, what):
    if len(found) != 1:
        raise NotFound(f"{len(found)} {what}")
    return found[0]


def unindented(text, indent):
    """A block of a list item is indented as the item is."""
    return "".join(line.removeprefix(indent) for line in text.splitlines(True))


def filled(text, words):
    """Replaces the words that stand for the user's own ones, for example IMAGE and PROGRAM."""
    for word in words:
        if word not in text:
            raise NotFound(f'no "{word}" to replace')
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.sub(alternatives, lambda match: words[match[0]], text) if words else text
