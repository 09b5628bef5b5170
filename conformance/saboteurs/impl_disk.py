"""Mistakes in what is kept on disk, made inside `impl`."""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class ChecksumsNotCompared(ImplPatch):
    rule = "caching.disk.trusted"
    description = "an entry is believed whatever its first line says"
    first = "test_a_damaged_entry_is_as_if_it_were_not_there"
    target = "impl.caching.disk:Store.get"

    def replacement(self, original: Function) -> Function:
        def get(store: Any, kind: str, key: str) -> bytes | None:
            from impl.caching.disk import entry_name
            text = store._read(store.folder / entry_name(kind, key))
            return None if text is None else text.partition(b"\n")[2]
        return get


class ObjectsNotCompared(ImplPatch):
    rule = "caching.disk.trusted"
    description = "an object is believed if it is there"
    first = "test_an_object_is_what_its_name_says"
    target = "impl.caching.disk:Store.find_object"

    def replacement(self, original: Function) -> Function:
        def find_object(store: Any, name: str) -> Path | None:
            path: Path = store.folder / name
            return path if path.exists() else None
        return find_object


class OwnersNotAsked(ImplPatch):
    rule = "caching.disk.trusted"
    description = "whoever may write a folder or a file is trusted"
    first = "test_a_file_that_others_can_write_is_not_read"
    target = "impl.caching.disk:not_private"

    def replacement(self, original: Function) -> Function:
        return lambda status: ""


class ParentsNotAsked(ImplPatch):
    rule = "caching.disk.trusted"
    description = "others may put another folder in the place of this one"
    first = "test_a_folder_of_others_is_not_used"
    target = "impl.caching.disk:replaceable"

    def replacement(self, original: Function) -> Function:
        return lambda folder: ""


class WrittenInPlace(ImplPatch):
    rule = "caching.disk.shared"
    description = "a file grows under its name while others read it"
    first = "test_a_reader_sees_whole_files_whoever_writes"
    target = "impl.caching.disk:Store._write"

    def replacement(self, original: Function) -> Function:
        def write(store: Any, name: str, content: bytes) -> bool:
            (store.folder / name).write_bytes(content)
            return True
        return write


class NamesByHash(ImplPatch):
    rule = "caching.disk.shared"
    description = "files are named by Python's hash, which differs from process to process"
    first = "test_names_of_files_in_two_processes"
    target = "impl.caching.disk:entry_name"

    def replacement(self, original: Function) -> Function:
        return lambda kind, key: f"{kind}-{hash(key) & (1 << 64) - 1:040x}.entry"


class FolderWithoutBound(ImplPatch):
    rule = "caching.bound.kept"
    description = "nothing is ever removed"
    first = "test_what_was_used_longest_ago_is_removed"
    target = "impl.caching.disk:Store._bound"

    def replacement(self, original: Function) -> Function:
        return lambda store, written: None


class NewestGoesFirst(ImplPatch):
    rule = "caching.bound.kept"
    description = "what was used last is removed first"
    first = "test_what_was_used_longest_ago_is_removed"
    target = "impl.caching.disk:Store._files"

    def replacement(self, original: Function) -> Function:
        return lambda store: original(store)[::-1]


class EveryFileIsOurs(ImplPatch):
    rule = "caching.disk.shared"
    description = "whatever lies in the folder may be removed"
    first = "test_files_of_others_stay"
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
    target = "impl.schedule:shared_plan_for"

    def replacement(self, original: Function) -> Function:
        def shared_plan_for(*given: Any) -> Any:
            *found, _ = original(*given)
            return *found, False
        return shared_plan_for


class TextsForgetSettings(ImplPatch):
    rule = "caching.text.same"
    description = "a kept text is found by the kernel alone"
    first = "test_a_text_that_was_kept_is_the_one_that_would_be_made"
    target = "impl.caching.texts:kernel_name"

    def replacement(self, original: Function) -> Function:
        return lambda ast, circumstances="", named=True: original(ast, "", named)


class VersionsByHand(ImplPatch):
    rule = "caching.text.same"
    description = "the version of our code is a number that nobody raises"
    first = "test_a_text_of_another_version_is_not_used"
    target = "impl.caching.texts:code_version"

    def replacement(self, original: Function) -> Function:
        def code_version() -> str:
            return "1"
        code_version.__wrapped__ = code_version  # type: ignore[attr-defined]
        return code_version
