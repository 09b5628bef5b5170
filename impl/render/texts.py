"""A kernel that is source text: what is printed around it. Chapter: spec/custom.md."""
from __future__ import annotations

from impl.custom import WrittenText
from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.render.dialect import Dialect
from impl.render.names import identifier
from impl.render.source import SourceText


def render_text(ast: UOp, text: WrittenText, dialect: Dialect) -> SourceText:
    """The text of a kernel, as a function of the language.

    Raises:
        DTypeError: an argument has a type that the language lacks.
    """
    info, groups = ast.arg, dialect.groups
    name = identifier(info.name)
    dialect.begin()
    lines = []
    if groups is not None:
        groups.lanes = info.lanes
        groups.indices(True, True)
        lines.append(groups.ids(0))
    stored = {store.src[0].src[0] for store in ast.src}
    params = sorted((n for n in ast.toposort() if n.op is Ops.PARAM), key=lambda n: int(n.arg))
    lines += [dialect.text_argument(text.names[param.arg], param, param in stored)
              for param in params]
    kind = dialect.type_of(dtypes.index)
    lines += [dialect.constant(kind, *pair) for pair in
              (("items", str(text.items)), *((n, str(v)) for n, v in text.values))]
    body = dialect.text_body(text.text, name)
    if groups is None:
        lines += dialect.share("item", str(text.items), info.threads) if info.threads > 1 \
            else dialect.loop("item", str(text.items))
        if text.lanes is not None:
            lines += [dialect.constant(kind, "group", f"item / {text.lanes}"),
                      dialect.constant(kind, "lane", f"item % {text.lanes}")]
        lines += [body, dialect.closed()]
    else:
        lines.append(dialect.constant(kind, "item", f"group * {info.lanes} + lane"))
        # All lanes of a group come to where they wait for each other.
        lines += [body] if text.lanes is not None else \
            [dialect.opened(f"item < {text.items}"), body, dialect.closed()]
    phases = (True,) if info.threads > 1 else ()
    return SourceText(name, "{\n" + "\n".join(lines) + "\n}\n",
                      (*dialect.definitions(), *filter(None, (text.header,))),
                      dialect.signature(bool(phases)), info.threads, info.lanes,
                      tuple(groups.parameters) if groups else (), phases)
