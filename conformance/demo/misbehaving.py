#!/usr/bin/env python3
"""An executable that breaks the protocol in the way that its argument says."""

from __future__ import annotations

import json
import os
import sys
import time

INFO = {"name": "misbehaving", "version": "1", "observes": ["values"]}


def misbehave(manner: str, message: dict) -> None:
    """Answer a request wrongly, or not at all."""
    right = {"type": "ok", "seq": message["seq"], "observation": {"values": []}}
    if manner == "crash":
        print("about to crash", file=sys.stderr, flush=True)
        os._exit(3)
    if manner == "hang":
        time.sleep(60)
    if manner == "garbage":
        print("hello, world", flush=True)
    if manner == "half":
        sys.stdout.write(json.dumps(right)[:20])
        sys.stdout.flush()
        os._exit(0)
    if manner == "sequence":
        print(json.dumps({**right, "seq": 99}), flush=True)
    if manner == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if manner == "deep":
        print("[" * 100_000, flush=True)
    if manner == "deaf":  # from now on
        print(json.dumps(right), flush=True)
        time.sleep(60)
    if manner == "chatter":
        print(json.dumps(right), flush=True)
        while True:
            print("hello", flush=True)
    if manner == "twice":
        print(json.dumps(right), flush=True)
        print(json.dumps(right), flush=True)
    if manner == "orphan":  # somebody else holds the pipe when this process is gone
        if os.fork() == 0:
            os.setsid()
            time.sleep(20)
        os._exit(4)
    if manner == "shape":
        value = {"name": "t1", "dtype": "float32", "shape": [10**12], "data": "00"}
        print(json.dumps({**right, "observation": {"values": [value]}}), flush=True)
    if manner == "drip":
        while True:
            print("x", end="", flush=True)
            time.sleep(0.05)
    if manner == "form":
        print(json.dumps({**right, "observation": {}}), flush=True)
    if manner == "unsupported":
        print(json.dumps({"type": "unsupported", "seq": message["seq"], "what": "add"}),
              flush=True)
    if manner == "error":
        print(json.dumps({"type": "error", "seq": message["seq"], "message": "no",
                          "traceback": "line 1"}), flush=True)
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
