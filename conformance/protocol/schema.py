"""A validator for the part of JSON Schema that the shipped schemas use.

The schemas are ordinary JSON Schema, so that an implementation in another language can use the
validator it likes.  This one exists so that the suite needs no package for it, and so that an
error names the place: `$.statements[3].shape[0]: -1 is less than 0`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Loader = Callable[[str], Schema]

PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "null": (type(None),), "integer": (int,), "number": (int, float),
}


class SchemaError(ValueError):
    """A document does not follow its schema."""


def validate(value: Any, schema: Schema, load: Loader, where: str = "$",
             root: Schema | None = None) -> None:
    """Raise SchemaError at the first place where `value` does not follow `schema`.

    `load` answers another shipped schema by name, for references such as `program.json`.
    """
    root = root or schema
    if "$ref" in schema:
        target, root = _resolve(schema["$ref"], root, load)
        return validate(value, target, load, where, root)
    _check_type(value, schema, where)
    _check_scalar(value, schema, where)
    _check_choice(value, schema, load, where, root)
    if isinstance(value, dict):
        _check_object(value, schema, load, where, root)
    if isinstance(value, list):
        _check_array(value, schema, load, where, root)


def _resolve(reference: str, root: Schema, load: Loader) -> tuple[Schema, Schema]:
    file, _, pointer = reference.partition("#")
    if file:
        root = load(file.removesuffix(".json"))
    target = root
    for part in filter(None, pointer.split("/")):
        target = target[part]
    return target, root


def _check_type(value: Any, schema: Schema, where: str) -> None:
    if "type" not in schema:
        return
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for name in names:
        # Python counts True as an integer; JSON does not.
        is_right = isinstance(value, PYTHON_TYPES[name])
        if is_right and (not isinstance(value, bool) or name == "boolean"):
            return
    raise SchemaError(f"{where}: {_short(value)} is not of type {' or '.join(names)}")


def _check_scalar(value: Any, schema: Schema, where: str) -> None:
    if "const" in schema and value != schema["const"]:
        raise SchemaError(f"{where}: {_short(value)} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        raise SchemaError(f"{where}: {_short(value)} is none of {schema['enum']}")
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        raise SchemaError(f"{where}: {value} is less than {schema['minimum']}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        raise SchemaError(f"{where}: {_short(value)} does not match {schema['pattern']}")


def _check_choice(value: Any, schema: Schema, load: Loader, where: str, root: Schema) -> None:
    """`oneOf`: the shipped schemas use it only for variants that differ in one constant."""
    if "oneOf" not in schema:
        return
    errors: list[tuple[int, str]] = []
    for option in schema["oneOf"]:
        try:
            return validate(value, option, load, where, root)
        except SchemaError as error:
            errors.append((_discriminates(value, option, root, load), str(error)))
    # The variant whose own constant matched is the one that was meant.
    raise SchemaError(max(errors, key=lambda each: each[0])[1])


def _discriminates(value: Any, option: Schema, root: Schema, load: Loader) -> int:
    if "$ref" in option:
        option = _resolve(option["$ref"], root, load)[0]
    if not isinstance(value, dict):
        return 0
    for name in ("do", "type", "kind"):
        rule = option.get("properties", {}).get(name, {})
        if name in value and value[name] in [rule.get("const"), *rule.get("enum", ())]:
            return 1
    return 0


def _check_object(value: dict[str, Any], schema: Schema, load: Loader, where: str,
                  root: Schema) -> None:
    for name in schema.get("required", ()):
        if name not in value:
            raise SchemaError(f"{where}: {name!r} is missing")
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            validate(item, properties[name], load, f"{where}.{name}", root)
        elif others is False:
            raise SchemaError(f"{where}: {name!r} is not expected here")
        elif isinstance(others, dict):
            validate(item, others, load, f"{where}.{name}", root)


def _check_array(value: list[Any], schema: Schema, load: Loader, where: str,
                 root: Schema) -> None:
    count = len(value)
    if count < schema.get("minItems", 0) or count > schema.get("maxItems", count):
        raise SchemaError(f"{where}: {count} items are too few or too many")
    for index, item in enumerate(value):
        if "items" in schema:
            validate(item, schema["items"], load, f"{where}[{index}]", root)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
