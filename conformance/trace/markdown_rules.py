"""A Python-Markdown extension: rules become anchored blocks, and `r[id]` in prose a link to one;
`owner/name#12` is a link to an issue.

Every link is written as `rule:ID`; the site's hook turns it into an address, since only it knows
which page holds the rule. An id that `spec/` does not state is a warning, and so an error in a
strict build.
"""
from __future__ import annotations

import logging
import re
import xml.etree.ElementTree as etree
from functools import cache
from typing import Any

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

from conformance.trace import EXCEPTION_LINE, REFERENCE, RULE_LINE, read_rules, split_revision

log = logging.getLogger("mkdocs.plugins.rules")


@cache
def known_rules() -> frozenset[str]:
    """The ids that `spec/` states. The site's hook clears it before each build."""
    return frozenset(rule.id for rule in read_rules().rules)


class RuleBlocks(BlockProcessor):
    """A paragraph whose first line is `r[id]`: a box with the id as its anchor and badge."""

    def test(self, parent: etree.Element, block: str) -> bool:
        return bool(RULE_LINE.match(block.splitlines()[0])) if block.strip() else False

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        first, *lines = blocks.pop(0).splitlines()
        match = RULE_LINE.match(first)
        assert match is not None  # `test` said so
        name, revision = split_revision(match[2])
        tier = "note" if match[1] else "law"
        box = etree.SubElement(parent, "div", {"class": f"rule {tier}", "id": f"r-{name}"})
        badge = etree.SubElement(box, "a", {"class": "rule-id", "href": f"matrix:{name}"})
        badge.text = name + (f" +{revision}" if revision > 1 else "")
        etree.SubElement(box, "span", {"class": "rule-tier"}).text = tier
        badge.set("title", "what follows and verifies this rule")
        excepted = [found[2] for line in lines if (found := EXCEPTION_LINE.match(line))]
        body = [line for line in lines if not EXCEPTION_LINE.match(line)]
        etree.SubElement(box, "p").text = "\n".join(body)
        for reason in excepted:
            note = etree.SubElement(box, "p", {"class": "rule-exception"})
            note.text = f"Exception here: {reason}"


class RuleLinks(InlineProcessor):
    """`r[id]` or `[r[id]]` in prose."""

    def __init__(self, known: frozenset[str], md: Markdown) -> None:
        super().__init__(rf"\[?{REFERENCE.pattern}\]?(?!\()", md)
        self.known = known

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element, int, int]:
        name, _ = split_revision(m.group(1))
        if name not in self.known:
            log.warning("there is no rule %s: cite one that spec/ states", name)
        link = etree.Element("a", {"class": "rule-link", "href": f"rule:{name}"})
        link.text = name
        return link, m.start(0), m.end(0)


class IssueLinks(InlineProcessor):
    """An issue of another project, `owner/name#12`."""

    ANCESTOR_EXCLUDES = ("a",)

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element, int, int]:
        link = etree.Element("a", {"href": f"https://github.com/{m.group(1)}/issues/{m.group(2)}"})
        link.text = m.group(0)
        return link, m.start(0), m.end(0)


class NormativeWords(InlineProcessor):
    """MUST, SHOULD and MAY stand out in a rule, the only place where they stand."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element, int, int]:
        word = etree.Element("strong", {"class": "rule-level"})
        word.text = m.group(0)
        return word, m.start(0), m.end(0)


class RulesExtension(Extension):
    """Registers the four processors."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.parser.blockprocessors.register(RuleBlocks(md.parser), "rule", 95)
        # Below code spans (190), above links (160): `r[...]` in code stays code.
        md.inlinePatterns.register(RuleLinks(known_rules(), md), "rule-link", 175)
        issues = IssueLinks(r"(?<![\w./-])([\w-]+/[\w.-]+)#(\d+)", md)
        md.inlinePatterns.register(issues, "issue-link", 150)
        words = NormativeWords(r"\b(?:MUST NOT|MUST|SHOULD|MAY)\b", md)
        md.inlinePatterns.register(words, "rule-level", 5)


def makeExtension(**options: Any) -> RulesExtension:
    return RulesExtension(**options)
