"""Mistakes in the values of elements, of views and of indices: dtypes, reference, tensor."""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]

# Documents


class CountsElements(Edit):
    rule = "conventions.units.bytes"
    description = "the size of a buffer is counted in elements"
    file = "impl/schedule/document.py"
    old, new = '"bytes": storage.nbytes, "device"', '"bytes": plain(storage.size), "device"'


# Dtypes


class FewestBytes(Edit):
    rule = "dtypes.promote.least"
    description = "two dtypes meet in the one with the fewest bytes that is above both"
    file = "impl/dtypes.py"
    old, new = "least = min(common, key=lambda d: d.rank)", \
        "least = min(common, key=lambda d: (d.itemsize, -d.rank))"


class HalvesOfStepsRoundUp(Edit):
    rule = "dtypes.narrow.rounded"
    description = "what lies between two floats of 8 bits becomes the greater one"
    first = "test_floats_of_8_bits_are_rounded"
    file = "impl/fusion/narrow.py"
    old, new = "_of(Ops.AND, _of(Ops.SHR, size, drop), 1)", \
        "_of(Ops.OR, _of(Ops.SHR, size, 31), 1)"


class EachHasAByte(Edit):
    rule = "dtypes.nibble.packed"
    description = "integers of 4 bits that are computed keep a byte each"
    first = "test_two_integers_of_4_bits_lie_in_a_byte"
    file = "impl/tensor/base.py"
    old, new = "if others or self.uop.dtype.bits == 4:", "if others:"


class HalfAStep(Edit):
    rule = "dtypes.limits.told"
    description = "the step behind 1 is that before it"
    first = "test_limits_of_floats"
    file = "impl/dtypes.py"
    old, new = "eps = 2.0 ** (1 - digits)", "eps = 2.0 ** -digits"


class MixedDtypesAreRemembered(Edit):
    rule = "dtypes.default.set"
    description = "what two dtypes meet in is what it was under another default"
    first = "test_the_default_dtype_is_chosen"
    file = "impl/dtypes.py"
    old, new = "promoted.cache_clear()", "promoted.cache_info()"


class CapturesForgetTheDefault(Edit):
    rule = "dtypes.default.set"
    description = "a replay makes numbers of the dtype that was the default when it was captured"
    first = "test_a_replay_follows_the_default_dtype"
    file = "impl/dtypes.py"
    old, new = 'type.__setattr__(cls, "defaults", ', 'type.__setattr__(cls, "_defaults", '


class ComplexDtypesReachNodes(Edit):
    rule = "dtypes.complex.pairs"
    description = "a complex dtype is taken for one that a node can have"
    first = "test_what_is_asked_for_in_a_complex_dtype_is_made"
    file = "impl/dtypes.py"
    old, new = 'isinstance(named, DType) and named.kind != "c":', "isinstance(named, DType):"


class ImaginaryPartsAreLost(Edit):
    rule = "dtypes.complex.pairs"
    description = "a real tensor beside complex numbers of Python takes their real part"
    first = "test_operators_take_complex_and_real_numbers_on_either_side"
    file = "impl/complex/conversion.py"
    old, new = "    z = Complex.of(tensor)\n", "    z, other = Complex.of(tensor), other.real\n"


class NumbersWidenHalves(Edit):
    rule = "dtypes.scalar.weak+2"
    description = "a Python float makes a default float of whatever it meets"
    file = "impl/tensor/broadcasting.py"
    old, new = 'if dtype.kind == "f" or isinstance(value, bool):', \
        'if dtype.kind == "f" and type(value) is int or isinstance(value, bool):'


class SidesDoNotMatter(Edit):
    rule = "dtypes.scalar.compare+2"
    description = "a number above all elements is taken for one below them"
    file = "impl/tensor/elementwise.py"
    old, new = "(other > 0) is not swapped", "(other < 0) is not swapped"


class RoundsToTheWrongSide(Edit):
    rule = "dtypes.scalar.compare+2"
    description = "a number between two floats is taken to be on the other side of the nearer one"
    file = "impl/tensor/elementwise.py"
    old, new = "if (b.arg < other) is not swapped else", "if (b.arg > other) is not swapped else"


class CastsOfCastsAreOne(Edit):
    rule = "dtypes.cast.integer"
    description = "a cast of a cast forgets the first one, also where it loses bits"
    file = "impl/gradient/nodes.py"
    old, new = "return UOp(_CAST, dtype, (x,))", \
        "return UOp(_CAST, dtype, (x.src[0] if x.op is _CAST else x,))"


class CastsRoundToNearest(Edit):
    rule = "dtypes.cast.float"
    description = "a cast of a float to an integer rounds to the nearest"
    file = "impl/functions/definitions.py"
    old, new = "return ({TYPES[target]})c;", "return ({TYPES[target]})__builtin_rint(c);"


