// The mock driver: streams, events and launches. Work is noted, and runs when it is waited for.
#include "driver.h"

#include <algorithm>
#include <time.h>

using namespace mock;

namespace mock {

Context *here() { return current.back(); }

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

// 0, 1 and 2 are names of the stream that every context has.
Stream *stream_of(void *handle) {
    return (uintptr_t)handle <= 2 ? here()->null_stream : valid<Stream>(handle);
}

bool capturing() {
    for (Stream *stream : here()->streams)
        if (stream->capture && stream->capture_mode != 2) {
            stream->broken = true;
            say("a call that waits or allocates, while a stream is capturing");
            return true;
        }
    return false;
}

CUresult put(Stream *stream, Task task) {
    if (stream->capture) {
        NEED(!stream->broken, CAPTURE_INVALIDATED);
        stream->tail = {add(stream->capture, std::move(task), stream->tail)};
        return SUCCESS;
    }
    stream->last = ++state().operations;
    stream->queue.push_back({stream->last, std::move(task)});
    return state().lazy ? SUCCESS : run(stream, stream->last);
}

// The null stream waits for the others and they for it, except for those that said they would not.
static CUresult run_before(Stream *stream, uint64_t number) {
    Stream *null_stream = stream->context->null_stream;
    if (stream != null_stream)
        return stream->flags & 1 ? SUCCESS : run(null_stream, number - 1);
    for (Stream *other : std::vector<Stream *>(stream->context->streams))
        if (other != stream && !(other->flags & 1)) TRY(run(other, number - 1));
    return SUCCESS;
}

CUresult run(Stream *stream, uint64_t until) {
    while (!stream->queue.empty() && stream->queue.front().number <= until) {
        Operation operation = std::move(stream->queue.front());
        stream->queue.pop_front();
        TRY(run_before(stream, operation.number));
        CUresult result = execute(stream->context, operation.task);
        if (result != SUCCESS) return stream->context->fault = result;
    }
    return stream->context->fault;
}

CUresult run_all(Context *context) {
    std::vector<Stream *> streams = context->streams;
    if (state().order == -2) std::reverse(streams.begin(), streams.end());
    for (Stream *stream : streams) TRY(run(stream, ~0ull));
    return SUCCESS;
}

// Launches

static const char *refusal(const Function *function, const unsigned *sizes) {
    const EmulationSource *source = function->module->source;
    uint64_t lanes = (uint64_t)sizes[3] * sizes[4] * sizes[5];
    if (!sizes[0] || !sizes[1] || !sizes[2] || !lanes) return "an empty grid or group";
    if (sizes[0] > 0x7fffffff || sizes[1] > 65535 || sizes[2] > 65535) return "too many groups";
    if (lanes > 1024 || sizes[5] > 64) return "more than 1024 lanes, or 64 in z";
    if (sizes[6] > function->most_dynamic)
        return "more dynamic shared memory than the function allows "
               "(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)";
    size_t fixed = (size_t)(source->shared_end - source->shared_begin);
    return function->module->source->count == 1 && fixed > 48 << 10
               ? "more than 48 KiB of static shared memory" : nullptr;
}

static CUresult take_values(const Function *function, void **parameters, void **extra,
                            std::vector<unsigned char> *values) {
    const char *packed = nullptr;
    for (void **each = extra; each && *each; each += 2)
        if (*each == (void *)1) packed = (const char *)each[1];  // the other key is its size
    NEED(!function->kernel->count || parameters || packed, INVALID_VALUE);
    for (int at = 0; at < function->kernel->count; at++) {
        const EmulationParameter &parameter = function->kernel->parameters[at];
        size_t size = values->size(), aligned = size + parameter.alignment - 1;
        aligned -= aligned % parameter.alignment;
        values->resize(aligned + parameter.size);
        memcpy(values->data() + aligned, packed ? packed + aligned : parameters[at],
               parameter.size);
    }
    return SUCCESS;
}

CUresult pack(void *handle, const unsigned *sizes, void **parameters, void **extra, Launch *into) {
    Function *function = valid<Function>(handle);
    NEED(function, INVALID_HANDLE);
    if (const char *why = refusal(function, sizes)) {
        say("launch of %s refused: %s", function->kernel->name, why);
        return INVALID_VALUE;
    }
    into->function = function;
    memcpy(into->groups, sizes, sizeof into->groups);
    memcpy(into->lanes, sizes + 3, sizeof into->lanes);
    into->shared_bytes = sizes[6];
    into->values.clear();
    return take_values(function, parameters, extra, &into->values);
}

// Where each value lies. Pointers have to point to memory that the device reaches.
static CUresult find_values(Context *context, const Launch &launch, std::vector<void *> *values,
                            std::vector<CUdeviceptr> *pointers) {
    const EmulationKernel *kernel = launch.function->kernel;
    size_t at = 0;
    for (int number = 0; number < kernel->count; number++) {
        const EmulationParameter &parameter = kernel->parameters[number];
        at += (parameter.alignment - at % parameter.alignment) % parameter.alignment;
        values->push_back((void *)(launch.values.data() + at));
        at += parameter.size;
        CUdeviceptr pointer = 0;
        if (parameter.kind == 'p') memcpy(&pointer, values->back(), sizeof pointer);
        if (!pointer) continue;
        std::string what = "kernel " + std::string(kernel->name) + ": argument " +
                           std::to_string(number);
        TRY(reachable(context, pointer, what.c_str()));
        pointers->push_back(pointer);
    }
    return SUCCESS;
}

static CUresult execute_launch(Context *context, const Launch &launch) {
    std::vector<void *> values;
    std::vector<CUdeviceptr> pointers;
    TRY(find_values(context, launch, &values, &pointers));
    EmulationLaunch wanted = {launch.function->module->source, launch.function->kernel,
                              values.data(), {}, {}, launch.shared_bytes, state().order};
    memcpy(wanted.groups, launch.groups, sizeof wanted.groups);
    memcpy(wanted.lanes, launch.lanes, sizeof wanted.lanes);
    char message[2048];
    if (emulation_run(&wanted, message, sizeof message)) {
        say("%s", message);
        return LAUNCH_FAILED;
    }
    for (CUdeviceptr pointer : pointers) {
        CUdeviceptr base = 0;
        const Allocation *memory = find(pointer, 0, &base);
        if (!memory || intact(base, *memory)) continue;
        say("kernel %s wrote beyond memory of %zu bytes", wanted.kernel->name, memory->size);
        return ILLEGAL_ADDRESS;
    }
    return SUCCESS;
}

static CUresult execute_fill(const Fill &fill) {
    NEED(find(fill.to, fill.width * fill.count), ILLEGAL_ADDRESS);
    for (size_t at = 0; at < fill.count; at++)
        memcpy((char *)fill.to + at * fill.width, &fill.value, fill.width);
    return SUCCESS;
}

CUresult execute(Context *context, const Task &task) {
    const Copy &copy = task.copy;
    switch (task.kind) {
        case Task::LAUNCH: return execute_launch(context, task.launch);
        case Task::FILL: return execute_fill(task.fill);
        case Task::CALL: return task.call();
        case Task::COPY:
            memmove((void *)copy.to, copy.kept ? copy.kept->data() : (void *)copy.from, copy.size);
            return SUCCESS;
        default: return SUCCESS;
    }
}

}  // namespace mock

