// A mock of the CUDA driver: what its handles point to. Devices are this machine's memory, and
// their kernels are run by the emulator.
//
// Work on a stream is only noted. It runs when somebody waits for it, so that a program that
// forgets to wait reads memory that nobody has written.
#pragma once
#include "emulator.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define CU_API extern "C" __attribute__((visibility("default")))

typedef unsigned long long CUdeviceptr;
typedef int CUdevice;

enum CUresult {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, PEER_ACCESS_UNSUPPORTED = 217, NO_BINARY = 209,
    INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705,
    HOST_MEMORY_ALREADY_REGISTERED = 712, HOST_MEMORY_NOT_REGISTERED = 713, LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907, GRAPH_UPDATE_FAILURE = 910,
};

namespace mock {

// Handles that live; a handle that was destroyed is told from one that was not.
struct Object {
    virtual ~Object();
    Object();
};
bool alive(const void *object);
template <class T> inline T *valid(void *handle) {
    return alive(handle) ? dynamic_cast<T *>((Object *)handle) : nullptr;
}

struct Stream;
struct Graph;
struct Node;
struct Context;

enum Kind { DEVICE, PINNED, REGISTERED, MANAGED };
struct Pool : Object {
    int device;
    uint64_t threshold = 0, used = 0, high = 0;
};
struct Allocation {
    unsigned char *block;  // what was allocated: a guard, the memory, a guard
    size_t size;
    int device;
    Kind kind;
    Pool *pool;
    bool freed;  // a free is on its way in a stream
};

struct Device {
    size_t total, used = 0;
    Context *primary = nullptr;
    int retained = 0;
    unsigned flags = 0;
    Pool default_pool;
    Pool *pool = &default_pool;
};

struct Context : Object {
    int device;
    unsigned flags = 0;
    CUresult fault = SUCCESS;  // stays: nothing works in a context that had one
    std::vector<Stream *> streams;
    std::set<int> peers;
    Stream *null_stream;
};

struct Module : Object {
    void *library = nullptr;
    const EmulationSource *source = nullptr;
    std::vector<struct Function *> functions;
};
struct Function : Object {
    Module *module;
    const EmulationKernel *kernel;
    unsigned most_dynamic = 48 << 10;
};

struct Launch {
    Function *function = nullptr;
    unsigned groups[3], lanes[3], shared_bytes;
    std::vector<unsigned char> values;  // all parameters, each where its alignment puts it
};
struct Copy {
    CUdeviceptr to, from;
    size_t size;
    std::shared_ptr<std::vector<unsigned char>> kept;  // of memory that may change meanwhile
};
struct Fill {
    CUdeviceptr to;
    unsigned value, width;
    size_t count;
};

// One piece of work, on a stream or as a node of a graph.
struct Task {
    enum { NOTHING, LAUNCH, COPY, FILL, CALL } kind = NOTHING;
    Launch launch;
    Copy copy;
    Fill fill;
    std::function<CUresult()> call;
};

struct Operation {
    uint64_t number;
    Task task;
};
struct Stream : Object {
    Context *context;
    unsigned flags = 0;
    int priority = 0;
    std::deque<Operation> queue;
    uint64_t last = 0;          // the number of what was put last
    Graph *capture = nullptr;   // what it records into, instead of working
    bool origin = false, broken = false;
    int capture_mode = 0;
    std::vector<Node *> tail;   // what the next recorded node comes after
};
struct Event : Object {
    Context *context;
    unsigned flags = 0;
    Stream *stream = nullptr;
    uint64_t number = 0;
    bool recorded = false;
    double time = 0;
    Graph *capture = nullptr;
    std::vector<Node *> nodes;
};

struct Node : Object {
    Graph *graph;
    size_t number;
    Task task;
    std::set<size_t> after;
};
struct Graph : Object {
    std::vector<std::unique_ptr<Node>> nodes;
};
struct Executable : Object {
    Context *context;
    std::map<Node *, size_t> numbers;
    std::vector<std::set<size_t>> after;
    std::shared_ptr<std::vector<Task>> tasks;  // shared with launches that have not run yet
    std::set<size_t> idle;                     // nodes that are switched off
};

// The state of the driver, under one lock.
struct State {
    std::recursive_mutex lock;
    bool initialized = false, lazy = true;
    long order = -1;
    int capability = 80;
    uint64_t operations = 0;
    std::vector<std::unique_ptr<Device>> devices;
    std::map<CUdeviceptr, Allocation> memory;
    std::map<std::string, uint64_t> calls;
    std::map<std::string, std::pair<int, int>> failures;  // of a function: calls to let pass, error
    std::string message, folder;
    std::map<uint64_t, std::string> images;
};
State &state();
extern thread_local std::vector<Context *> current;  // of this thread, the last one counts
Context *here();

void say(const char *format, ...);
CUresult entered(const char *name, bool needs_context);
bool capturing();

// Enters a function of the driver: the lock, the count, errors on demand.
#define ENTER_ANYWHERE(needs_context) \
    std::lock_guard<std::recursive_mutex> locked(mock::state().lock); \
    if (CUresult error = mock::entered(__func__, needs_context)) return error;
#define ENTER ENTER_ANYWHERE(true)
#define NEED(condition, error) do { if (!(condition)) return error; } while (0)
#define TRY(call) do { if (CUresult error = (call)) return error; } while (0)

// Memory.
const Allocation *find(CUdeviceptr address, size_t size, CUdeviceptr *base = nullptr);
CUresult allocate(int device, size_t size, Kind kind, Pool *pool, CUdeviceptr *made);
CUresult release(CUdeviceptr address);
bool intact(CUdeviceptr base, const Allocation &allocation);
CUresult reachable(Context *context, CUdeviceptr address, const char *what);

// Streams.
Stream *stream_of(void *handle);
CUresult put(Stream *stream, Task task);
CUresult run(Stream *stream, uint64_t until);
CUresult run_all(Context *context);
CUresult execute(Context *context, const Task &task);
CUresult pack(void *function, const unsigned *sizes, void **parameters, void **extra, Launch *into);
Node *add(Graph *graph, Task task, const std::vector<Node *> &after);

}  // namespace mock
