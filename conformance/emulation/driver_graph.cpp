// The mock driver: graphs, by capture or by hand.
#include "driver.h"

#include <algorithm>

using namespace mock;

namespace mock {

Node *add(Graph *graph, Task task, const std::vector<Node *> &after) {
    Node *node = new Node;
    node->graph = graph;
    node->number = graph->nodes.size();
    node->task = std::move(task);
    for (Node *each : after) node->after.insert(each->number);
    graph->nodes.emplace_back(node);
    return node;
}

}  // namespace mock

namespace {

struct KernelParameters {
    void *function;
    unsigned sizes[7];
    void **parameters, **extra;
    void *kernel, *context;
};
struct CopyParameters {
    size_t from_x, from_y, from_z, from_level;
    int from_kind;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array, *reserved;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_level;
    int to_kind;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array, *reserved_too;
    size_t to_pitch, to_height;
    size_t width, height, depth;
};
struct FillParameters {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, width;
    size_t count, height;
};

CUresult launch_task(const KernelParameters *from, Task *into) {
    NEED(from, INVALID_VALUE);
    into->kind = Task::LAUNCH;
    void *function = from->function ? from->function : from->kernel;
    return pack(function, from->sizes, from->parameters, from->extra, &into->launch);
}

// Copies of one row: from a place to a place.
CUresult copy_task(const CopyParameters *from, Task *into) {
    NEED(from, INVALID_VALUE);
    NEED(from->height == 1 && from->depth == 1 && from->from_kind != 3 && from->to_kind != 3,
         NOT_SUPPORTED);
    CUdeviceptr source = from->from_kind == 1 ? (CUdeviceptr)from->from_host : from->from_device;
    CUdeviceptr target = from->to_kind == 1 ? (CUdeviceptr)from->to_host : from->to_device;
    into->kind = Task::COPY;
    into->copy = {target + from->to_x, source + from->from_x, from->width, nullptr};
    return SUCCESS;
}

CUresult fill_task(const FillParameters *from, Task *into) {
    NEED(from && (from->width == 1 || from->width == 2 || from->width == 4), INVALID_VALUE);
    NEED(from->height == 1, NOT_SUPPORTED);
    into->kind = Task::FILL;
    into->fill = {from->to, from->value, from->width, from->count};
    return SUCCESS;
}

CUresult add_node(Node **made, void *handle, void *const *after, size_t count, Task task) {
    Graph *graph = valid<Graph>(handle);
    NEED(graph, INVALID_VALUE);
    std::vector<Node *> nodes;
    for (size_t at = 0; at < count; at++) {
        Node *node = valid<Node>(after[at]);
        NEED(node && node->graph == graph, INVALID_VALUE);
        nodes.push_back(node);
    }
    return *made = add(graph, std::move(task), nodes), SUCCESS;
}

// An order in which every task comes after those it depends on: the first that can go, or the last,
// so that a dependency that is missing shows.
std::vector<size_t> arrange(const std::vector<std::set<size_t>> &after) {
    std::vector<size_t> left(after.size()), order;
    std::vector<std::vector<size_t>> before(after.size());
    std::set<size_t> ready;
    for (size_t node = 0; node < after.size(); node++) {
        left[node] = after[node].size();
        for (size_t each : after[node]) before[each].push_back(node);
        if (!left[node]) ready.insert(node);
    }
    while (!ready.empty()) {
        size_t node = state().order == -2 ? *ready.rbegin() : *ready.begin();
        ready.erase(node);
        order.push_back(node);
        for (size_t next : before[node])
            if (!--left[next]) ready.insert(next);
    }
    return order;
}

CUresult instantiate(Executable **made, void *handle) {
    Graph *graph = valid<Graph>(handle);
    NEED(graph, INVALID_VALUE);
    Executable *executable = new Executable;
    executable->context = current.back();
    executable->tasks = std::make_shared<std::vector<Task>>();
    for (auto &node : graph->nodes) {
        executable->numbers[node.get()] = node->number;
        executable->after.push_back(node->after);
        executable->tasks->push_back(node->task);
    }
    if (arrange(executable->after).size() < graph->nodes.size()) {  // a circle
        delete executable;
        return INVALID_VALUE;
    }
    return *made = executable, SUCCESS;
}

// The task of an executable's node, for writing: launches that have not run keep what they had.
CUresult task_of(void *handle, void *node, int kind, Task **task) {
    Executable *executable = valid<Executable>(handle);
    NEED(executable, INVALID_VALUE);
    auto found = executable->numbers.find((Node *)node);
    NEED(found != executable->numbers.end(), INVALID_VALUE);
    if (executable->tasks.use_count() > 1)
        executable->tasks = std::make_shared<std::vector<Task>>(*executable->tasks);
    *task = &(*executable->tasks)[found->second];
    return (*task)->kind == kind ? SUCCESS : INVALID_VALUE;
}

template <class Parameters>
CUresult update(void *executable, void *node, int kind, const Parameters *parameters,
                CUresult (*make)(const Parameters *, Task *)) {
    Task made, *task;
    TRY(task_of(executable, node, kind, &task));
    TRY(make(parameters, &made));
    return *task = std::move(made), SUCCESS;
}

}  // namespace

