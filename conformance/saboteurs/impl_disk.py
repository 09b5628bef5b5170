"""Mistakes in what is kept on disk, made inside `impl`."""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class ChecksumsNotCompared(ImplPatch):
    rule = "caching.disk.checked+2"
    description = "an entry is believed whatever its first line says"
    target = "impl.caching.disk:Store.get"

    def replacement(self, original: Function) -> Function:
        def get(store: Any, kind: str, key: str) -> bytes | None:
            from impl.caching.disk import entry_name
            text = store._read(store.folder / entry_name(kind, key))
            return None if text is None else text.partition(b"\n")[2]
        return get


class ObjectsNotCompared(ImplPatch):
    rule = "caching.disk.checked+2"
    description = "an object is believed if it is there"
    target = "impl.caching.disk:Store.find_object"

    def replacement(self, original: Function) -> Function:
        def find_object(store: Any, name: str) -> Path | None:
            path: Path = store.folder / name
            return path if path.exists() else None
        return find_object


class OwnersNotAsked(ImplPatch):
    rule = "caching.disk.private+2"
    description = "whoever may write a folder or a file is trusted"
    target = "impl.caching.disk:not_private"

    def replacement(self, original: Function) -> Function:
        return lambda status: ""


class ParentsNotAsked(ImplPatch):
    rule = "caching.disk.private+2"
    description = "others may put another folder in the place of this one"
    target = "impl.caching.disk:replaceable"

    def replacement(self, original: Function) -> Function:
        return lambda folder: ""


class WrittenInPlace(ImplPatch):
    rule = "caching.disk.whole"
    description = "a file grows under its name while others read it"
    target = "impl.caching.disk:Store._write"

    def replacement(self, original: Function) -> Function:
        def write(store: Any, name: str, content: bytes) -> bool:
            (store.folder / name).write_bytes(content)
            return True
        return write


class NamesByHash(ImplPatch):
    rule = "caching.disk.stable"
    description = "files are named by Python's hash, which differs from process to process"
    target = "impl.caching.disk:entry_name"

    def replacement(self, original: Function) -> Function:
        return lambda kind, key: f"{kind}-{hash(key) & (1 << 64) - 1:040x}.entry"


class FolderWithoutBound(ImplPatch):
    rule = "caching.disk.bounded"
    description = "nothing is ever removed"
    target = "impl.caching.disk:Store._bound"

    def replacement(self, original: Function) -> Function:
        return lambda store, written: None


class NewestGoesFirst(ImplPatch):
    rule = "caching.disk.bounded"
    description = "what was used last is removed first"
    target = "impl.caching.disk:Store._files"

    def replacement(self, original: Function) -> Function:
        return lambda store: original(store)[::-1]


class EveryFileIsOurs(ImplPatch):
    rule = "caching.disk.own"
    description = "whatever lies in the folder may be removed"
    target = "impl.caching.disk:OURS"

    def replacement(self, original: Any) -> Any:
        return re.compile(r".*")


class FullDiskRaises(ImplPatch):
    rule = "caching.disk.absent+2"
    description = "what cannot be written is an error"
    target = "impl.caching.disk:Store._write"

    def replacement(self, original: Function) -> Function:
        def write(store: Any, name: str, content: bytes) -> bool:
            if not original(store, name, content):
                raise OSError(name)
            return True
        return write


class PlansNotCounted(ImplPatch):
    rule = "caching.count.exact+2"
    description = "the counters do not see whether a plan was found"
    first = "test_plans_are_counted"
    target = "impl.schedule:plan_for"

    def replacement(self, original: Function) -> Function:
        def plan_for(*given: Any) -> Any:
            plan, canonical, _ = original(*given)
            return plan, canonical, False
        return plan_for


class TextsForgetSettings(ImplPatch):
    rule = "caching.text.equal+2"
    description = "a kept text is found by the kernel alone"
    target = "impl.caching.texts:kernel_name"

    def replacement(self, original: Function) -> Function:
        return lambda ast, circumstances="", named=True: original(ast, "", named)


class VersionsByHand(ImplPatch):
    rule = "caching.text.version+2"
    description = "the version of our code is a number that nobody raises"
    target = "impl.caching.texts:code_version"

    def replacement(self, original: Function) -> Function:
        def code_version() -> str:
            return "1"
        code_version.__wrapped__ = code_version  # type: ignore[attr-defined]
        return code_version
