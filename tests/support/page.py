# SPDX-License-Identifier: Apache-2.0
"""The pages that page_samples writes, and what every page must keep to."""

import os
import re
import subprocess

from support import harness

SAMPLES = os.path.join(harness.BUILD, "tests", "launcher", "page_samples")
NAMES = ("empty", "fail", "failed", "forged", "forged_report", "large", "pass", "report",
         "small_report")
WORST = "worst"  # forged, and as much as can be

ELEMENTS = set("""html head meta title style body main header footer section article h1 h2 h3 h4 p
    span strong code a i div dl dt dd ul ol li details summary table thead tbody tr th td""".split())
# The values that each attribute may have; no address but of a place in the page.
ATTRIBUTES = {
    "lang": "en", "charset": "utf-8", "name": "viewport|color-scheme",
    "http-equiv": "Content-Security-Policy", "class": r"[a-z -]+", "id": r"sure|t\d+",
    "href": r"#sure|#t\d+", "scope": "col|row", "tabindex": "0", "role": "region",
    "aria-label": r"[A-Za-z]+( [a-z]+)*:?( \d+)?", "aria-hidden": "true",
    "content": "width=device-width, initial-scale=1|light dark|"
               "default-src 'none'; style-src 'unsafe-inline'",
    "style": r"(;?(--d:\d+|(--step|--p|left|width|height):\d+\.\d\d%))+"}
# What nobody could see, or what turns the direction of a text.
HIDDEN = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def write(folder):
    subprocess.run([SAMPLES, folder], check=True, timeout=300)


def mistakes(text, html5lib):
    """What is wrong with a page, as a list of texts."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    document = parser.parse(text)
    found = ["%s at %s" % (code, place) for place, code, _ in parser.errors]
    found += ["U+%04X" % ord(one) for one in set(HIDDEN.findall(text))]
    ids = [one.get("id") for one in document.iter() if one.get("id")]
    found += ["id twice: " + one for one in set(ids) if ids.count(one) > 1]
    headings = []
    for element in document.iter():
        if element.tag not in ELEMENTS:
            found.append("element %s" % element.tag)
        for name, value in element.attrib.items():
            if not re.fullmatch(ATTRIBUTES.get(name, "(?!)"), value):
                found.append("attribute %s=%s" % (name, value[:60]))
        if element.get("href", "#")[1:] not in ["", *ids]:
            found.append("nowhere: " + element.get("href"))
        if element.tag == "th" and not element.get("scope"):
            found.append("th without a scope")
        if re.fullmatch("h[1-6]", str(element.tag)):
            headings.append(int(element.tag[1]))
    if headings.count(1) != 1 or any(b > a + 1 for a, b in zip([0, *headings], headings)):
        found.append("headings %s" % headings)
    style = document.find("head/style")
    if re.search(r"url\(|@import|expression", style.text if style is not None else ""):
        found.append("the style sheet asks for something")
    return found
