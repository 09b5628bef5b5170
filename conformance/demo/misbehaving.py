#!/usr/bin/env python3
"""An executable that breaks the protocol in the way that its argument says."""

from __future__ import annotations

import json
import os
import sys
import time

INFO = {"name": "misbehaving", "version": "1", "observes": ["values"]}


def wrong_answers(number: int, right: dict) -> dict[str, str]:
    """What is said, where saying something is all that is wrong."""
    value = {"name": "t1", "dtype": "float32", "shape": [10**12], "data": "00"}
    return {"garbage": "hello, world", "deep": "[" * 100_000,
            "sequence": json.dumps({**right, "seq": 99}),
            "twice": json.dumps(right) + "\n" + json.dumps(right),
            "shape": json.dumps({**right, "observation": {"values": [value]}}),
            "form": json.dumps({**right, "observation": {}}),
            "unsupported": json.dumps({"type": "unsupported", "seq": number, "what": "add"}),
            "error": json.dumps({"type": "error", "seq": number, "message": "no",
                                 "traceback": "line 1"})}


def misbehave(manner: str, message: dict) -> None:
    """Answer a request wrongly, or not at all."""
    right = {"type": "ok", "seq": message["seq"], "observation": {"values": []}}
    if manner in (said := wrong_answers(message["seq"], right)):
        print(said[manner], flush=True)
    if manner == "crash":
        print("about to crash", file=sys.stderr, flush=True)
        os._exit(3)
    if manner == "hang":
        time.sleep(60)
    if manner == "half":
        sys.stdout.write(json.dumps(right)[:20])
        sys.stdout.flush()
        os._exit(0)
    if manner == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if manner == "deaf":  # from now on
        print(json.dumps(right), flush=True)
        time.sleep(60)
    if manner == "chatter":
        print(json.dumps(right), flush=True)
        while True:
            print("hello", flush=True)
    if manner == "orphan":  # somebody else holds the pipe when this process is gone
        if os.fork() == 0:
            os.setsid()
            time.sleep(20)
        os._exit(4)
    if manner == "drip":
        while True:
            print("x", end="", flush=True)
            time.sleep(0.05)
    if manner == "noisy":
        print("x" * 200_000, file=sys.stderr, flush=True)
        print(json.dumps(right), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "start":
        print(json.dumps({"type": "started", "info": INFO}), flush=True)
    elif request["type"] == "reset":
        print(json.dumps({"type": "ok", "seq": request["seq"], "observation": {"values": []}}),
              flush=True)
    elif request["type"] == "stop":
        break
    else:
        misbehave(sys.argv[1], request)
