"""Effects of Python's instructions on the things on a stack; see `following`."""
from __future__ import annotations

import collections
import dis
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from impl.following.following import Following
from impl.following.reads import is_container
from impl.following.things import (
    FLOATS,
    NONE,
    NOTHING,
    PLAIN,
    SIZES,
    Created,
    Entered,
    Native,
    Outside,
    Value,
    may_be_float,
)
from impl.following.versions import LAYOUT, VERSIONS
from impl.host import np
from impl.tensor import Tensor

Stack = list[Value]
Step = Callable[[Following, Entered, dis.Instruction, Stack], None]
STEPS: dict[str, Step] = {}
_NULL: Value = frozenset([Created()])
_LAYOUT = LAYOUT or VERSIONS[3, 11]  # without one nothing is followed
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_ENDS = ("RETURN_VALUE", "RAISE_VARARGS", "RERAISE")


def step(following: Following, frame: Entered, instruction: dis.Instruction,
         stack: Stack) -> Stack | None:
    """The stack after an instruction; None if the next one is not reached from here."""
    name = instruction.opname
    if name in ("RETURN_VALUE", "RETURN_CONST"):
        if name == "RETURN_CONST":
            _constant(following, frame, instruction, stack)
        following.put(frame.returned, stack[-1])
        if frame.code.co_flags & inspect.CO_GENERATOR:  # StopIteration carries it
            following.put(following.raised.contents, stack[-1])
        return None
    if name in _ENDS:
        if name == "RAISE_VARARGS":
            for value in popped(stack, instruction.arg or 0):
                kinds = frozenset(each for each in value if isinstance(
                    getattr(each, "value", None), type))
                following.put(following.raised.contents,
                              value - kinds | following.call(kinds, [], {}))
        return None
    if name in _JUMPS:
        following.join(frame, instruction.argval, stack)
        return None
    if name == "FOR_ITER":
        following.join(frame, instruction.argval,
                       [*stack, NOTHING] if _LAYOUT.ended else stack[:-1])
        stack.append(elements(following, stack[-1], True))
        return stack
    if name == "SEND":
        stack.pop()
        kept = stack if "END_SEND" in dis.opmap else stack[:-1]
        inner = elements(following, stack[-1], True)
        for thing in stack[-1]:
            if isinstance(thing, Outside) or isinstance(thing, Created) and thing.kind:
                for sort in ("send", "throw", "close"):  # what the generator is told, is told it
                    inner |= following.call(following.attribute(thing, sort), [], {},
                                            following.caught())
        following.join(frame, instruction.argval, [*kept, inner])
        stack.append(inner)
        return stack
    if name.startswith("JUMP_IF_"):
        _truth(following, stack[-1])
        following.join(frame, instruction.argval, stack)
        stack.pop()
        return stack
    if name.startswith("POP_JUMP_"):
        condition = stack.pop()
        if not name.endswith("NONE"):
            _truth(following, condition)
        following.join(frame, instruction.argval, stack)
        return stack
    known = STEPS.get(name)
    if known is None:
        following.refuse(f"needs {name}, which is not followed", "use trust=True")
        return None
    known(following, frame, instruction, stack)
    return stack


def elements(following: Following, value: Value, loop: bool = False) -> Value:
    """The elements of a value; `loop`: for an instruction that does nothing but go through it."""
    found = NONE
    for thing in value:
        found |= following.elements(thing, loop)
    return found or NOTHING


def _truth(following: Following, value: Value) -> None:
    """A condition is asked for."""
    for thing in value:
        if isinstance(thing, (Outside, Created)):
            following.elements(thing)


def operation(*names: str) -> Callable[[Step], Step]:
    """Note a function as the effect of some instructions."""
    def note(function: Step) -> Step:
        STEPS.update(dict.fromkeys(names, function))
        return function
    return note


def popped(stack: Stack, count: int) -> list[Value]:
    """The topmost values of a stack, taken off it."""
    if not count:
        return []
    found = stack[-count:]
    del stack[-count:]
    return found


@operation("RESUME", "NOP", "PRECALL", "EXTENDED_ARG", "MAKE_CELL", "COPY_FREE_VARS",
           "DELETE_FAST", "DELETE_DEREF", "GET_YIELD_FROM_ITER")
