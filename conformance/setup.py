"""Leaves out of the wheel `tensor-conformance` what is about `impl`, and tests of the suite."""
from __future__ import annotations

from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py

#: Modules that need `impl`, or rooms that are not in the wheel.
OURS = {"conftest", "setup", "impl_adapter", "checked", "captured", "changed", "stress",
        "functions"}


class WithoutOurs(build_py):
    """Takes the modules of a stranger's rooms only."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        everything: Any = super()  # typed in some releases of setuptools and not in others
        found: list[tuple[str, str, str]] = everything.find_package_modules(package, package_dir)
        return [each for each in found if each[1] not in OURS and (
            not each[1].startswith("test_") or package == "conformance.suite")]


if __name__ == "__main__":
    setup(cmdclass={"build_py": WithoutOurs})
