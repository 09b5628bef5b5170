"""A solution of the lesson render: python -m conformance.learn solution render"""
# mypy: ignore-errors


def loops_of(kernel):
    found = {}
    for value in kernel.values:
        own = {value} if value.op == "loop" else set()
        own = own.union(*(found[source] for source in value.src))
        found[value] = own.difference(value.src[1:]) if value.op == "reduce" else own
    return found


class Writer:
    def __init__(self, kernel):
        self.kernel, self.loops = kernel, loops_of(kernel)
        self.names, self.lines = {}, []
        self.number = 0

    def line(self, depth, text):
        self.lines.append("  " * depth + text)

    def nest(self, loops, values, opened):
        """Open the loops one after the other, and compute in each what it lets one compute."""
        self.compute(values, opened)
        for loop in loops:
            self.line(len(opened), loop.opens)
            opened = [*opened, loop]
            self.compute(values, opened)
        return opened

    def compute(self, values, opened):
        for value in values:
            if value in self.names or not self.loops[value].issubset(opened):
                continue
            if value.op in ("loop", "number"):
                self.names[value] = value.text()
            elif value.op == "reduce":
                self.reduce(value, opened)
            else:
                given = [self.names[source] for source in value.src]
                self.declare(value, "const ", value.text(*given), len(opened))

    def declare(self, value, const, text, depth):
        self.number += 1
        self.names[value] = f"v{self.number}"
        self.line(depth, f"{const}{value.type} v{self.number} = {text};")

    def reduce(self, value, opened):
        what, *loops = value.src
        self.declare(value, "", value.start, len(opened))
        name, before = self.names[value], dict(self.names)
        inner = self.nest(loops, below(what), opened)
        self.line(len(inner), f"{name} = {value.text(name, self.names[what])};")
        self.close(len(opened), len(inner))
        self.names = before               # what was declared inside is gone

    def close(self, outer, inner):
        for depth in reversed(range(outer, inner)):
            self.line(depth, "}")


def below(last):
    """All that a value is made of, each after its sources."""
    found, stack = {}, [last]
    while stack:
        waiting = [source for source in stack[-1].src if source not in found]
        stack += waiting
        if not waiting:
            found[stack.pop()] = True
    return list(found)


def body(kernel):
    writer, store = Writer(kernel), kernel.store
    opened = writer.nest(kernel.loops, kernel.values, [])
    names = writer.names
    gate = f"if ({names[store.condition]}) " if store.condition else ""
    writer.line(len(opened), f"{gate}{store.buffer}[{names[store.index]}] = {names[store.value]};")
    writer.close(0, len(opened))
    return "\n".join(writer.lines)
