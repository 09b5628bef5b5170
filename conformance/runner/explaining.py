"""What went wrong, in one line with its place; and what a misspelt name was meant to be."""
from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from conformance.protocol import ImplementationError

#: A frame in the text of a traceback of Python, and the line of code below it.
FRAME = re.compile(r'^ *File "([^"]+)", line (\d+), in .*\n(?: {4}(\S.*))?', re.MULTILINE)


def described(error: BaseException) -> str:
    """What was raised and where: `KeyError in my_adapter.py:31: 'axes'`.

    An error without a message is explained by the line of code that raised it.
    """
    path, line, code = _last_frame(error)
    name, _, message = str(error).partition(": ") if isinstance(error, ImplementationError) \
        else (type(error).__name__, "", str(error))
    place = f" in {_short(path)}:{line}" if path else ""
    said = message or code
    return f"{name}{place}" + (f": {said}" if said else "")


def whole(error: BaseException) -> str:
    """The traceback, of the other process where it was raised there."""
    told = error.traceback if isinstance(error, ImplementationError) else ""
    return told or "".join(traceback.format_exception(error))


def _last_frame(error: BaseException) -> tuple[str, int, str]:
    """The file, the line and its code; "" where nothing is known of them."""
    if isinstance(error, ImplementationError):
        frames = FRAME.findall(error.traceback)
        path, line, code = frames[-1] if frames else ("", 0, "")
        return path, int(line), code
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return (last[0].filename, last[0].lineno or 0, last[0].line or "") if last else ("", 0, "")


def _short(path: str) -> str:
    """Of a file in a library the path inside of it, of another the last parts."""
    for folder in ("site-packages", "dist-packages"):
        before, found, inside = path.rpartition(f"/{folder}/")
        if found:
            return inside
    return str(Path(*Path(path).parts[-2:])) if Path(path).is_absolute() else path


def meant(name: str, known: Iterable[str]) -> str:
    """`; did you mean "sub"?` for a name that is like one of these, or ""."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""
