"""The rules that a report names, as the specification states them: a report is read far from it."""
from __future__ import annotations

import re
from html import escape

from impl.inspect.drawing import tag

#: A test holds these to `spec/`.
RULES = {
    "ordering.any-legal.equal":
        "Every order that respects the dependencies of a schedule MUST give the same values, bit "
        "for bit.",
    "dependencies.raw.order":
        "A kernel that reads version *v* of some bytes MUST run after every kernel that writes "
        "those bytes in a version up to *v*.",
    "dependencies.war.order":
        "A kernel that writes version *v+1* of some bytes MUST run after every kernel that reads "
        "those bytes in a version up to *v*.",
    "dependencies.waw.order":
        "Two kernels that write the same bytes MUST run in the order of the versions that they "
        "make.",
    "fusion.boundary.reason":
        "A schedule MUST give a reason for every temporary that passes from one kernel to another.",
    "fusion.group.legal":
        "An element that one stage of a kernel reads of another's value MUST have been written in "
        "the same iteration of the kernel's prefix; a kernel writes no storage twice, and reads in "
        "one stage no value that another stage has written only in part.",
    "memory.reuse.disjoint":
        "Two temporaries whose lifetimes overlap MUST NOT share a byte of an arena, unless one "
        "declares to be in place of the other, and their lifetimes have in common just the kernel "
        "that reads the other and writes the one.",
}
_NAMED = re.compile(r"(?:<code>)?r\[([a-z.-]+)\](?:</code>)?")


def linked(page: str) -> str:
    """A part of a report that names rules, each a link to its text. It holds no words of others."""
    def link(found: re.Match[str]) -> str:  # r[impl inspect.report.rules]
        return tag("a", tag("code", f"r[{found[1]}]"), href=f"#rule-{found[1]}")

    return _NAMED.sub(link, page)


def stated() -> str:
    """The texts of all rules that reports name."""
    return "".join(
        tag("p", tag("code", f"r[{name}]") + "<br>" + re.sub(r"\*(.+?)\*", r"<em>\1</em>",
                                                             escape(text)), id=f"rule-{name}")
        for name, text in RULES.items())
