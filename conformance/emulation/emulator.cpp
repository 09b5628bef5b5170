// Runs the work-groups of a launch one after the other, and the lanes of a group as fibers.
#include "emulator.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fibers.h"

// Written here alone; to kernels they are constants.
extern "C" {
EmulationIndex written_lane asm("emulation_lane"), written_group asm("emulation_group"),
    written_lanes asm("emulation_lanes"), written_groups asm("emulation_groups");
unsigned char *emulation_dynamic;
unsigned emulation_epoch;
}

namespace {

const unsigned MOST_LANES = 1024;
#if defined(__SANITIZE_ADDRESS__)
const size_t STACK = 512 << 10;
#else
const size_t STACK = 128 << 10;
#endif

enum State { READY, AT_BARRIER, MEETING, FINISHED };

struct Lane {
    fibers::Fiber fiber;
    State state;
    EmulationIndex place;
    const char *what;  // the barrier or the meeting it waits at
    int line;
    unsigned mask, predicate;
    void *brought;
};

struct Random {
    uint64_t state;
    unsigned below(unsigned end) {  // splitmix64
        uint64_t mixed = (state += 0x9e3779b97f4a7c15);
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return (unsigned)((mixed ^ (mixed >> 31)) % end);
    }
};

pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
fibers::Fiber scheduler;
Lane lanes[MOST_LANES];
unsigned count, current, predicates;
const EmulationLaunch *launch;
char *message;
size_t room;
bool failed, in_lane;
pthread_t launching;

void say(const char *format, ...) {
    size_t used = strlen(message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message + used, room - used, format, arguments);
    va_end(arguments);
}

void begin_message() {
    failed = true;
    message[0] = 0;
    say("kernel %s, group (%u, %u, %u): ", launch->kernel->name, written_group.x, written_group.y,
        written_group.z);
}

void stop(bool forever) { fibers::switch_to(lanes[current].fiber, scheduler, forever); }

void lane_entry() {
    fibers::arrived(scheduler);
    launch->kernel->call(launch->arguments);
    lanes[current].state = FINISHED;
    stop(true);
}

void go_on(unsigned lane) {
    current = lane;
    written_lane = lanes[lane].place;
    in_lane = true;
    fibers::switch_to(scheduler, lanes[lane].fiber);
    in_lane = false;
}

#if !defined(__SANITIZE_ADDRESS__)
// A lane that touches memory that is not there or not aligned, or divides by zero, ends the launch and not the
// process. The handler has a stack of its own: that of the lane may be what is full.
const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
const int FAULT_COUNT = 4;

struct Faults {
    struct sigaction before[FAULT_COUNT];
    stack_t stack_before;
    char stack[64 << 10];
} faults;

void on_fault(int number, siginfo_t *about, void *) {
    if (!in_lane || !pthread_equal(pthread_self(), launching)) {
        for (int at = 0; at < FAULT_COUNT; at++) sigaction(FAULTS[at], &faults.before[at], 0);
        return;  // not ours: it happens again, and who was there before sees it
    }
    begin_message();
    if (number == SIGFPE) say("lane %u divides a whole number by zero", current);
    else if (number == SIGILL) say("lane %u accesses memory that is not aligned", current);
    else
        say("lane %u touches memory that is not there (%p); compile with `sanitize` for the line",
            current, about->si_addr);
    lanes[current].state = FINISHED;
    stop(true);
}

void watch_faults() {
    stack_t own = {};
    own.ss_sp = faults.stack;
    own.ss_size = sizeof faults.stack;
    sigaltstack(&own, &faults.stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int at = 0; at < FAULT_COUNT; at++) sigaction(FAULTS[at], &action, &faults.before[at]);
}

void forget_faults() {
    for (int at = 0; at < FAULT_COUNT; at++) sigaction(FAULTS[at], &faults.before[at], 0);
    sigaltstack(&faults.stack_before, 0);
}
#else
void watch_faults() {}
void forget_faults() {}
#endif

// The order of `size` things on this pass: forward, reversed, or as the dice fall.
void arrange(unsigned *order, unsigned size, Random &random) {
    for (unsigned at = 0; at < size; at++)
        order[at] = launch->order == -2 ? size - 1 - at : at;
    if (launch->order < 0) return;
    for (unsigned at = size; at > 1; at--) {
        unsigned other = random.below(at), kept = order[at - 1];
        order[at - 1] = order[other];
        order[other] = kept;
    }
}

bool same_place(const Lane &one, const Lane &other) {
    return one.state == other.state &&
           (one.state == FINISHED ||
            (one.line == other.line &&
             (one.what == other.what || !strcmp(one.what, other.what))));
}

// Who waits where: "lanes 0-31 wait in __syncthreads at line 7; lanes 32-63 have finished".
void describe_lanes() {
    for (unsigned first = 0, last; first < count; first = last + 1) {
        for (last = first; last + 1 < count && same_place(lanes[first], lanes[last + 1]);) last++;
        say(first ? "; " : "");
        if (first == last) say("lane %u ", first);
        else say("lanes %u-%u ", first, last);
        bool one = first == last;
        if (lanes[first].state == FINISHED) say(one ? "has finished" : "have finished");
        else
            say("%s in %s at line %d", one ? "waits" : "wait", lanes[first].what,
                lanes[first].line);
    }
}

// Lets all lanes go on from the barrier where they are; false if they are not at the same one.
bool release_barrier() {
    for (unsigned lane = 0; lane < count; lane++)
        if (lanes[lane].state != AT_BARRIER || !same_place(lanes[0], lanes[lane])) {
            begin_message();
            say(lanes[lane].state == MEETING || lanes[0].state == MEETING
                    ? "lanes of a warp wait for others that do not come: "
                    : "divergent barrier: ");
            describe_lanes();
            return false;
        }
    predicates = 0;
    for (unsigned lane = 0; lane < count; lane++) {
        predicates += lanes[lane].predicate != 0;
        lanes[lane].state = READY;
    }
    return true;
}

#if defined(__SANITIZE_ADDRESS__)
// Over the red zones too, so without asking AddressSanitizer.
__attribute__((no_sanitize_address)) void poison(unsigned char *from, unsigned char *to) {
    for (volatile unsigned char *at = from; at < to; at++) *at = 0xff;
}
#else
void poison(unsigned char *from, unsigned char *to) {
    if (to > from) memset(from, 0xff, to - from);
}
#endif

// Shared memory starts as bytes of 0xff: NaN in every floating type, -1 in every signed one.
void start_group(unsigned number) {
    emulation_epoch++;
    poison(launch->source->shared_begin, launch->source->shared_end);
    poison(emulation_dynamic, emulation_dynamic + launch->shared_bytes);
    written_group.x = number % written_groups.x;
    written_group.y = number / written_groups.x % written_groups.y;
    written_group.z = number / written_groups.x / written_groups.y;
    for (unsigned lane = 0; lane < count; lane++) {
        lanes[lane].state = READY;
        fibers::begin(lanes[lane].fiber, lane_entry, lane);
    }
}

bool run_group(unsigned number, Random &random) {
    start_group(number);
    unsigned order[MOST_LANES];
    for (;;) {
        arrange(order, count, random);
        unsigned moved = 0, finished = 0;
        for (unsigned at = 0; at < count && !failed; at++)
            if (lanes[order[at]].state == READY) {
                go_on(order[at]);
                moved++;
            }
        for (unsigned lane = 0; lane < count; lane++) finished += lanes[lane].state == FINISHED;
        if (failed) return false;
        if (finished == count) return true;
        if (!moved && !release_barrier()) return false;
    }
}

bool refuse(const char *why) {
    snprintf(message, room, "kernel %s: %s", launch->kernel->name, why);
    return false;
}

bool prepare() {
    const unsigned *size = launch->lanes, *groups = launch->groups;
    uint64_t all = (uint64_t)size[0] * size[1] * size[2];
    if (!all || all > MOST_LANES) return refuse("a group has 1 to 1024 lanes");
    if (!groups[0] || !groups[1] || !groups[2]) return refuse("a grid has at least one group");
    count = (unsigned)all;
    written_lanes = {size[0], size[1], size[2]};
    written_groups = {groups[0], groups[1], groups[2]};
    for (unsigned lane = 0; lane < count; lane++) {
        lanes[lane].place = {lane % size[0], lane / size[0] % size[1], lane / size[0] / size[1]};
        if (!lanes[lane].fiber.stack && !fibers::allocate(lanes[lane].fiber, STACK))
            return refuse("no memory for the stacks of the lanes");
    }
    void *dynamic = 0;
    if (posix_memalign(&dynamic, 128, launch->shared_bytes)) return refuse("no memory");
    emulation_dynamic = (unsigned char *)dynamic;
    return true;
}

bool run_groups() {
    unsigned all = written_groups.x * written_groups.y * written_groups.z;
    Random random = {(uint64_t)launch->order};
    unsigned *order = (unsigned *)malloc(all * sizeof *order);
    if (!order) return refuse("no memory");
    arrange(order, all, random);
    bool good = true;
    for (unsigned at = 0; at < all && good; at++) good = run_group(order[at], random);
    free(order);
    return good;
}

// True if all lanes that have to come to this meeting are there; then it takes place.
bool hold_meeting(EmulationComplete complete) {
    const Lane &mine = lanes[current];
    unsigned first = current / emulation::WARP * emulation::WARP, present = 0;
    void *brought[emulation::WARP] = {};
    for (unsigned at = 0; at < emulation::WARP && first + at < count; at++) {
        const Lane &other = lanes[first + at];
        if (!(mine.mask >> at & 1)) continue;
        if (!same_place(mine, other) || other.mask != mine.mask) return false;
        present |= 1u << at;
        brought[at] = other.brought;
    }
    complete(brought, present);
    for (unsigned at = 0; at < emulation::WARP; at++)
        if (present >> at & 1) lanes[first + at].state = READY;
    return true;
}

}  // namespace

