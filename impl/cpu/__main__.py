"""What is known of this processor, and what is measured of it: `python -m impl.cpu`."""
from __future__ import annotations

from impl.cpu.calibration import measured_copies, told_bytes, worth_keeping
from impl.cpu.machine import cache_bytes, own_features, processors, unit_types, vectors_of
from impl.device import Device


def main() -> None:
    """Print both. What is measured here is not kept."""
    vectors = vectors_of(own_features())
    print(f"processors    {processors()}")
    print(f"vectors       {vectors.registers} registers of {vectors.width} bytes"
          f"{', products of bytes' if vectors.dots else ''}")
    print(f"matrix units  {', '.join(unit_types(own_features())) or 'none'}")
    for level, place in ((1, 0), (2, 2), (3, 3)):
        print(f"cache {level}       {cache_bytes(place) >> 10} KiB, as the system says")
    found = measured_copies()
    for each in found:
        speeds = [4 * each.nbytes / seconds / 1e9 for seconds in (each.cached, each.streamed)]
        print(f"copies of {each.nbytes >> 20:2} MiB, there and back: {speeds[0]:.1f} GB/s through "
              f"the caches, {speeds[1]:.1f} past them")
    now, kept = worth_keeping(found, told_bytes()), Device["CPU"].limits.third_cache
    print(f"now it would be past the caches above {now >> 10} KiB; "
          f"kernels are made for {kept >> 10} KiB")


if __name__ == "__main__":
    main()
