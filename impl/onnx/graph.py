"""The graph of a model: its nodes in their order, and what running them does."""
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from impl.errors import TensorScheduleError, nearest
from impl.host import np
from impl.onnx.operators import (
    DTYPES,
    LITTLE,
    Host,
    ModelError,
    Operator,
    Value,
    find_row,
    host_array,
    names,
    tensor_of,
)
from impl.onnx.weights import Weights, array_of_proto, package
from impl.tensor import Tensor
from impl.tensor.parameters import mode

#: Attributes that old versions have, and that mean nothing.
_WITHOUT_MEANING = frozenset({"consumed_inputs"})
#: Operators that are computed at once where all that they are given is known: the arithmetic of
#: shapes. None of them makes more than its inputs have, but by broadcasting.
_ARITHMETIC = frozenset(
    "Abs Add And ArgMax ArgMin Cast Ceil Clip Concat CumSum Div Equal Flatten Floor Gather "
    "GatherElements GatherND Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Neg Not Or "
    "ReduceMax ReduceMin ReduceProd ReduceSum Reshape ScatterElements ScatterND Slice Split Sqrt "
    "Squeeze Sub Sum Transpose Unsqueeze Where Xor".split())
#: Functions may be made of functions, so deep, and of so many nodes in all: a function that calls
#: another one twice, and so on, is a short file of endless length.
_DEEPEST = 30
_MOST_NODES = 1 << 20


class Scope:
    """What names of operators mean: versions of operator sets, and the functions of a model."""

    def __init__(self, imports: Any, functions: Iterable[Any], weights_at: tuple[str | None, Any],
                 depth: int = 0) -> None:
        self.versions = {_domain(each.domain): each.version for each in imports}
        self.functions = {(_domain(each.domain), each.name): each for each in functions}
        self.weights_at, self.depth = weights_at, depth
        self.count = itertools.count(1)

    def inside(self, function: Any) -> Scope:
        """What they mean in a function."""
        if self.depth >= _DEEPEST:
            raise ModelError("onnx.load", f"the function {function.name!r} calls itself",
                             "the file is damaged: export the model again")
        found = Scope(function.opset_import, (), self.weights_at, self.depth + 1)
        found.functions, found.count = self.functions, self.count
        found.versions = self.versions | found.versions
        return found


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class Known(dict[str, Value]):
    """Values by name: those that were computed in a graph, then what the graph has, then what is
    known around it.
    """

    def __init__(self, graph: Graph, given: Mapping[str, Value], around: Known | None) -> None:
        super().__init__(given)
        self.graph, self.around = graph, around
        self[""] = None

    def __missing__(self, name: str) -> Value:
        scope: Known | None = self
        while scope is not None:
            if name in scope:
                return scope[name]
            if name in scope.graph.fixed or name in scope.graph.weights:
                scope[name] = scope.graph.known(name)
                return scope[name]
            scope = scope.around
        raise KeyError(name)


class Subgraph:
    """A graph inside of a node, as a function of its inputs."""

    def __init__(self, graph: Graph, around: Known) -> None:
        self.graph, self.around = graph, around

    def __call__(self, *given: Value) -> list[Value]:
        return self.graph.run(dict(zip(self.graph.inputs, given, strict=False)), self.around)