class NotANumberIsTheLeast(Edit):
    rule = "dtypes.cast.nearest"
    description = "NaN becomes the greatest integer"
    file = "impl/tensor/broadcasting.py"
    old, new = "nodes.where(known, cut, UOp.const(dtype, 0))", "nodes.where(known, cut, greatest)"


class ArraysWrapAround(Edit):
    rule = "dtypes.cast.nearest"
    description = "a tensor of an array takes what NumPy makes of a float that does not fit"
    file = "impl/tensor/host.py"
    old, new = 'if values.dtype.kind != "f" or dtype.kind not in "iu":', "if values.size:"


class VectorsRoundToNearest(Edit):
    rule = "dtypes.cast.float"
    description = "a cast of a vector of floats to integers adds a half first"
    file = "impl/functions/vector_functions.py"
    old, new = 'convert_vector("c", source, target)', 'convert_vector("(c + 0.5f)", source, target)'


class PartsOfElements(Edit):
    rule = "dtypes.bitcast.size+2"
    description = "the parts of a wide element stand in the order of the digits, highest first"
    file = "impl/tensor/broadcasting.py"
    old = "place = nodes.cast(nodes.iota_along(count, len(shape) - 1, len(shape)), dtype)"
    new = "place = nodes.flip(nodes.cast(nodes.iota_along(count, len(shape) - 1, len(shape)), " \
        "dtype), (len(shape) - 1,))"


# The reference device


class NeedsACompiler(ImplPatch):
    rule = "reference.device.always"
    description = "the device that interprets kernels asks for a C compiler"
    target = "impl.reference:Reference.load"

    def replacement(self, original: Function) -> Function:
        def load(device: Any, asts: Any) -> Any:
            import_module("impl.cpu.compiler").required_compiler()
            return original(device, asts)
        return load


class InterpretsFasterKernels(ImplPatch):
    rule = "reference.kernel.plain"
    description = "the device that interprets kernels takes the steps that make others fast"
    target = "impl.reference:Reference.load"

    def replacement(self, original: Function) -> Function:
        def load(device: Any, asts: Any) -> Any:
            other = import_module("impl.device").Device["CPU"]
            return original(device, [other.optimized(ast, False) for ast in asts])
        return load


class RoundsWhenItStores(Edit):
    rule = "reference.operation.value"
    description = "results of bfloat16 are rounded when they are stored, and not before"
    first = "test_every_operation_of_an_expression_rounds"
    file = "impl/reference.py"
    old, new = "return round_to(_floating(op, dtype, given), dtype)", \
        "return _floating(op, dtype, given).astype(given[0].dtype)"


class UnsignedCastsAreSigned(Edit):
    rule = "reference.operation.value"
    description = "a float becomes an unsigned integer by way of a signed one of its size"
    first = "test_one_number_is_cast_for_every_gated_store"
    file = "impl/reference.py"
    old, new = "np.int64 if target is dtypes.uint32 else np.int32", "np.int32"


class RoundedNumbersGainAnAxis(Edit):
    rule = "reference.operation.value"
    description = "a single number that is rounded to bfloat16 becomes an array of one"
    first = "test_one_number_is_cast_for_every_gated_store"
    file = "impl/dtypes.py"
    old = 'np.asarray(values, np.float32, order="C")'
    new = "np.ascontiguousarray(values, np.float32)"


class WarnsOfWhatIsInvalid(Edit):
    rule = "reference.warning.none"
    description = "only a division by zero is passed over in silence"
    file = "impl/reference.py"
    old = 'with np.errstate(all="ignore"):\n            _Run('
    new = 'with np.errstate(divide="ignore"):\n            _Run('


# Tensors


class ComputesInPlace(Edit):
    rule = "tensor.lazy.nothing+2"
    description = "`+=` computes the value at once"
    file = "impl/tensor/elementwise.py"
    old, new = "return self.assign(value)  #", "return self.assign(value).realize()  #"


class LooksAtTheArray(Edit):
    rule = "tensor.create.copy"
    description = "a tensor made from an array looks at its memory"
    file = "impl/tensor/base.py"
    old, new = 'np.array(array, order="C", copy=True)', 'np.asarray(array, order="C")'


class AlignsFirstAxes(Edit):
    rule = "tensor.broadcast.rule+2"
    description = "axes are aligned from the first one"
    file = "impl/tensor/broadcasting.py"
    old, new = "right = (1,) * (rank - len(b)) + b", "right = b + (1,) * (rank - len(b))"


class SignOfNothing(Edit):
    rule = "tensor.unary.limits"
    description = "the sign of NaN is zero"
    file = "impl/tensor/elementwise.py"
    old, new = "number(x, 1), nodes.add(x, zero))", "number(x, 1), zero)"