extern "C" {

unsigned emulation_number(void) { return current; }
unsigned emulation_count(void) { return count; }

unsigned emulation_barrier(const char *what, int line, unsigned predicate) {
    Lane &mine = lanes[current];
    mine.state = AT_BARRIER;
    mine.what = what;
    mine.line = line;
    mine.predicate = predicate;
    stop(false);
    return predicates;
}

void emulation_meet(const char *what, int line, unsigned mask, void *brought,
                    EmulationComplete complete) {
    Lane &mine = lanes[current];
    if (!(mask >> current % emulation::WARP & 1))
        emulation_fail(line, "a lane calls with a mask that does not name it");
    mine.state = MEETING;
    mine.what = what;
    mine.line = line;
    mine.mask = mask;
    mine.brought = brought;
    if (!hold_meeting(complete)) stop(false);
}

void emulation_fail(int line, const char *text) {
    begin_message();
    say("lane %u at line %d: %s", current, line, text);
    lanes[current].state = FINISHED;
    stop(true);
    abort();  // nobody goes on with a lane that has failed
}

int emulation_run(const EmulationLaunch *wanted, char *text, size_t size) {
    pthread_mutex_lock(&one_at_a_time);
    launch = wanted;
    message = text;
    room = size;
    failed = false;
    message[0] = 0;
    emulation_dynamic = 0;
    launching = pthread_self();
    watch_faults();
    bool good = prepare() && run_groups();
    forget_faults();
    free(emulation_dynamic);
    pthread_mutex_unlock(&one_at_a_time);
    return good ? 0 : 1;
}

}  // extern "C"
