"""Any Python adapter as a program that speaks JSON lines.

    python -m conformance.protocol.serve package.module:Adapter

This is the loop that an implementation in another language writes for itself.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, TextIO

from conformance.protocol import PROTOCOL, Adapter, Unsupported


def load(spec: str) -> Adapter:
    """The adapter that `package.module:Name` names, a class or a function that makes one."""
    module, _, name = spec.partition(":")
    if not name:
        raise ValueError(f"{spec!r} is not of the form package.module:Name")
    factory: Callable[[], Adapter] = getattr(import_module(module), name)
    return factory()


def answer(adapter: Adapter, message: dict[str, Any]) -> dict[str, Any]:
    """The answer to one message other than `stop`."""
    sequence = message.get("seq", 0)
    try:
        if message["type"] == "start":
            return {"type": "started", "protocol": PROTOCOL, "info": adapter.info().to_json()}
        if message["type"] == "reset":
            adapter.reset()
            return {"type": "ok", "seq": sequence, "observation": {"values": []}}
        observation = adapter.run(message["program"], set(message["observe"]),
                                  message.get("options", {}))
        return {"type": "ok", "seq": sequence, "observation": observation.to_json()}
    except Unsupported as reason:
        return {"type": "unsupported", "seq": sequence, "what": str(reason)}
    except Exception as error:  # whatever it is, it is the answer
        return {"type": "error", "seq": sequence, "message": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc()}


def serve(adapter: Adapter, source: TextIO, target: TextIO) -> None:
    """Answer messages, one a line, until `stop` or the end of the input."""
    for line in source:
        message = json.loads(line)
        if message["type"] == "stop":
            return
        # What the implementation prints must not end up between the answers.
        with redirect_stdout(sys.stderr):
            reply = answer(adapter, message)
        target.write(json.dumps(reply) + "\n")
        target.flush()


if __name__ == "__main__":
    if len(sys.argv) > 2:  # python -m conformance.protocol.serve SPEC SABOTEUR
        from conformance.saboteurs import by_name
        with by_name(sys.argv[2]).installed():
            serve(load(sys.argv[1]), sys.stdin, sys.stdout)
    else:
        serve(load(sys.argv[1]), sys.stdin, sys.stdout)