CU_API CUresult cuGraphCreate(Graph **graph, unsigned) {
    ENTER_ANYWHERE(false)
    return *graph = new Graph, SUCCESS;
}
CU_API CUresult cuGraphDestroy(void *graph) {
    ENTER_ANYWHERE(false)
    NEED(valid<Graph>(graph), INVALID_VALUE);
    delete valid<Graph>(graph);
    return SUCCESS;
}
CU_API CUresult cuGraphAddKernelNode_v2(Node **made, void *graph, void *const *after, size_t count,
                                        const KernelParameters *parameters) {
    ENTER
    Task task;
    TRY(launch_task(parameters, &task));
    return add_node(made, graph, after, count, std::move(task));
}
CU_API CUresult cuGraphAddMemcpyNode(Node **made, void *graph, void *const *after, size_t count,
                                     const CopyParameters *parameters, void *) {
    ENTER
    Task task;
    TRY(copy_task(parameters, &task));
    return add_node(made, graph, after, count, std::move(task));
}
CU_API CUresult cuGraphAddMemsetNode(Node **made, void *graph, void *const *after, size_t count,
                                     const FillParameters *parameters, void *) {
    ENTER
    Task task;
    TRY(fill_task(parameters, &task));
    return add_node(made, graph, after, count, std::move(task));
}
CU_API CUresult cuGraphAddEmptyNode(Node **made, void *graph, void *const *after, size_t count) {
    ENTER
    return add_node(made, graph, after, count, Task());
}
CU_API CUresult cuGraphAddDependencies(void *handle, void *const *from, void *const *to,
                                       size_t count) {
    ENTER_ANYWHERE(false)
    NEED(valid<Graph>(handle), INVALID_VALUE);
    for (size_t at = 0; at < count; at++) {
        Node *first = valid<Node>(from[at]), *second = valid<Node>(to[at]);
        NEED(first && second && first != second, INVALID_VALUE);
        NEED(second->after.insert(first->number).second, INVALID_VALUE);
    }
    return SUCCESS;
}
CU_API CUresult cuGraphAddDependencies_v2(void *graph, void *const *from, void *const *to,
                                          const void *, size_t count) {
    return cuGraphAddDependencies(graph, from, to, count);
}
CU_API CUresult cuGraphGetNodes(void *handle, Node **nodes, size_t *count) {
    ENTER_ANYWHERE(false)
    Graph *graph = valid<Graph>(handle);
    NEED(graph, INVALID_VALUE);
    for (size_t at = 0; nodes && at < *count; at++)
        nodes[at] = at < graph->nodes.size() ? graph->nodes[at].get() : nullptr;
    if (!nodes || *count > graph->nodes.size()) *count = graph->nodes.size();
    return SUCCESS;
}
CU_API CUresult cuGraphNodeGetType(void *handle, int *type) {
    ENTER_ANYWHERE(false)
    Node *node = valid<Node>(handle);
    NEED(node, INVALID_VALUE);
    static const int types[] = {5, 0, 1, 2, 3};
    return *type = types[node->task.kind], SUCCESS;
}
CU_API CUresult cuGraphKernelNodeSetParams_v2(void *handle, const KernelParameters *parameters) {
    ENTER
    Node *node = valid<Node>(handle);
    NEED(node && node->task.kind == Task::LAUNCH, INVALID_VALUE);
    Task task;
    TRY(launch_task(parameters, &task));
    return node->task = std::move(task), SUCCESS;
}
CU_API CUresult cuGraphKernelNodeGetParams_v2(void *handle, KernelParameters *parameters) {
    ENTER_ANYWHERE(false)
    Node *node = valid<Node>(handle);
    NEED(node && node->task.kind == Task::LAUNCH, INVALID_VALUE);
    const Launch &launch = node->task.launch;
    *parameters = {};
    parameters->function = launch.function;
    memcpy(parameters->sizes, launch.groups, sizeof launch.groups);
    memcpy(parameters->sizes + 3, launch.lanes, sizeof launch.lanes);
    parameters->sizes[6] = launch.shared_bytes;
    return SUCCESS;
}

