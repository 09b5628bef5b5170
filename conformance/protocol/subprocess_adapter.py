"""Any executable as an adapter: messages as JSON lines on its standard input and output.

Whatever the executable does is an answer of some sort.  It may crash, hang, print garbage, stop
in the middle of a line, answer another request or never stop talking: each of these is a
`ProtocolError` that says so, after which a fresh process takes its place.  What it prints on
standard error is kept, for the message, and means nothing otherwise.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from queue import Empty, Queue
from select import PIPE_BUF, select
from threading import Thread
from time import monotonic
from typing import IO, Any

from conformance import protocol
from conformance.protocol import (
    ImplementationError,
    Info,
    Observation,
    Options,
    Program,
    ProtocolError,
    Unsupported,
)

#: Seconds for a request, until its answer has come.
TIMEOUT = 60.0
LONGEST_LINE = 64 * 1024 * 1024
KEPT_ERRORS = 4000


class SubprocessAdapter:
    """Drives an executable.  `timeout` is in seconds, for each request."""

    def __init__(self, command: Sequence[str], timeout: float = TIMEOUT,
                 environment: Mapping[str, str] | None = None,
                 longest_line: int = LONGEST_LINE) -> None:
        self.command = list(command)
        self.timeout = timeout
        self.environment = dict(environment or {})
        self.longest_line = longest_line
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: Queue[bytes | None] = Queue()
        self._errors = bytearray()
        self._readers: list[Thread] = []
        self._info: Info | None = None
        self._sequence = 0

    def info(self) -> Info:
        if self._info is None:
            self._start()
        assert self._info is not None
        return self._info

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        message = {"type": "run", "program": program, "observe": sorted(observe),
                   "options": dict(options or {})}
        return Observation.from_json(self._request(message)["observation"])

    def reset(self) -> None:
        self._request({"type": "reset"})

    def close(self) -> None:
        """Ask the process to stop, and end it if it does not."""
        if self._process is None:
            return
        try:
            self._send({"type": "stop"})
            self._process.wait(timeout=1.0)
        except (ProtocolError, subprocess.TimeoutExpired):
            pass
        self._end()

    # One request ---------------------------------------------------------------------------

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._start()
        self._sequence += 1
        self._send({**message, "seq": self._sequence})
        reply = self._receive()
        if reply.get("seq") != self._sequence:
            self._end()
            raise ProtocolError(f"request {self._sequence} was answered with "
                                f"{reply.get('seq')!r} as its number")
        if reply["type"] == "unsupported":
            raise Unsupported(reply["what"])
        if reply["type"] == "error":
            raise ImplementationError(reply["message"], reply.get("traceback", ""))
        return reply

    def _start(self) -> None:
        try:
            # A group of its own: ending it ends what it started.
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env={**os.environ, **self.environment},
                start_new_session=True)
        except OSError as error:
            raise ProtocolError(f"{self.command[0]} cannot be started: {error}") from error
        self._lines, self._errors = Queue(), bytearray()
        assert self._process.stdout and self._process.stderr
        self._readers = [
            Thread(target=_read_lines, daemon=True,
                   args=(self._process.stdout, self._lines, self.longest_line)),
            Thread(target=_read_errors, daemon=True,
                   args=(self._process.stderr, self._errors))]
        for reader in self._readers:
            reader.start()
        self._send({"type": "start", "protocol": protocol.PROTOCOL})
        reply = self._receive()
        if reply["type"] != "started":
            self._end()
            raise ProtocolError(f"`start` was answered with {reply['type']!r}")
        spoken = reply.get("protocol", reply["info"].get("protocol", protocol.PROTOCOL))
        if spoken != protocol.PROTOCOL:
            self._end()
            raise ProtocolError(f"it speaks {spoken!r}, and this suite {protocol.PROTOCOL!r}. "
                                "Remedy: answer `start` with the protocol that it asks for, or "
                                "install the version of the suite that speaks the other one")
        self._info = Info.from_json(reply["info"])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        line = memoryview(json.dumps(message).encode() + b"\n")
        pipe, deadline = self._process.stdin.fileno(), monotonic() + self.timeout
        try:
            while line:  # bit by bit: a pipe that nobody reads is full after some kilobytes
                _, ready, _ = select([], [pipe], [], max(0.0, deadline - monotonic()))
                if not ready:
                    raise self._broken(f"it read nothing for {self.timeout:g} seconds")
                line = line[os.write(pipe, line[:PIPE_BUF]):]
        except OSError as error:
            raise self._broken("it no longer listens") from error

    def _receive(self) -> dict[str, Any]:
        deadline = monotonic() + self.timeout
        try:
            line = self._lines.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            raise self._broken(f"no answer within {self.timeout:g} seconds") from None
        if line is None:
            raise self._broken("it ended without an answer")
        if not line.endswith(b"\n"):
            what = "answer too long" if len(line) > self.longest_line else "half a line"
            raise self._broken(f"{what}: {line[:60]!r}")
        try:
            reply = json.loads(line)
            protocol.check("message", reply)
        except (ValueError, RecursionError, ProtocolError) as error:
            raise self._broken(f"not an answer: {line[:60]!r} ({error})") from error
        if reply["type"] in ("start", "run", "reset", "stop"):
            raise self._broken(f"{reply['type']!r} is a request, not an answer")
        return dict(reply)

    # Ending --------------------------------------------------------------------------------

    def _broken(self, what: str) -> ProtocolError:
        """The error for a process that cannot be talked to any more; the next request
        starts another one."""
        status = self._end()
        errors = self._errors.decode(errors="replace").strip()
        ended = f"; it ended with status {status}" if status is not None else ""
        return ProtocolError(f"{what}{ended}" + (f"\nstandard error:\n{errors}" if errors else ""))

    def _end(self) -> int | None:
        """End the process group.  Answers the status if the process had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            status: int | None = process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()
        for reader in self._readers:
            reader.join(timeout=0.5)
        return status


def _read_lines(stream: IO[bytes], lines: Queue[bytes | None], longest: int) -> None:
    with stream:
        while line := stream.readline(longest + 1):
            lines.put(line)
            if not line.endswith(b"\n"):
                return
        lines.put(None)


def _read_errors(stream: IO[bytes], kept: bytearray) -> None:
    with stream:
        while chunk := os.read(stream.fileno(), 4096):
            kept += chunk
            del kept[:-KEPT_ERRORS]
