"""What is kept on disk: bytes under a kind and a key, in a folder that is its owner's alone.

Compiled kernels lie here, and whatever else is dear to find again. A store never fails: what cannot
be read is as if it were not there, and what cannot be written is not kept.
"""
from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path

from impl import settings
from impl.ir import free_after_fork

FORMAT = "tensor-schedule-store/1"
#: The names of our files: entries, objects, and what is being written. No other file is touched.
OURS = re.compile(r"[a-z_]+-[0-9a-f]{40}\.entry|[0-9a-f]{64}\.[a-z]+|\.new-\w+")
_HOUR = 3600.0

_said: set[str] = set()
_saying = free_after_fork(threading.RLock())


def say_once(line: str) -> None:
    """Print a line on stderr, once in this process."""
    with _saying:
        if line in _said:
            return
        _said.add(line)
    print(f"tensor-schedule: {line}", file=sys.stderr)


def not_private(status: os.stat_result) -> str:
    """Why a folder or a file may have been written by somebody else; empty if it cannot."""
    # r[impl caching.disk.trusted, cpu.object.trusted]
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid != os.geteuid():
        return "belongs to another user"
    if status.st_mode & 0o022:
        return "can be written by other users; take that right away (chmod go-w)"
    return ""


def replaceable(folder: Path) -> str:
    """Why somebody else could put another folder in the place of this one; empty if nobody can."""
    if not hasattr(os, "geteuid"):
        return ""
    for parent in folder.resolve().parents:
        status = parent.stat()
        ours = (status.st_gid == os.getegid()) * 0o020  # a group that usually is the user alone
        if status.st_uid not in (0, os.geteuid()):
            return f"lies in {parent}, which belongs to another user"
        if status.st_mode & (0o022 & ~ours) and not status.st_mode & stat.S_ISVTX:
            return f"lies in {parent}, which other users can write (chmod go-w)"
    return ""


def untrusted(folder: Path) -> str:
    """Why what is in a folder cannot be believed; empty if it can."""
    return not_private(folder.stat()) or replaceable(folder)


def unusable(folder: Path) -> str:
    """Why nothing can be kept in a folder; empty if it can. The folder is made if it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        problem = untrusted(folder)
        if not problem:
            with tempfile.TemporaryFile(dir=folder):
                pass
        return problem
    except OSError as error:
        return f"cannot be used: {error.strerror or error}"


class Store:
    """One folder. `limit` is in bytes; 0 is no limit.

    An entry (`get`, `put`) is a file that begins with its kind, its key and the checksum of the
    rest. An object (`find_object`, `put_object`) is a plain file, for those who need a path, and is
    named by its own checksum.
    """

    def __init__(self, folder: Path, limit: int = 0) -> None:
        self.folder, self.limit = folder, limit
        self.lock = free_after_fork(threading.RLock())
        self.unseen = 1 << 62  # bytes written since the folder was last looked through

    def get(self, kind: str, key: str) -> bytes | None:
        """What was kept under a kind and a key; None if nothing was, or not exactly that."""
        return self.read_entry(self.folder / entry_name(kind, key), kind, _digest(key.encode()))

    def read_entry(self, path: Path, kind: str, digest: str = "") -> bytes | None:
        """What was kept in one of the files that `entries` lists; None if it is damaged."""
        head, _, content = (self._read(path) or b"").partition(b"\n")
        words = head.decode("ascii", "replace").split(" ")
        named = words[2] if len(words) == 4 else ""
        # r[impl caching.disk.trusted, cpu.object.trusted, caching.kept.equal]
        wanted = [FORMAT, kind, digest or named, _digest(content)]
        return content if words == wanted and path.name == _file_name(kind, named) else None

    def put(self, kind: str, key: str, content: bytes) -> bool:
        """Keep something; whether that was possible."""
        head = " ".join((FORMAT, kind, _digest(key.encode()), _digest(content)))
        return self._write(entry_name(kind, key), head.encode() + b"\n" + content)

    def find_object(self, name: str) -> Path | None:
        """The path of an object whose content is what its name says; None if there is none."""
        content = self._read(self.folder / name) if OURS.fullmatch(name) else None
        # r[impl caching.disk.trusted, cpu.object.trusted]
        if content is None or _digest(content) != name.partition(".")[0]:
            return None
        return self.folder / name

    def put_object(self, content: bytes, suffix: str) -> str:
        """Keep an object, whether or not that is possible; its name."""
        name = f"{_digest(content)}.{suffix}"
        self._write(name, content)
        return name

    def entries(self, kind: str) -> list[Path]:
        """The files of a kind, by name."""
        return sorted(self.folder.glob(f"{kind}-*.entry"))

    def _read(self, path: Path) -> bytes | None:
        """The content of a file that only we can have written."""
        try:
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
            with open(os.open(path, flags | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                status = os.fstat(file.fileno())
                problem = not_private(status)
                if problem or not stat.S_ISREG(status.st_mode):
                    say_once(f"{path} is not used: it {problem or 'is no plain file'}")
                    return None
                content = file.read()
            if time.time() - status.st_mtime > _HOUR:  # what is used stays longest
                os.utime(path)
            return content
        except OSError:
            return None

    def _write(self, name: str, content: bytes) -> bool:
        """Write a file so that others see all of it or nothing; whether that was possible."""
        # r[impl caching.disk.shared, cpu.cache.whole]
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, self.folder / name)
        except OSError as error:  # r[impl caching.disk.absent+2]: a full disk stops nobody
            say_once(f"nothing is kept in {self.folder}: {error.strerror or error}")
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            return False
        with contextlib.suppress(OSError):  # the folder may be gone by now
            self._bound(len(content))
        return True

    def _bound(self, written: int) -> None:
        """Keep the folder below its limit; look through it only after enough was written."""
        with self.lock:
            self.unseen += written
            if not self.limit or self.unseen < self.limit // 16:
                return
            self.unseen = 0
        files, now = self._files(), time.time()
        total = sum(size for _, size, _ in files)
        least = self.limit * 3 // 4 if total > self.limit else total
        for used, size, path in files:  # oldest use first: r[impl caching.bound.kept]
            abandoned = path.name.startswith(".new-") and now - used > _HOUR
            if total > least or abandoned:
                path.unlink(missing_ok=True)
                total -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of the last use, size and path of our files, the oldest use first."""
        found = []
        with os.scandir(self.folder) as listed:
            for each in listed:
                if OURS.fullmatch(each.name):  # r[impl caching.disk.shared]
                    try:
                        status = each.stat(follow_symlinks=False)
                    except OSError:  # another process removed it
                        continue
                    found.append((status.st_mtime, status.st_size, Path(each.path)))
        return sorted(found)