static CUresult launch(void *function, const unsigned *sizes, void *handle, void **parameters,
                       void **extra) {
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    Task task;
    task.kind = Task::LAUNCH;
    TRY(pack(function, sizes, parameters, extra, &task.launch));
    return put(stream, std::move(task));
}

CU_API CUresult cuLaunchKernel(void *function, unsigned groups_x, unsigned groups_y,
                               unsigned groups_z, unsigned lanes_x, unsigned lanes_y,
                               unsigned lanes_z, unsigned shared_bytes, void *stream,
                               void **parameters, void **extra) {
    ENTER
    const unsigned sizes[] = {groups_x, groups_y, groups_z, lanes_x, lanes_y, lanes_z,
                              shared_bytes};
    return launch(function, sizes, stream, parameters, extra);
}
struct LaunchConfiguration {
    unsigned sizes[7];
    void *stream, *attributes;
    unsigned count;
};
CU_API CUresult cuLaunchKernelEx(const LaunchConfiguration *configuration, void *function,
                                 void **parameters, void **extra) {
    ENTER
    return launch(function, configuration->sizes, configuration->stream, parameters, extra);
}
CU_API CUresult cuLaunchHostFunc(void *handle, void (*call)(void *), void *data) {
    ENTER
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    Task task;
    task.kind = Task::CALL;
    task.call = [call, data] { return call(data), SUCCESS; };
    return put(stream, std::move(task));
}

// Streams

CU_API CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    ENTER
    *stream = new Stream;
    (*stream)->context = here();
    (*stream)->flags = flags;
    (*stream)->priority = priority;
    here()->streams.push_back(*stream);
    return SUCCESS;
}
CU_API CUresult cuStreamCreate(Stream **stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}
CU_API CUresult cuStreamDestroy_v2(void *handle) {
    ENTER
    Stream *stream = valid<Stream>(handle);
    NEED(stream && stream != stream->context->null_stream, INVALID_HANDLE);
    CUresult result = run(stream, ~0ull);
    auto &all = stream->context->streams;
    all.erase(std::remove(all.begin(), all.end(), stream), all.end());
    delete stream;
    return result;
}
static CUresult not_capturing(Stream *stream) {
    NEED(stream, INVALID_HANDLE);
    if (!stream->capture) return SUCCESS;
    stream->broken = true;
    return CAPTURE_UNSUPPORTED;
}
CU_API CUresult cuStreamSynchronize(void *handle) {
    ENTER
    TRY(not_capturing(stream_of(handle)));
    return run(stream_of(handle), ~0ull);
}
// Each question brings the work one step on, so that who asks again and again gets there.
CU_API CUresult cuStreamQuery(void *handle) {
    ENTER
    Stream *stream = stream_of(handle);
    TRY(not_capturing(stream));
    if (stream->queue.empty()) return SUCCESS;
    TRY(run(stream, stream->queue.front().number));
    return NOT_READY;
}
CU_API CUresult cuStreamGetCtx(void *handle, Context **context) {
    ENTER
    NEED(stream_of(handle), INVALID_HANDLE);
    return *context = stream_of(handle)->context, SUCCESS;
}
CU_API CUresult cuStreamGetFlags(void *handle, unsigned *flags) {
    ENTER
    NEED(stream_of(handle), INVALID_HANDLE);
    return *flags = stream_of(handle)->flags, SUCCESS;
}
CU_API CUresult cuStreamGetPriority(void *handle, int *priority) {
    ENTER
    NEED(stream_of(handle), INVALID_HANDLE);
    return *priority = stream_of(handle)->priority, SUCCESS;
}
CU_API CUresult cuCtxSynchronize() {
    ENTER
    NEED(!capturing(), CAPTURE_UNSUPPORTED);
    return run_all(here());
}