class Node:
    """One node: its operator, what it reads and writes by name, its attributes."""

    def __init__(self, proto: Any, scope: Scope, bound: Mapping[str, Any]) -> None:
        self.proto, self.scope = _with_attributes(proto, bound), scope
        if next(scope.count) > _MOST_NODES:
            raise ModelError("onnx.load", f"there are more than {_MOST_NODES} nodes, those of "
                             "functions counted where they are called", "the file is damaged")
        self.kind, self.domain = proto.op_type, _domain(proto.domain)
        self.inputs, self.outputs = tuple(proto.input), tuple(proto.output)
        self.called = f"onnx node {(proto.name or ', '.join(self.outputs))!r} ({self.kind})"
        self.attributes = {each.name: self._attribute(each, bound)
                           for each in self.proto.attribute
                           if each.name not in _WITHOUT_MEANING}
        self.types: tuple[list[int], list[int]] = ([], [])
        self.function = scope.functions.get((self.domain, self.kind))
        self.version = scope.versions.get(self.domain, 1)
        self.row: Operator | None = None
        self.schema: Any = None
        if self.function is None:
            self.row = find_row(self.domain, self.kind, self.version)
            if self.row is None:
                self.schema = self._schema()
            else:
                self._check(self.row)
        self._bodies: dict[Any, Graph] = {}

    def _attribute(self, each: Any, bound: Mapping[str, Any]) -> Any:
        kinds = type(each)
        if each.type == kinds.GRAPH:
            return Graph(each.g, self.scope, bound)
        if each.type == kinds.TENSOR:
            return array_of_proto(each.t, self.scope.weights_at[0])
        if each.type == kinds.SPARSE_TENSOR:
            return _dense(each.sparse_tensor, self.scope.weights_at[0])
        if each.type in (kinds.TYPE_PROTO, kinds.GRAPHS, kinds.TENSORS, kinds.TYPE_PROTOS,
                         kinds.SPARSE_TENSORS):
            return each
        value = package().helper.get_attribute_value(each)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, (int, float)):
            return value
        return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in value]

    def _schema(self) -> Any:
        """What ONNX says of an operator that is not in the table, if it is made of others."""
        known = package().defs
        try:
            found = known.get_schema(self.kind, self.version, self.domain)
        except (known.SchemaError, TypeError):  # a damaged name is no text
            found = None
        if found is not None and (found.has_function or found.has_context_dependent_function):
            return found
        domain = self.domain or "ai.onnx"
        alike = nearest(self.kind, names())
        raise ModelError(
            self.called, f"there is no operator {self.kind} of {domain}, version {self.version}",
            (f"{alike} is known; " if alike and alike != self.kind else "") +
            "write it as a function of tensors with @impl.onnx.operator(name, version, domain)")

    def _check(self, row: Operator) -> None:
        unknown = set(self.attributes) - row.attributes
        if unknown:
            raise ModelError(self.called, f"has attributes {sorted(unknown)}, which version "
                             f"{self.version} of {self.kind} does not have",
                             f"known are {sorted(row.attributes)}")

    # Running

    def run(self, given: list[Value], known: Known) -> Sequence[Value]:
        """The results for inputs, of which those left out are None."""
        try:
            found = self._named(given, known)
        except TensorScheduleError as error:
            if not error.operation.startswith("onnx node"):
                error.rename(f"{self.called}: {error.operation}")
            raise
        except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError,
                TypeError, ValueError) as error:
            shapes = [tuple(each.shape) for each in given if hasattr(each, "shape")]
            raise ModelError(self.called, f"inputs of shapes {shapes} do not fit "
                             f"({type(error).__name__}: {error})",
                             "look at the node: the model may be damaged") from error
        return found if isinstance(found, tuple) else (found,)

    @functools.cached_property
    def _is_around(self) -> bool:
        """Whether it runs other nodes of the graph, which have names of their own."""
        return any(isinstance(each, Graph) for each in self.attributes.values())

    def _named(self, given: list[Value], known: Known) -> Any:
        """Run it: a schedule names what is computed after the node of the model, at the user's
        line; what a function is made of, after the node that calls the function.
        """
        if mode.called or self._is_around:
            return self._run(given, known)
        name = self.proto.name
        mode.called = name if self.kind in name else f"{self.kind} {name}".strip()
        try:
            return self._run(given, known)
        finally:
            mode.called = ""

    def _run(self, given: list[Value], known: Known) -> Any:
        if self.row is None:
            return tuple(self._body(given).run(dict(zip(self._names, given, strict=False)), None,
                                               [bool(name) for name in self.outputs]))
        if self.kind in _ARITHMETIC and not self.domain and _are_known(given):
            return self._evaluate(*given)
        named = {name: Subgraph(value, known) if isinstance(value, Graph) else value
                 for name, value in self.attributes.items()}
        if "results" in self.row.told:
            named["results"] = len(self.outputs)
        if "types" in self.row.told:
            named["types"] = self.types
        if given and not self.row.inputs:
            raise ModelError(self.called, "has inputs, and needs none", "the model is damaged")
        return self.row.function(*map(self._converted, range(len(given)), given), **named)

    def _converted(self, place: int, value: Value) -> Value:
        assert self.row is not None
        kind = self.row.kind(place)
        if value is None or isinstance(value, list):
            return value
        if kind is Tensor:
            return tensor_of(value, self.scope.weights_at[1])
        return host_array(value) if kind is Host else value

    @functools.cached_property
    def _evaluate(self) -> Callable[..., Any]:
        """NumPy's answer, by the definitions that come with the format."""
        from onnx.reference.ops import load_op

        told = {"opsets": self.scope.versions, "verbose": 0, "log": _silent, "new_ops": None}
        return load_op("", self.kind, self.version)(self.proto, told).run

    # Functions

    @property
    def _names(self) -> Sequence[str]:
        if self.function is not None:
            return self.function.input
        return [each.name for each in self.schema.inputs]

    def _body(self, given: list[Value]) -> Graph:
        """What the node is made of: for an operator of ONNX it may depend on types."""
        key = None if self.function is not None or self.schema.has_function else \
            tuple(_type_of(each) for each in given)
        found = self._bodies.get(key)
        if found is None:
            function = self.function or self._definition(key)
            bound = {each.name: each for each in getattr(function, "attribute_proto", ())}
            if self.function is None:
                bound |= {name: each.default_value for name, each
                          in self.schema.attributes.items() if each.default_value.type}
            bound |= {each.name: each for each in self.proto.attribute}
            found = Graph(function, self.scope.inside(function), bound)
            self._bodies[key] = found
        return found

    def _definition(self, key: Any) -> Any:
        function = package().FunctionProto()
        if key is None:
            function.CopyFrom(self.schema.function_body)
        else:
            kinds = [package().helper.make_tensor_type_proto(*each).SerializeToString()
                     if each else b"" for each in key]
            version = max((each for each in
                           self.schema.context_dependent_function_opset_versions
                           if each <= self.version), default=self.version)
            function.ParseFromString(
                self.schema.get_context_dependent_function_with_opset_version(
                    version, self.proto.SerializeToString(), kinds))
        return function