def entry_name(kind: str, key: str) -> str:
    """The name of the file of an entry, the same in every process."""
    return _file_name(kind, _digest(key.encode()))  # r[impl caching.disk.shared]


def _file_name(kind: str, digest: str) -> str:
    return f"{kind}-{digest[:40]}.entry"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Stores:
    """The stores of this process, by folder; a private temporary one where none can be used."""

    def __init__(self) -> None:
        self.lock = free_after_fork(threading.RLock())
        self.known: dict[str, Store] = {}
        self.temporary: Store | None = None

    def in_force(self) -> Store:
        """The store of the folder that the settings name."""
        # r[impl caching.disk.absent+2, cpu.cache.without]
        # r[impl cpu.cache.without]
        with self.lock:
            if settings.get("CACHELEVEL") == 0:
                return self._private()
            return self._of(settings.get("CACHE_FOLDER") or default_folder())

    def of_machine(self) -> Store:
        """The store of the default folder, if that can be used; else the one in force."""
        with self.lock:
            default = default_folder()
            if settings.get("CACHELEVEL") == 0 or unusable(Path(default)):
                return self.in_force()
            return self._of(default)

    def _of(self, chosen: str) -> Store:
        if chosen not in self.known:
            problem = unusable(Path(chosen))
            if problem:
                say_once(f"nothing is kept on disk: {chosen} {problem}")
            self.known[chosen] = self._private() if problem else Store(Path(chosen))
        store = self.known[chosen]
        store.limit = settings.get("CACHE_SIZE") << 20
        return store

    def _private(self) -> Store:
        """A folder of this process, gone when it ends; a forked one leaves it to its parent."""
        if self.temporary is None or not self.temporary.folder.is_dir():
            folder, owner = tempfile.mkdtemp(prefix="tensor-schedule-"), os.getpid()
            atexit.register(_remove, folder, owner)
            self.temporary = Store(Path(folder))
        return self.temporary


def _remove(folder: str, owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def default_folder() -> str:
    """Where the system keeps what programs can make again."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tensor-schedule")


_stores = Stores()


def store() -> Store:
    """The store in force: `CACHE_FOLDER`, or a temporary one if that cannot be used."""
    return _stores.in_force()


def machine_store() -> Store:
    """The store of what is measured of this machine: one for all who run on it as this user, so
    that they make the same kernels, whatever `CACHE_FOLDER` says.
    """
    return _stores.of_machine()
