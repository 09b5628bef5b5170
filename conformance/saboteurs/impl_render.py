"""Mistakes in texts and in where values stand in them, made inside `impl.render`."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


# Places


class ValuesStayInThePrefix(Edit):
    rule = "lowering.place.body+2"
    description = "what no loop of the prefix changes is computed inside of all of them"
    first = "test_a_value_stands_at_the_level_of_its_loops"
    file = "impl/lowering/lower.py"
    old, new = "not block.own & free:", "not block.own & (free | self.known.prefix):"


class EachUserComputesAnew(Edit):
    rule = "lowering.place.body+2"
    description = "a value is computed once for each of its users"
    first = "test_a_shared_value_is_computed_once"
    file = "impl/lowering/lower.py"
    old, new = "if target.ready.get(node, -1) >= self._epoch_of(node):", \
        "if target.ready.get(node, -1) > self._epoch_of(node):"


class TurnsOneByOne(Edit):
    rule = "render.hint.pays+2"
    description = "no compiler is asked to write out turns of a loop"
    first = "test_only_long_loops_over_tiles_of_products_are_written_out"
    file = "impl/dialects/c.py"
    old, new = 'return "#pragma GCC unroll 4"', 'return ""'


class ShortLoopsWrittenOut(Edit):
    rule = "render.hint.pays+2"
    description = "loops over a tile of products are written out also if they seldom turn"
    first = "test_only_long_loops_over_tiles_of_products_are_written_out"
    file = "impl/render/printer.py"
    old, new = "return turns >= _LEAST_TURNS", "return turns > 1"


class LoopsOfTheLeastExtent(Edit):
    rule = "lowering.loop.extent"
    description = "a loop runs as often as it has to whatever the variables are"
    file = "impl/render/values.py"
    old, new = "return self._text(loop.src[0], (), [()])[0]", \
        "from impl import symbolic; return str(max(symbolic.bounds(loop.src[0])[0], 0))"


class NumbersOfAnAddressAreFoundAnew(Edit):
    rule = "lowering.address.read"
    description = "what an address reads is built again with its base"
    file = "impl/lowering/lower.py"
    old, new = "return symbolic.rebuild(address, replaced | read)", \
        "return symbolic.rebuild(address, replaced)"


class NodesByRecursion(ImplPatch):
    rule = "lowering.depth.unlimited"
    description = "the nodes of a kernel are found by recursion"
    target = "impl.kernel.analysis:toposort"

    def replacement(self, original: Function) -> Function:
        def toposort(roots: Any, *given: Any) -> Any:
            depth: dict[Any, int] = {}

            def visit(node: Any) -> int:
                if node not in depth:
                    depth[node] = 1 + max(map(visit, node.src), default=0)
                return depth[node]
            for root in roots:
                visit(root)
            return original(roots, *given)
        return toposort


class NestsOfVectors(Edit):
    rule = "lowering.lower.language"
    description = "stores share their loops in languages with vectors only"
    file = "impl/lowering/lower.py"
    old, new = "if group.stores[0].src[2:] != store.src[2:]:", \
        "if group.stores[0].src[2:] != store.src[2:] or not self.low.vector:"


# Phases and exchanges


class OneScratchForAll(Edit):
    rule = "render.phase.scratch+2"
    description = "all buffers that pass between phases lie at one place"
    file = "impl/render/printer.py"
    old, new = "self.scratch += _room(buffer)", "self.scratch = _room(buffer)"


class OnlyThoseThatNeedItExchange(Edit):
    rule = "dialects.exchange.all"
    description = "only the lanes whose results go on exchange their values"
    file = "impl/dialects/gpu.py"
    old = 'return self._call(f"exchange_{SHORT[dtype.name]}", value, str(distance))'
    new = ('text = self._call(f"exchange_{SHORT[dtype.name]}", value, str(distance)); '
           'return f"(lane & {distance} ? {value} : {text})"')


# Text


class LoopsByTheirNumbers(Edit):
    rule = "render.text.deterministic"
    description = "a loop of a text is named by its number in the graph"
    file = "impl/render/printer.py"
    old, new = 'name = f"{self.dialect.counter}{next(self.loops)}"', 'name = f"i{loop.arg[0]}"'


class NumbersOfSixDigits(Edit):
    rule = "functions.literal.exact"
    description = "a float is written with six digits"
    file = "impl/functions/literals.py"
    old, new = "text = number.hex() + suffix", 'text = f"{number:.6e}{suffix}"'


class LettersOfAllAlphabets(Edit):
    rule = "render.name.legal"
    description = "what is a letter in any alphabet stays in a name"
    first = "test_any_name_is_made_an_identifier"
    file = "impl/render/names.py"
    old, new = 're.sub(r"\\W", "_", name, flags=re.ASCII)', 're.sub(r"\\W", "_", name)'


class VariablesFromTheLast(Edit):
    rule = "render.argument.order"
    description = "a kernel takes its variables from the last one on"
    file = "impl/render/printer.py"
    old, new = "self.known.params + place,", \
        "self.known.params + len(self.known.info.variables) - 1 - place,"


# Arithmetic


class CompilersContract(ImplPatch):
    rule = "render.reduce.rounding+2"
    description = "the compiler contracts products and sums where it likes"
    first = "test_only_the_product_of_a_sum_is_contracted"
    target = "impl.cpu.compiler:_flags"

    def replacement(self, original: Function) -> Function:
        return lambda command: (*original(command), "-O2", "-ffp-contract=fast")


class RoundedTwiceInVectors(Edit):
    rule = "functions.function.error"
    description = "vectors round a product that cancels, where no instruction multiplies and adds"
    file = "impl/functions/vector_functions.py"
    old = """_either("fma" if base == "fused" else base, kind, loop)"""
    new = """_either("fma" if base == "fused" else base, kind, loop.replace("fused", "fma"))"""


class LogarithmOfZero(ImplPatch):
    rule = "functions.function.special"
    description = "the logarithm of zero is a number"
    target = "impl.functions.transcendental:TEMPLATES"

    def replacement(self, original: Any) -> Any:
        edge = "r = sel_$K(x == 0.0f, dup_$K(-@inf_f32), r);"
        assert edge in original["log"]
        return {**original, "log": original["log"].replace(edge, "")}

    @contextmanager
    def mistake(self) -> Iterator[None]:
        from impl.functions.definitions import definition
        definition.cache_clear()
        try:
            with super().mistake():
                yield
        finally:
            definition.cache_clear()


class OneAccumulatorForAll(Edit):
    rule = "render.reduce.rounding+2"
    description = "a loop of any length adds to one accumulator"
    first = "test_levels_of_a_long_loop"
    file = "impl/render/cascade.py"
    old, new = "if count * _additions(block) <= _CHAIN or", "if count >= 0 or"


class LongSumsLoseDigits(OneAccumulatorForAll):
    rule = "conventions.sum.bound"
    description = "a sum of millions of elements has as many roundings"
    first = "test_long_sums_keep_their_digits"