CU_API CUresult cuGraphInstantiateWithFlags(Executable **made, void *graph, unsigned long long) {
    ENTER
    return instantiate(made, graph);
}
struct InstantiateParameters {
    uint64_t flags;
    void *stream, *error_node;
    int result;
};
CU_API CUresult cuGraphInstantiateWithParams(Executable **made, void *graph,
                                             InstantiateParameters *parameters) {
    ENTER
    CUresult result = instantiate(made, graph);
    parameters->error_node = nullptr;
    parameters->result = result != SUCCESS;
    return result;
}
CU_API CUresult cuGraphExecDestroy(void *executable) {
    ENTER_ANYWHERE(false)
    NEED(valid<Executable>(executable), INVALID_VALUE);
    delete valid<Executable>(executable);
    return SUCCESS;
}
CU_API CUresult cuGraphNodeSetEnabled(void *handle, void *node, unsigned enabled) {
    ENTER
    Executable *executable = valid<Executable>(handle);
    NEED(executable, INVALID_VALUE);
    auto found = executable->numbers.find((Node *)node);
    NEED(found != executable->numbers.end(), INVALID_VALUE);
    if (enabled) executable->idle.erase(found->second);
    else executable->idle.insert(found->second);
    return SUCCESS;
}
CU_API CUresult cuGraphNodeGetEnabled(void *handle, void *node, unsigned *enabled) {
    ENTER
    Executable *executable = valid<Executable>(handle);
    NEED(executable, INVALID_VALUE);
    auto found = executable->numbers.find((Node *)node);
    NEED(found != executable->numbers.end(), INVALID_VALUE);
    return *enabled = !executable->idle.count(found->second), SUCCESS;
}
CU_API CUresult cuGraphUpload(void *executable, void *stream) {
    ENTER
    return valid<Executable>(executable) && stream_of(stream) ? SUCCESS : INVALID_VALUE;
}
CU_API CUresult cuGraphExecKernelNodeSetParams_v2(void *executable, void *node,
                                                  const KernelParameters *parameters) {
    ENTER
    return update(executable, node, Task::LAUNCH, parameters, launch_task);
}
CU_API CUresult cuGraphExecMemcpyNodeSetParams(void *executable, void *node,
                                               const CopyParameters *parameters, void *) {
    ENTER
    return update(executable, node, Task::COPY, parameters, copy_task);
}
CU_API CUresult cuGraphExecMemsetNodeSetParams(void *executable, void *node,
                                               const FillParameters *parameters, void *) {
    ENTER
    return update(executable, node, Task::FILL, parameters, fill_task);
}
struct UpdateResult {
    int result;
    void *error_node, *error_from_node;
};
CU_API CUresult cuGraphExecUpdate_v2(void *handle, void *graph_handle, UpdateResult *result) {
    ENTER
    Executable *executable = valid<Executable>(handle);
    Graph *graph = valid<Graph>(graph_handle);
    NEED(executable && graph, INVALID_VALUE);
    auto tasks = std::make_shared<std::vector<Task>>();
    bool same = graph->nodes.size() == executable->after.size();
    for (size_t at = 0; same && at < graph->nodes.size(); at++) {
        same = graph->nodes[at]->after == executable->after[at] &&
               graph->nodes[at]->task.kind == (*executable->tasks)[at].kind;
        tasks->push_back(graph->nodes[at]->task);
    }
    if (result) *result = {same ? 0 : 2, nullptr, nullptr};
    NEED(same, GRAPH_UPDATE_FAILURE);
    return executable->tasks = tasks, SUCCESS;
}
CU_API CUresult cuGraphLaunch(void *handle, void *stream_handle) {
    ENTER
    Executable *executable = valid<Executable>(handle);
    Stream *stream = stream_of(stream_handle);
    NEED(executable && stream, INVALID_VALUE);
    NEED(!stream->capture, NOT_SUPPORTED);
    Task task;
    task.kind = Task::CALL;
    auto tasks = executable->tasks;
    Context *context = stream->context;
    task.call = [tasks, context, idle = executable->idle, order = arrange(executable->after)] {
        for (size_t node : order)
            if (!idle.count(node)) TRY(execute(context, (*tasks)[node]));
        return SUCCESS;
    };
    return put(stream, std::move(task));
}