class HalvesAnInfinity(Edit):
    rule = "tensor.unary.finite"
    description = "half of an exponential is taken when it has become infinite"
    file = "impl/tensor/elementwise.py"
    old, new = "nodes.mul(scale(root, 0.5), root)", "scale(nodes.mul(root, root), 0.5)"


class CountsTheLastGap(Edit):
    rule = "tensor.arguments.refused+2"
    description = "a window counts a gap after its last element, too"
    file = "impl/tensor/products.py"
    old, new = "> (one - 1) * gap + 1:", "> one * gap:"


class LooksAfterTheAxis(Edit):
    rule = "tensor.arguments.refused+2"
    description = "of tensors to be joined only the axes after the joined one are compared"
    file = "impl/tensor/movement.py"
    old, new = "if other != self.shape:", "if other[axis:] != self.shape[axis:]:"


class NoAxesAreAll(Edit):
    rule = "tensor.reduce.axes"
    description = "axis 0, and no axis, are taken for all axes"
    file = "impl/tensor/base.py"
    old, new = "if axis is None:\n            return tuple(range", \
        "if not axis:\n            return tuple(range"


class ComparesAll(Edit):
    rule = "tensor.linear.work+2"
    description = "every two elements of a long axis are compared to sort it"
    file = "impl/tensor/sorting.py"
    old, new = "if greatest(shape_of(key)[1]) <= _COMPARED", \
        "if greatest(shape_of(key)[1]) <= 1000 * _COMPARED"


class FirstMatrixForAll(Edit):
    rule = "tensor.matmul.value"
    description = "for every leading index the first matrix on the right is taken"
    file = "impl/tensor/products.py"
    old, new = "total = sum_of_products(a, b,", \
        "total = sum_of_products(a, nodes.shrink(b, ((0, 1),) * len(batch) + " \
        "tuple(zip((0, 0, 0), shape_of(b)[len(batch):]))),"


class StrideOfTheFirst(Edit):
    rule = "tensor.gather.rows"
    description = "indices of several axes are joined as if all had the size of the first"
    file = "impl/tensor/indexing.py"
    old, new = "nodes.mul(total, nodes.scalar(wide, size))", \
        "nodes.mul(total, nodes.scalar(wide, sizes[0]))"


class LooksAtTheFirstIndex(Edit):
    rule = "tensor.gather.outside+2"
    description = "of several indices only the first is held against the size of its axis"
    file = "impl/tensor/indexing.py"
    old, new = "inside = fits if inside is None else binary(Ops.AND, inside, fits)", \
        "inside = fits if inside is None else inside"


class OverwritesWhatIsAwaited(Edit):
    rule = "tensor.assign.value+2"
    description = "what waits for the old value is not computed before that is overwritten"
    file = "impl/effects/collecting.py"
    old, new = "found = _waiting(written, effects) if written else []", "found = []"


class ViewsNeedNothing(Edit):
    rule = "tensor.assign.value+2"
    description = "a view is not computed before the tensor that it looks at is overwritten"
    file = "impl/effects/collecting.py"
    old, new = "elif _reaches(value, written, reads, seen) and", \
        "elif value.op is not Ops.SHRINK and _reaches(value, written, reads, seen) and"


class BitsAreConverted(Edit):
    rule = "tensor.assign.view+3"
    description = "what is assigned to bits is converted, and not read as bits"
    file = "impl/tensor/views.py"
    old, new = "value = UOp(Ops.BITCAST, memory.dtype, (value,))", \
        "value = UOp(Ops.CAST, memory.dtype, (value,))"


class WritesTwice(Edit):
    rule = "tensor.assign.operator"
    description = "`t[a] += b` writes once as an operator and once as an item that is set"
    file = "impl/tensor/indexing.py"
    old, new = "if not (isinstance(value, TensorBase) and value._already_in(self, path)):", \
        "if value is not self:"


class WrittenIsWritten(Edit):
    rule = "tensor.assign.operator"
    description = "what an operator has written to one place is not set at another one"
    file = "impl/tensor/base.py"
    old, new = "return reference() is base and way == path and all(", \
        "return reference() is base and all("


class BitsOfTheValue(Edit):
    rule = "tensor.assign.shape+3"
    description = "only a number is converted when it is set"
    file = "impl/tensor/indexing.py"
    old, new = "node = cast(node, self.dtype)  #", \
        "node = cast(node, self.dtype) if node.shape == () else node  #"


class NumbersWrap(Edit):
    rule = "dtypes.number.fits"
    description = "a number that its dtype cannot hold wraps around"
    first = "test_a_number_that_its_dtype_cannot_hold_is_refused"
    file = "impl/tensor/host.py"
    old = "if not lowest <= one <= dtype.max:  # r[impl dtypes.number.fits]"
    new = "if not lowest:  # r[impl dtypes.number.fits]"