def _nothing(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    pass


@operation("KW_NAMES")
def _keywords(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    frame.names = frame.code.co_consts[each.arg or 0]


@operation("POP_TOP", "POP_EXCEPT")
def _pop(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.pop()


@operation("END_FOR")
def _end_loop(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    popped(stack, _LAYOUT.ended)


@operation("END_SEND")
def _end_send(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    del stack[-2]


@operation("CLEANUP_THROW")
def _thrown(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    popped(stack, 3)
    stack += [NOTHING, NOTHING]


@operation("PUSH_EXC_INFO")
def _caught(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.insert(-1, NOTHING)  # the exception before lies below the present one


@operation("RETURN_GENERATOR", "LOAD_ASSERTION_ERROR")
def _push(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(NOTHING)


@operation("PUSH_NULL")
def _push_null(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(_NULL)


@operation("COPY")
def _copy(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(stack[-(each.arg or 1)])


@operation("SWAP")
def _swap(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    place = -(each.arg or 1)
    stack[place], stack[-1] = stack[-1], stack[place]


@operation("LOAD_CONST")
def _constant(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(following.wrap(each.argval, repr(each.argval)))


@operation("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST",
           "STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")
def _local(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
    does = [word for word in each.opname.split("_") if word in ("LOAD", "STORE")]
    for do, name in zip(does, names, strict=True):
        if do == "LOAD":
            stack.append(frozenset(frame.locals.get(name, ())))
        else:
            following.put(frame.locals.setdefault(name, set()), stack.pop())


@operation("LOAD_CLOSURE")
def _load_closure(following: Following, frame: Entered, each: dis.Instruction,
                  stack: Stack) -> None:
    stack.append(NOTHING)  # what is in it is found by its name


@operation("LOAD_DEREF", "LOAD_CLASSDEREF")
def _load_cell(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(following.box_contents(frame, each.argval))


@operation("STORE_DEREF")
def _store_cell(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    name, value, owner = each.argval, stack.pop(), frame
    while name in owner.boxes and isinstance(owner.boxes[name], Entered):
        owner = owner.boxes[name]
    if isinstance(owner.boxes.get(name), types.CellType):
        following.write(Outside(None, name), value, "", "")
        following.refuse(f"changes {name}, which is outside; a replay would not do it again",
                         "return the value, or keep it in a Tensor that is assigned to")
    following.put(owner.locals.setdefault(name, set()), value)


@operation("LOAD_GLOBAL", "LOAD_NAME")
def _load_global(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    found = following.name_of(frame.space, each.argval)
    stack += _called(found) if each.opname == "LOAD_GLOBAL" and (each.arg or 0) & 1 else [found]


def _called(function: Value) -> Stack:
    """The stack for a call of a function without an object."""
    return [_NULL, function] if _LAYOUT.null_below else [function, _NULL]


@operation("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME")
def _store_global(following: Following, frame: Entered, each: dis.Instruction,
                  stack: Stack) -> None:
    value = stack.pop() if each.opname.startswith("STORE") else NONE
    if not following.is_kept(value, "item", frame.space, each.argval, each.argval):
        following.refuse(f"changes the global {each.argval}; a replay would not do it again",
                         "return the value, or keep it in a Tensor that is assigned to")


@operation("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
def _attribute(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.opname == "LOAD_SUPER_ATTR":
        function, *args = popped(stack, 3)
        stack.append(following.call(function, args, {}))
    found = following.attributes(stack.pop(), each.argval)
    is_method = each.opname == "LOAD_METHOD" or _LAYOUT.method_bit and (each.arg or 0) & 1
    stack += _called(found) if is_method else [found]


@operation("STORE_ATTR")
def _store_attribute(following: Following, frame: Entered, each: dis.Instruction,
                     stack: Stack) -> None:
    value, owners = popped(stack, 2)
    for thing in owners:
        following.write(thing, value, "", each.argval)


@operation("DELETE_ATTR")
def _delete_attribute(following: Following, frame: Entered, each: dis.Instruction,
                      stack: Stack) -> None:
    for thing in stack.pop():
        following.write(thing, NONE, "", each.argval, deletes=True)


@operation("BINARY_SUBSCR")
def _item(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    owners, keys = popped(stack, 2)
    following.given_away([keys])
    following.put(following.raised.contents, (  # a KeyError carries it
        each for each in keys if isinstance(each, (Outside, Created)) and not (
            isinstance(each, Outside) and each.single)))
    plain, found = not following.is_unsure(keys), NONE
    for thing in owners:
        held = getattr(thing, "value", None)
        if isinstance(held, collections.defaultdict) and (
                not plain or not all(key.value in held for key in keys)):
            following.refuse(f"may add an item to {thing.path}, which is outside", "use .get()")
        if isinstance(thing, (Created, Outside)) and not isinstance(held, Tensor):
            following.count(keys)
        found |= following.item(thing, keys, plain)
    stack.append(found or NOTHING)


@operation("STORE_SUBSCR")
def _store_item(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    value, owners, keys = popped(stack, 3)
    for thing in owners:
        following.write(thing, value | keys, "an item of", "")
        following.given_away([keys], calls=False)
        following.operators(thing, changes=True) if _is_object(thing) else None


@operation("BINARY_SLICE", "STORE_SLICE")
def _slice(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    made = frame.site(each.offset)
    following.put(made.contents, frozenset().union(*popped(stack, 2)))
    stack.append(frozenset([made]))
    (_item if each.opname == "BINARY_SLICE" else _store_item)(following, frame, each, stack)


@operation("DELETE_SUBSCR")
def _delete_item(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    owners, _ = popped(stack, 2)
    for thing in owners:
        following.write(thing, NONE, "an item of", "")
        following.operators(thing, changes=True) if _is_object(thing) else None


def _is_object(thing: Any) -> bool:
    return isinstance(thing, Created) and thing.kind is not None


@operation("BINARY_OP", "COMPARE_OP", "CONTAINS_OP")
def _binary(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    left, right = popped(stack, 2)
    if each.opname == "BINARY_OP" and each.argrepr.endswith("="):
        for thing in left:
            if isinstance(thing, Outside) and isinstance(
                    thing.value, (list, dict, set, np.ndarray)):
                following.write(thing, right, "the contents of")
            elif isinstance(thing, Created):
                following.put(thing.contents, elements(following, right))
    if each.opname == "BINARY_OP" and each.argrepr.rstrip("=") not in _NOTED:
        following.count(left | right)
    if may_be_float(left):
        following.count(right)  # r[impl replay.sizes.same]: a size is not asked, if it stands there
    if each.opname == "CONTAINS_OP":
        following.count(left)
        plain = not following.is_unsure(left)
        for thing in right:
            if plain and isinstance(getattr(thing, "value", None), _KEYED):
                following.item(thing, left, plain)
            else:  # each part is compared
                following.given_away([frozenset([thing])], calls=False)
        found = following.given_away([left], calls=False)
    else:
        shown = each.argrepr.startswith("%")  # of texts
        found = following.given_away([left, right], shown, calls=False)
    if each.opname != "BINARY_OP":
        stack.append(NOTHING)
        return
    if each.argrepr.endswith("=") and all(
            isinstance(thing, Outside) and type(thing.value) is Tensor for thing in left):
        stack.append(left)  # a tensor is assigned to, and is what it was
        return
    known = PLAIN | FLOATS
    if following.is_unsure((left | right) - known):
        result = NOTHING | found & SIZES
    else:
        result = FLOATS if may_be_float(left | right) or each.argrepr.startswith("/") else PLAIN
    if each.argrepr in ("+", "%") and (text := following.text(left)) != NOTHING:
        following.count(right)
        result = text
    if each.argrepr.endswith("="):
        result |= left
    parts = [thing for thing in left | right if isinstance(thing, Created) or isinstance(
        thing, Outside) and not _is_atom(thing.value)]
    if parts:
        made = frame.site(each.offset)
        for thing in parts:
            following.put(made.contents, following.elements(thing))
            if isinstance(thing, Outside) and each.argrepr == "|":  # one of some classes
                following.put(made.contents, [thing])
            if isinstance(thing, Created) and thing.kind or isinstance(thing, Outside):
                result |= following.operators(thing, changes=each.argrepr.endswith("="))
        result |= {made}
    stack.append(result)


#: Containers that look for a key.
_KEYED = (dict, types.MappingProxyType)
#: Operators that a size has symbolically, and the one that no size has.
_NOTED = ("+", "-", "*", "//", "%", "@")


def _is_atom(value: object) -> bool:
    """Whether what an operator does to it is known, and changes nothing else."""
    return isinstance(value, (bool, int, float, complex, str, bytes, type(None), np.generic,
                              np.ndarray, Tensor))


@operation("IS_OP")
def _is(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    popped(stack, 2)
    stack.append(NOTHING)


@operation("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT")
def _unary(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    given = stack.pop()
    following.given_away([given], calls=False)
    stack.append(given & SIZES | (FLOATS if may_be_float(given) else NOTHING))


@operation("TO_BOOL")
def _boolean(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    _truth(following, stack.pop())
    stack.append(NOTHING)


@operation("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
def _format(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.opname == "FORMAT_WITH_SPEC" or each.opname == "FORMAT_VALUE" and (each.arg or 0) & 4:
        stack.pop()
    given = stack.pop()
    following.count(given)
    following.given_away([given], True, calls=False)
    stack.append(given & SIZES | NOTHING)


@operation("CALL_INTRINSIC_1")
def _intrinsic(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.argrepr == "INTRINSIC_UNARY_POSITIVE":
        _unary(following, frame, each, stack)
    elif each.argrepr not in ("INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_STOPITERATION_ERROR"):
        following.refuse(f"needs {each.argrepr}, which is not followed", "use trust=True")


@operation("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_SLICE",
           "BUILD_CONST_KEY_MAP")
def _build(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    count = (each.arg or 0) * (2 if each.opname == "BUILD_MAP" else 1)
    parts = popped(stack, count + (each.opname == "BUILD_CONST_KEY_MAP"))
    made = frame.site(each.offset)
    if each.opname in ("BUILD_SET", "BUILD_MAP"):  # hashed and compared
        following.given_away(parts, calls=False)
    following.put(made.contents, frozenset().union(*parts))
    stack.append(frozenset([made]))


@operation("BUILD_STRING")
def _text(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    parts = popped(stack, each.arg or 0)
    stack.append(following.text(parts[0]))


@operation("LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE",
           "DICT_MERGE")
def _add(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    parts = frozenset().union(*popped(stack, 2 if each.opname == "MAP_ADD" else 1))
    if each.opname in ("SET_ADD", "MAP_ADD", "SET_UPDATE"):  # hashed and compared
        following.given_away([parts], calls=False)
    if each.opname not in ("LIST_APPEND", "SET_ADD", "MAP_ADD"):
        parts = elements(following, parts)
    for thing in stack[-(each.arg or 1)]:
        following.write(thing, parts, "")


@operation("LIST_TO_TUPLE", "GET_ITER")
def _same(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.opname == "GET_ITER":
        inner = elements(following, stack[-1], True)
        made = frame.site(each.offset)
        following.put(made.contents, inner)
        stack[-1] = frozenset([made])


@operation("UNPACK_SEQUENCE", "UNPACK_EX")
def _unpack(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    given, count = stack.pop(), each.arg or 0
    inner = elements(following, given)
    if each.opname == "UNPACK_EX":
        made = frame.site(each.offset)
        following.put(made.contents, inner)
        inner |= {made}
        count = (count & 0xFF) + 1 + (count >> 8)
    exact = [thing for thing in given if isinstance(thing, Outside) and type(thing.value) is tuple]
    if len(exact) == len(given) == 1 and len(exact[0].value) == count:
        stack += [following.wrap(part, exact[0].path) for part in reversed(exact[0].value)]
    else:
        stack += [inner] * count


@operation("GET_LEN")
def _length(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    elements(following, stack[-1])
    stack.append(NOTHING)


@operation("MATCH_MAPPING", "MATCH_SEQUENCE", "CHECK_EG_MATCH", "CHECK_EXC_MATCH")
def _match(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.opname.startswith("CHECK"):
        stack.pop()
    elif any(isinstance(thing, (Outside, Created)) and not is_container(
            getattr(thing, "value", None)) for thing in stack[-1]):
        following.registered()  # a class may be registered as one of sequences, or of mappings
    stack.append(NOTHING)


@operation("MATCH_KEYS")
def _match_keys(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    # r[impl following.patterns.read]
    subject, keys = stack[-2:]
    made = frame.site(each.offset)
    following.put(made.contents, elements(following, subject))
    following.put(made.contents, following.call(
        following.attributes(subject, "get"), [elements(following, keys), NOTHING], {}))
    stack.append(NOTHING | {made})


@operation("MATCH_CLASS")
def _match_class(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    # r[impl following.patterns.read]
    subject, kinds, named = popped(stack, 3)
    made = frame.site(each.offset)
    following.asked(subject)
    names = {name for thing in named if isinstance(thing, Outside) for name in thing.value}
    for kind in kinds:
        following.checks(kind)
        if each.arg:
            listed = following.attribute(kind, "__match_args__")
            names |= {name.value for name in elements(following, listed)
                      if isinstance(name, Outside) and isinstance(name.value, str)}
            if any(isinstance(thing, Created) for thing in listed):
                following.refuse("matches by names that are computed", "name the attributes")
            following.put(made.contents, subject)  # `int(n)` gives the subject itself
    for name in sorted(names):
        following.put(made.contents, following.attributes(subject, name))
    stack.append(frozenset([made]))


@operation("BEFORE_WITH")
def _enter(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    leave, enter = (frozenset().union(*[following.special(thing, name) for thing in stack[-1]])
                    for name in ("__exit__", "__enter__"))
    stack.pop()
    following.call(leave, [NOTHING, following.caught(), NOTHING], {})
    result = following.call(enter, [], {})
    stack += [leave, result or NOTHING]


@operation("WITH_EXCEPT_START")
def _leave(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(NOTHING)


@operation("YIELD_VALUE")
def _yield(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    following.put(frame.returned, stack.pop())
    stack.append(NOTHING | frame.site("generator").contents)  # what it may be sent


@operation("IMPORT_NAME")
def _import(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    _, names = popped(stack, 2)
    name = each.argval
    package = frame.space.get("__package__") or ""
    full = name if name in sys.modules else f"{package}.{name}"
    if full not in sys.modules:
        stack.append(following.refuse(f"imports {name}", "import it outside of the function"))
        return
    listed = any(isinstance(thing, Outside) and thing.value for thing in names)
    module = following.reads.note("item", sys.modules, full, f"the module {full}")
    if not listed and "." in name:
        module = sys.modules[name.partition(".")[0]]
    stack.append(following.wrap(module, name))


@operation("IMPORT_FROM")
def _import_from(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    stack.append(following.attributes(stack[-1], each.argval))


@operation("MAKE_FUNCTION")
def _function(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    code = next(iter(stack.pop())).value
    made = frame.site(each.offset)
    made.code, made.frame = code, frame
    for flag in (8, 4, 2, 1):
        if (each.arg or 0) & flag:
            _set_part(following, made, flag, stack.pop())
    stack.append(frozenset([made]))


def _set_part(following: Following, made: Created, flag: int, value: Value) -> None:
    """A new function gets its defaults; its closure is found by name."""
    if flag in (1, 2):
        following.put(made.defaults, value | elements(following, value))


@operation("SET_FUNCTION_ATTRIBUTE")
def _function_part(following: Following, frame: Entered, each: dis.Instruction,
                   stack: Stack) -> None:
    value, functions = popped(stack, 2)
    for made in functions:
        _set_part(following, made, each.arg or 0, value)
    stack.append(functions)


@operation("CALL", "CALL_KW")
def _call(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    if each.opname == "CALL_KW":
        frame.names = next(iter(stack.pop())).value
    args = popped(stack, each.arg or 0)
    function, owner = _callee(stack)
    names, frame.names = frame.names, ()
    named = dict(zip(names, args[len(args) - len(names):], strict=True))
    result = following.call(function, [*owner, *args[:len(args) - len(names)]], named)
    stack.append(result if function and all(map(_gives_parts, function)) else result | NOTHING)


def _gives_parts(function: Any) -> bool:
    """Whether it gives what is in a container from outside, and nothing that is computed."""
    return isinstance(function, Native) and function.name in ("keys", "values", "items") \
        and is_container(getattr(function.owner, "value", None))


def _callee(stack: Stack) -> tuple[Value, list[Value]]:
    """The function that is called, and its object if there is one, taken off the stack."""
    function, *owner = [each for each in popped(stack, 2) if each != _NULL]
    return function, owner


@operation("CALL_FUNCTION_EX")
def _call_spread(following: Following, frame: Entered, each: dis.Instruction, stack: Stack) -> None:
    rest = NONE
    if (each.arg or 0) & 1:
        given = stack.pop()
        rest |= elements(following, given)
    rest |= elements(following, stack.pop())
    function, _ = _callee(stack)
    stack.append(following.call(function, [], {}, rest) | NOTHING)