// Events

CU_API CUresult cuEventCreate(Event **event, unsigned flags) {
    ENTER
    *event = new Event;
    (*event)->context = here();
    (*event)->flags = flags;
    return SUCCESS;
}
CU_API CUresult cuEventDestroy_v2(void *handle) {
    ENTER
    Event *event = valid<Event>(handle);
    NEED(event, INVALID_HANDLE);
    if (event->stream && alive(event->stream)) TRY(run(event->stream, event->number));
    delete event;
    return SUCCESS;
}
CU_API CUresult cuEventRecord(void *handle, void *stream_handle) {
    ENTER
    Event *event = valid<Event>(handle);
    Stream *stream = stream_of(stream_handle);
    NEED(event && stream, INVALID_HANDLE);
    NEED(event->context == stream->context, INVALID_HANDLE);
    event->capture = stream->capture;
    event->nodes = stream->tail;
    if (stream->capture) return SUCCESS;
    event->recorded = true;
    event->stream = stream;
    Task task;
    task.kind = Task::CALL;
    task.call = [event] { return alive(event) ? (event->time = now(), SUCCESS) : SUCCESS; };
    event->number = state().operations + 1;
    return put(stream, std::move(task));
}
CU_API CUresult cuEventRecordWithFlags(void *event, void *stream, unsigned) {
    return cuEventRecord(event, stream);
}
static bool pending(const Event *event) {
    return event->recorded && alive(event->stream) && !event->stream->queue.empty() &&
           event->stream->queue.front().number <= event->number;
}
CU_API CUresult cuEventSynchronize(void *handle) {
    ENTER
    Event *event = valid<Event>(handle);
    NEED(event, INVALID_HANDLE);
    NEED(!event->capture, CAPTURED_EVENT);
    return pending(event) ? run(event->stream, event->number) : SUCCESS;
}
CU_API CUresult cuEventQuery(void *handle) {
    ENTER
    Event *event = valid<Event>(handle);
    NEED(event, INVALID_HANDLE);
    NEED(!event->capture, CAPTURED_EVENT);
    if (!pending(event)) return SUCCESS;
    TRY(run(event->stream, event->stream->queue.front().number));
    return NOT_READY;
}
CU_API CUresult cuEventElapsedTime_v2(float *milliseconds, void *first, void *last) {
    ENTER
    Event *from = valid<Event>(first), *to = valid<Event>(last);
    NEED(from && to && !(from->flags & 2) && !(to->flags & 2), INVALID_HANDLE);
    NEED(from->recorded && to->recorded, INVALID_HANDLE);
    NEED(!pending(from) && !pending(to), NOT_READY);
    return *milliseconds = (float)(to->time - from->time), SUCCESS;
}
CU_API CUresult cuEventElapsedTime(float *milliseconds, void *first, void *last) {
    return cuEventElapsedTime_v2(milliseconds, first, last);
}

// A wait inside a capture is an edge of the graph, and may bring another stream into the capture.
static CUresult wait_captured(Stream *stream, Event *event) {
    NEED(event->capture, CAPTURE_ISOLATION);
    NEED(!stream->capture || stream->capture == event->capture, CAPTURE_ISOLATION);
    if (!stream->capture) stream->tail.clear();
    stream->capture = event->capture;
    for (Node *node : event->nodes)
        if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
            stream->tail.push_back(node);
    return SUCCESS;
}
CU_API CUresult cuStreamWaitEvent(void *handle, void *event_handle, unsigned) {
    ENTER
    Stream *stream = stream_of(handle);
    Event *event = valid<Event>(event_handle);
    NEED(stream && event, INVALID_HANDLE);
    if (stream->capture || event->capture) return wait_captured(stream, event);
    if (!event->recorded) return SUCCESS;
    Task task;
    task.kind = Task::CALL;
    Stream *other = event->stream;
    uint64_t number = event->number;
    task.call = [other, number] { return alive(other) ? run(other, number) : SUCCESS; };
    return put(stream, std::move(task));
}