// Capture

CU_API CUresult cuStreamBeginCapture_v2(void *handle, int mode) {
    ENTER
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    NEED(stream != stream->context->null_stream, CAPTURE_UNSUPPORTED);
    NEED(!stream->capture, (CUresult)401);
    stream->capture = new Graph;
    stream->capture_mode = mode;
    stream->origin = true;
    stream->broken = false;
    stream->tail.clear();
    return SUCCESS;
}

// True if the last work of every stream that was drawn into a capture comes before the origin's.
static bool joined(const Stream *origin, const Stream *other) {
    std::set<size_t> reached;
    std::vector<size_t> open;
    for (Node *node : origin->tail) open.push_back(node->number);
    while (!open.empty()) {
        size_t number = open.back();
        open.pop_back();
        if (!reached.insert(number).second) continue;
        for (size_t each : origin->capture->nodes[number]->after) open.push_back(each);
    }
    return std::all_of(other->tail.begin(), other->tail.end(),
                       [&](Node *node) { return reached.count(node->number); });
}
static void leave(Stream *stream) {
    stream->capture = nullptr;
    stream->origin = stream->broken = false;
    stream->capture_mode = 0;
    stream->tail.clear();
}
CU_API CUresult cuStreamEndCapture(void *handle, Graph **graph) {
    ENTER
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    NEED(stream->capture, (CUresult)401);
    NEED(stream->origin, CAPTURE_UNMATCHED);
    Graph *captured = stream->capture;
    CUresult result = SUCCESS;
    for (Stream *other : stream->context->streams) {
        if (other->capture != captured) continue;
        if (other->broken) result = CAPTURE_INVALIDATED;
        else if (!joined(stream, other)) result = CAPTURE_UNJOINED;
    }
    for (Stream *other : stream->context->streams)
        if (other != stream && other->capture == captured) leave(other);
    leave(stream);
    *graph = result == SUCCESS ? captured : nullptr;
    if (result != SUCCESS) delete captured;
    return result;
}
static int status_of(const Stream *stream) {
    return !stream->capture ? 0 : stream->broken ? 2 : 1;
}
CU_API CUresult cuStreamIsCapturing(void *handle, int *status) {
    ENTER
    NEED(stream_of(handle), INVALID_HANDLE);
    return *status = status_of(stream_of(handle)), SUCCESS;
}
static CUresult capture_info(void *handle, int *status, uint64_t *number, Graph **graph,
                             Node ***nodes, size_t *count) {
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    *status = status_of(stream);
    if (number) *number = (uint64_t)stream->capture;
    if (graph) *graph = stream->capture;
    if (nodes) *nodes = stream->tail.data();
    if (count) *count = stream->tail.size();
    return SUCCESS;
}
CU_API CUresult cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *number,
                                          Graph **graph, Node ***nodes, size_t *count) {
    ENTER
    return capture_info(stream, status, number, graph, nodes, count);
}
CU_API CUresult cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *number,
                                          Graph **graph, Node ***nodes, void **edges,
                                          size_t *count) {
    ENTER
    if (edges) *edges = nullptr;
    return capture_info(stream, status, number, graph, nodes, count);
}
static thread_local int capture_mode = 0;
CU_API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    std::swap(*mode, capture_mode);
    return SUCCESS;
}