def _with_attributes(proto: Any, bound: Mapping[str, Any]) -> Any:
    """A node of a function, with the attributes that the function is given."""
    if not any(each.ref_attr_name for each in proto.attribute):
        return proto
    found = type(proto)()
    found.CopyFrom(proto)
    del found.attribute[:]
    for each in proto.attribute:
        given = bound.get(each.ref_attr_name) if each.ref_attr_name else each
        if given is not None:  # or the operator's own default holds
            made = found.attribute.add()
            made.CopyFrom(given)
            made.name = each.name
    return found


def _are_known(given: Sequence[Value]) -> bool:
    return bool(given) and all(
        each is None or (isinstance(each, np.ndarray) and each.size <= LITTLE) for each in given) \
        and math.prod(max((each.shape[axis] for each in given if each is not None
                           and each.ndim > axis), default=1) for axis in range(8)) <= LITTLE


def _type_of(value: Value) -> Any:
    """The element type by ONNX's number, and the sizes."""
    if value is None or isinstance(value, list):
        return None
    if isinstance(value, Tensor):
        number = next(one for one, dtype in DTYPES.items() if dtype is value.dtype)
    else:
        number = package().helper.np_dtype_to_tensor_dtype(value.dtype)
    return number, tuple(value.shape)


def _dense(proto: Any, folder: str | None) -> np.ndarray:
    """A sparse constant with its zeros."""
    values, places = (array_of_proto(each, folder) for each in (proto.values, proto.indices))
    sizes = list(proto.dims)
    if math.prod(sizes) > max(LITTLE, 1000 * values.size):
        raise ModelError("onnx.load", f"a sparse constant has the sizes {sizes}",
                         "export it as an initialiser")
    found = np.zeros(sizes, values.dtype)
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), sizes)
    found.reshape(-1)[flat] = values
    return found


class Graph:
    """Nodes in their order, of a model, a node's attribute, or a function."""

    def __init__(self, proto: Any, scope: Scope, bound: Mapping[str, Any]) -> None:
        is_function = isinstance(proto, package().FunctionProto)
        self.weights = Weights(getattr(proto, "initializer", ()), *scope.weights_at)
        named = proto.input if is_function else [
            each.name for each in proto.input if each.name not in self.weights]
        self.inputs = list(named)
        self.outputs = [each if is_function else each.name for each in proto.output]
        if not all(isinstance(each, str) for each in (*self.inputs, *self.outputs)):
            raise ModelError("onnx.load", "a name of an input or output is no text",
                             "the file is damaged: export the model again")
        self.fixed: dict[str, Value] = {
            each.values.name: _dense(each, scope.weights_at[0])
            for each in getattr(proto, "sparse_initializer", ())}
        self.nodes: list[Node] = []
        for each in proto.node:
            node = Node(each, scope, bound)
            if not self._is_fixed(node):
                self.nodes.append(node)

    def _is_fixed(self, node: Node) -> bool:
        """Compute a node now if all that it reads is known; whether that is so."""
        if node.row is None or node.domain or not (
                node.kind in _ARITHMETIC or node.kind == "Constant") or not all(
                name == "" or name in self.fixed or
                (name in self.weights and self.weights.is_little(name)) for name in node.inputs):
            return False
        given = [self.known(name) if name else None for name in node.inputs]
        if node.inputs and not _are_known(given):
            return False
        nothing = Known(self, {}, None)
        self.fixed |= zip(node.outputs, node.run(given, nothing), strict=False)
        return True

    def known(self, name: str) -> Value:
        """A weight, or what was computed when the graph was read."""
        return self.fixed[name] if name in self.fixed else self.weights[name]

    def run(self, given: Mapping[str, Value], around: Known | None = None,
            wanted: Sequence[bool] | None = None) -> list[Value]:
        """The outputs for inputs by name, where values around it are known; those that nobody
        wants are None.
        """
        values = Known(self, given, around)
        for node in self.nodes:
            read = [_read(values, name, node.called) for name in node.inputs]
            for name, found in zip(node.outputs, node.run(read, values), strict=False):
                if name:
                    values[name] = found
        return [_read(values, name, "onnx output") if wanted is None or wanted[place] else None
                for place, name in enumerate(self.outputs[:None if wanted is None
                                                          else len(wanted)])]


def _read(values: Known, name: str, reader: str) -> Value:
    try:
        return values[name]
    except KeyError:
        raise ModelError(reader, f"reads {name!r}, which nothing before it gives",
                         "the model is damaged: its nodes have to stand in their order") from None


def _silent(*words: object) -> None:
    """What the definitions tell of their steps."""
