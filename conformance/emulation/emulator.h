// What a kernel sees of the emulator: the lane it runs as, barriers, and meetings of a warp.
//
// A kernel is compiled as C++ and run lane by lane. Every lane of a work-group is a fiber: it runs
// until it waits at a barrier or for other lanes of its warp, then the next lane runs.
#pragma once
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMULATION_HIDDEN __attribute__((visibility("hidden")))
#define EMULATION_VISIBLE __attribute__((visibility("default")))
// Static shared memory lies in a section of its own: its bounds are known, so it can be poisoned.
#define EMULATION_SHARED static __attribute__((section("emulation_shared")))

extern "C" {

struct EmulationIndex {
    unsigned x, y, z;
};

// Of the lane that runs now. The emulator writes them; kernels only read.
extern const EmulationIndex emulation_lane, emulation_group, emulation_lanes, emulation_groups;
extern unsigned emulation_epoch;           // another number in every group
extern unsigned char *emulation_dynamic;  // dynamic shared memory, exactly as long as was asked for

// The number of the lane in its group, and of lanes in the group.
unsigned emulation_number(void);
unsigned emulation_count(void);

// Waits for all lanes of the group. Returns how many of them came with `predicate`.
unsigned emulation_barrier(const char *what, int line, unsigned predicate);

// Waits for the lanes of the own warp that `mask` names. The last one to come calls `complete` with
// what each lane brought (null for lanes that do not exist or are not named).
typedef void (*EmulationComplete)(void **brought, unsigned present);
void emulation_meet(const char *what, int line, unsigned mask, void *brought,
                    EmulationComplete complete);

// Stops the launch with a message that names the line.
[[noreturn]] void emulation_fail(int line, const char *message);

// What a compiled source offers to those who launch it.
struct EmulationParameter {
    unsigned size, alignment;
    char kind;  // p: pointer or reference, i: signed, u: unsigned, f: float, s: anything else
    int slot;   // which argument it takes; -1: it is a position in the grid; -2: shared memory
};
struct EmulationKernel {
    const char *name;
    void (*call)(void **arguments);
    int count;
    const EmulationParameter *parameters;
};
struct EmulationSource {
    const EmulationKernel *kernels;
    int count;
    unsigned char *shared_begin, *shared_end;
};
struct EmulationLaunch {
    const EmulationSource *source;
    const EmulationKernel *kernel;
    void **arguments;  // of each slot, where its value is; for a pointer, where the pointer is
    unsigned groups[3], lanes[3], shared_bytes;
    long order;  // -1: forward, -2: reversed, else a seed for shuffling
};

// 0 if it ran to its end; else 1, and the message says what went wrong.
int emulation_run(const EmulationLaunch *launch, char *message, size_t room);
}

namespace emulation {

const unsigned WARP = 32;

template <class T> struct Kind { static const char value = 's'; };
template <class T> struct Kind<T *> { static const char value = 'p'; };
template <class T> struct Kind<T &> { static const char value = 'p'; };
#define EMULATION_KIND(type, letter) \
    template <> struct Kind<type> { static const char value = letter; }; \
    template <> struct Kind<const type> { static const char value = letter; };
EMULATION_KIND(bool, 'u') EMULATION_KIND(char, 'i') EMULATION_KIND(signed char, 'i')
EMULATION_KIND(unsigned char, 'u') EMULATION_KIND(short, 'i') EMULATION_KIND(unsigned short, 'u')
EMULATION_KIND(int, 'i') EMULATION_KIND(unsigned, 'u') EMULATION_KIND(long, 'i')
EMULATION_KIND(unsigned long, 'u') EMULATION_KIND(long long, 'i')
EMULATION_KIND(unsigned long long, 'u') EMULATION_KIND(float, 'f') EMULATION_KIND(double, 'f')

// The numbers 0 .. N-1 as a pack.
template <int... I> struct Numbers {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Numbers<I...> type; };

template <class T> struct Plain { typedef T type; };
template <class T> struct Plain<const T> { typedef T type; };

template <class To, class From> inline To bits(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// Of each lane what another lane brought. `source` is a lane number, or -1 for none: poison.
template <class T> struct Exchange {
    T value, result;
    int source;
    static void complete(void **brought, unsigned) {
        for (unsigned lane = 0; lane < WARP; lane++) {
            Exchange *own = (Exchange *)brought[lane];
            if (!own) continue;
            Exchange *other = own->source < 0 ? 0 : (Exchange *)brought[own->source];
            if (other) own->result = other->value;
            else memset((void *)&own->result, 0xff, sizeof(T));
        }
    }
};
template <class T>
inline T exchange(const char *what, int line, unsigned mask, T value, int source) {
    Exchange<T> mine = {value, value, source};
    emulation_meet(what, line, mask, &mine, Exchange<T>::complete);
    return mine.result;
}

// All lanes' values combined by `Combine`, in pairs as the hardware does it.
template <class T, class Combine> struct Reduction {
    T value;
    static void complete(void **brought, unsigned) {
        T all[WARP];
        unsigned count = 0;
        for (unsigned lane = 0; lane < WARP; lane++)
            if (brought[lane]) all[count++] = ((Reduction *)brought[lane])->value;
        for (unsigned left = count; left > 1; left = (left + 1) / 2)
            for (unsigned at = 0; at < left / 2; at++)
                all[at] = Combine::of(all[at], all[at + (left + 1) / 2]);
        for (unsigned lane = 0; lane < WARP; lane++)
            if (brought[lane]) ((Reduction *)brought[lane])->value = all[0];
    }
};
template <class Combine, class T>
inline T reduce(const char *what, int line, unsigned mask, T value) {
    Reduction<T, Combine> mine = {value};
    emulation_meet(what, line, mask, &mine, Reduction<T, Combine>::complete);
    return mine.value;
}
struct Add { template <class T> static T of(T a, T b) { return T(a + b); } };
struct Multiply { template <class T> static T of(T a, T b) { return T(a * b); } };
struct Least { template <class T> static T of(T a, T b) { return b < a ? b : a; } };
struct Greatest { template <class T> static T of(T a, T b) { return a < b ? b : a; } };
struct And { template <class T> static T of(T a, T b) { return T(a & b); } };
struct Or { template <class T> static T of(T a, T b) { return T(a | b); } };
struct Xor { template <class T> static T of(T a, T b) { return T(a ^ b); } };

inline void no_result(void **, unsigned) {}

}  // namespace emulation
