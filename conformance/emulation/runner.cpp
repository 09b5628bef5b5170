// Runs one launch in a process of its own, under AddressSanitizer: runner LIBRARY JOB RESULT
//
// A job is 64-bit words: the kernel's number, groups and lanes (3 each), bytes of shared memory,
// the order, the number of slots; then of each slot whether it is a buffer, and its length in
// bytes; then the bytes of all slots. The result is the bytes of all slots again.
#include "emulator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

const int MOST_SLOTS = 256;

struct Slot {
    int64_t is_buffer, length;
    void *data, *argument;
};

bool fail(const char *what) {
    fprintf(stderr, "runner: %s\n", what);
    return false;
}

bool read_slots(FILE *job, Slot *slots, int64_t count) {
    for (int64_t at = 0; at < count; at++)
        if (fread(&slots[at], sizeof(int64_t), 2, job) != 2) return fail("the job is cut off");
    for (int64_t at = 0; at < count; at++) {
        Slot &slot = slots[at];
        slot.data = malloc((size_t)slot.length);  // exactly as long: its end is guarded
        if (fread(slot.data, 1, (size_t)slot.length, job) != (size_t)slot.length)
            return fail("the job is cut off");
        slot.argument = slot.is_buffer ? (void *)&slot.data : slot.data;
    }
    return true;
}

bool write_slots(const char *path, const Slot *slots, int64_t count) {
    FILE *result = fopen(path, "wb");
    if (!result) return fail("the result cannot be written");
    for (int64_t at = 0; at < count; at++)
        fwrite(slots[at].data, 1, (size_t)slots[at].length, result);
    return fclose(result) == 0 || fail("the result cannot be written");
}

bool run(const EmulationSource *source, FILE *job, const char *path) {
    int64_t words[10];
    static Slot slots[MOST_SLOTS];
    void *arguments[MOST_SLOTS];
    if (fread(words, sizeof(int64_t), 10, job) != 10 || words[9] > MOST_SLOTS)
        return fail("no such job");
    if (!read_slots(job, slots, words[9])) return false;
    for (int64_t at = 0; at < words[9]; at++) arguments[at] = slots[at].argument;
    EmulationLaunch launch = {source, source->kernels + words[0], arguments, {}, {},
                              (unsigned)words[7], (long)words[8]};
    for (int at = 0; at < 3; at++) {
        launch.groups[at] = (unsigned)words[1 + at];
        launch.lanes[at] = (unsigned)words[4 + at];
    }
    char message[2048];
    if (emulation_run(&launch, message, sizeof message)) {
        fprintf(stderr, "emulation: %s\n", message);
        return false;
    }
    return write_slots(path, slots, words[9]);
}

}  // namespace

int main(int count, char **words) {
    if (count != 4) return fail("runner LIBRARY JOB RESULT"), 2;
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(dlerror()), 2;
    FILE *job = fopen(words[2], "rb");
    const EmulationSource *source = (const EmulationSource *)dlsym(library, "emulation_source");
    if (!job || !source) return fail("no job or no source"), 2;
    return run(source, job, words[3]) ? 0 : 1;
}
