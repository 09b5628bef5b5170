"""A solution of the lesson schedule: python -m conformance.learn solution schedule"""
# mypy: ignore-errors


def moved(document):
    return sum(touch["stop"] - touch["start"] for kernel in document["kernels"]
               for touch in kernel["reads"] + kernel["writes"])


def peak(document):
    lives = {}                            # temporary -> its first and its last position
    for position, number in enumerate(document["order"]):
        kernel = document["kernels"][number]
        for touch in kernel["reads"] + kernel["writes"]:
            first, _ = lives.get(touch["buffer"], (position, position))
            lives[touch["buffer"]] = first, position
    return max((sum(buffer["bytes"] for buffer in document["buffers"]
                    if buffer["kind"] == "temporary" and buffer["id"] in lives
                    and lives[buffer["id"]][0] <= position <= lives[buffer["id"]][1])
                for position in range(len(document["order"]))), default=0)


def early(document):
    found, written = [], []               # written: the touches so far
    full = {buffer["id"] for buffer in document["buffers"] if buffer["kind"] in ("input", "state")}
    for number in document["order"]:
        kernel = document["kernels"][number]
        for touch in kernel["reads"]:
            buffer, version = touch["buffer"], touch["version"]
            mine = [each for each in written if each["buffer"] == buffer]
            there = version == 0 and buffer in full or any(
                each["version"] == version for each in mine)
            gone = any(each["version"] > version and each["start"] < touch["stop"]
                       and touch["start"] < each["stop"] for each in mine)
            if (gone or not there) and (number, buffer) not in found:
                found.append((number, buffer))
        written += kernel["writes"]
    return found
