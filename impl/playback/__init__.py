"""Process replay: what a process decided, decided again by the present code. Chapter:
spec/playback.md.

With `CAPTURE_PROCESS_REPLAY=1` every schedule and every program of a process is recorded on disk.
`python -m impl.playback` makes them again, and shows what comes out otherwise than it did.
"""
from impl.playback.compare import Verdict, replay
from impl.playback.records import Record, capture, folder_of_records, read_records

__all__ = ["Record", "Verdict", "capture", "folder_of_records", "read_records", "replay"]
