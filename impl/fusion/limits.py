"""What a device allows in one kernel. Chapter: spec/fusion.md."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FusionLimits:
    """What a device allows in one kernel, and the prices that fusion reckons with."""

    arguments: int = 30
    local_bytes: int = 256 * 1024      # buffers between stages, for one iteration of the prefix
    resident_bytes: int = 256 * 1024   # what one iteration may read again in the next one
    large_bytes: int = 64 * 1024       # the order in which so much is stored counts
    cached_bytes: int = 16 << 20       # a value with more is in no cache when it is read again
    stage_operations: int = 400
    kernel_operations: int = 800
    stages: int = 32
    recompute: int = 12                # cost up to which a value is computed again for each user
    repeat: int = 6                    # the same if the value is repeated along an expanded axis
    in_order: int = 19                 # the same where elements are computed one by one
    small_kernel: int = 1 << 14        # iterations below which parallelism does not matter
    parallel: int = 16                 # iterations of the prefix that a larger kernel must offer
    late: int = 48                     # cost up to which a value is made again, and not kept
    memory_worth: int = 1 << 20        # bytes of temporaries below which memory is not looked at
    memory_rounds: int = 4096          # groups that may be looked at in search of a lower peak
    bucket: int = 25 << 20             # bytes of transfers that go together

    def is_large(self, elements: int) -> bool:
        """Whether so many numbers, of four bytes, are large."""
        return 4 * elements >= self.large_bytes

    def exceeded(self, arguments: int = 0, operations: int = 0, stages: int = 0, again: int = 0,
                 local: int = 0) -> str | None:
        """Why no kernel can be that large; None if it can.

        It has so many arguments, operations and stages; one iteration of its prefix reads `again`
        so many bytes that the one before has read, and hands `local` bytes from stage to stage.
        """
        # r[impl fusion.limit.device]
        if arguments > self.arguments:
            return f"argument limit: {arguments} buffers, the device allows {self.arguments}"
        if operations > self.kernel_operations:
            return f"length: more than {self.kernel_operations} operations"
        if stages > self.stages:
            return f"length: more than {self.stages} stages"
        if again > self.resident_bytes:
            return f"cache: {again} bytes would be read again in every iteration"
        if local > self.local_bytes:
            return f"local memory: {local} bytes between stages, {self.local_bytes} allowed"
        return None
