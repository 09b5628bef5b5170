// The mock driver: devices, contexts, modules, and the table of its functions.
#include "driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <unordered_set>

using namespace mock;

namespace mock {

static std::unordered_set<const void *> &objects() {
    static std::unordered_set<const void *> all;
    return all;
}
Object::Object() { objects().insert(this); }
Object::~Object() { objects().erase(this); }
bool alive(const void *object) { return objects().count(object) != 0; }

thread_local std::vector<Context *> current;

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, nullptr, 10) : otherwise;
}

static long order_of(const char *text) {
    if (!text || !*text || !strcmp(text, "forward")) return -1;
    return strcmp(text, "reversed") ? strtol(text, nullptr, 10) : -2;
}

static State *make_state() {
    State *made = new State;
    objects();
    made->lazy = number_of("EMULATION_LAZY", 1) != 0;
    made->capability = (int)number_of("EMULATION_CAPABILITY", 80);
    made->order = order_of(getenv("EMULATION_ORDER"));
    const char *folder = getenv("EMULATION_FOLDER");
    made->folder = folder ? folder : "";
    for (long left = number_of("EMULATION_DEVICES", 2); left > 0; left--) {
        made->devices.emplace_back(new Device);
        made->devices.back()->total = (size_t)number_of("EMULATION_MEMORY", 1L << 30);
        made->devices.back()->default_pool.device = (int)made->devices.size() - 1;
    }
    return made;
}
State &state() {
    static State *only = make_state();  // never destroyed: threads may outlive main
    return *only;
}

void say(const char *format, ...) {
    char text[2300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    state().message = text;
    fprintf(stderr, "emulated driver: %s\n", text);
}

static bool fails(const char *name, int *error) {
    auto found = state().failures.find(name);
    if (found == state().failures.end() || found->second.first-- > 0) return false;
    *error = found->second.second;
    state().failures.erase(found);
    return true;
}

CUresult entered(const char *name, bool needs_context) {
    state().calls[name]++;
    int error = 0;
    if (fails(name, &error)) return (CUresult)error;
    NEED(state().initialized, NOT_INITIALIZED);
    if (!needs_context) return SUCCESS;
    NEED(!current.empty() && alive(current.back()), INVALID_CONTEXT);
    return current.back()->fault;
}

static Context *make_context(int device, unsigned flags) {
    Context *made = new Context;
    made->device = device;
    made->flags = flags;
    made->null_stream = new Stream;
    made->null_stream->context = made;
    made->streams.push_back(made->null_stream);
    return made;
}

static void end_context(Context *context) {
    for (Stream *stream : context->streams) delete stream;
    delete context;
}

static Device *device_of(int device) {
    auto &all = state().devices;
    return device >= 0 && device < (int)all.size() ? all[(size_t)device].get() : nullptr;
}

}  // namespace mock

// Beginning, errors, versions

// NVRTC looks for a driver too, and wants private tables of it. It works without one.
static bool asked_by_compiler(void *caller) {
    Dl_info about;
    return dladdr(caller, &about) && about.dli_fname && strstr(about.dli_fname, "libnvrtc");
}
CU_API CUresult cuInit(unsigned flags) {
    std::lock_guard<std::recursive_mutex> locked(state().lock);
    if (asked_by_compiler(__builtin_return_address(0))) return (CUresult)100;
    NEED(flags == 0, INVALID_VALUE);
    NEED(!state().devices.empty(), (CUresult)100);
    state().initialized = true;
    return entered(__func__, false);
}
CU_API CUresult cuGetExportTable(const void **table, const void *) {
    return *table = nullptr, NOT_FOUND;
}
CU_API CUresult cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }

struct Named {
    int error;
    const char *name, *text;
};
static const Named errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "memory was already pinned"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "memory was not pinned"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted when a stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture failed before"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was begun on another stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined again"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "not permitted on an event of a capturing stream"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph is too different for an update"},
};
CU_API CUresult cuGetErrorName(int error, const char **text) {
    for (const Named &each : errors)
        if (each.error == error) return *text = each.name, SUCCESS;
    return *text = nullptr, INVALID_VALUE;
}
CU_API CUresult cuGetErrorString(int error, const char **text) {
    for (const Named &each : errors)
        if (each.error == error) return *text = each.text, SUCCESS;
    return *text = nullptr, INVALID_VALUE;
}

// Devices

CU_API CUresult cuDeviceGetCount(int *count) {
    ENTER_ANYWHERE(false)
    return *count = (int)state().devices.size(), SUCCESS;
}
CU_API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER_ANYWHERE(false)
    NEED(device_of(ordinal), INVALID_DEVICE);
    return *device = ordinal, SUCCESS;
}
CU_API CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    snprintf(name, (size_t)room, "Emulated GPU %d", device);
    return SUCCESS;
}
CU_API CUresult cuDeviceGetUuid_v2(unsigned char *bytes, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    memset(bytes, 0, 16);
    memcpy(bytes, "emulated", 8);
    bytes[15] = (unsigned char)device;
    return SUCCESS;
}
CU_API CUresult cuDeviceGetPCIBusId(char *text, int room, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    snprintf(text, (size_t)room, "0000:%02x:00.0", device + 1);
    return SUCCESS;
}
CU_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    return *bytes = device_of(device)->total, SUCCESS;
}
CU_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    *major = state().capability / 10;
    *minor = state().capability % 10;
    return SUCCESS;
}
static int shared_optin() {  // bytes that a group may ask for, by compute capability
    int capability = state().capability;
    if (capability >= 90 && capability < 120) return 227 << 10;
    if (capability == 80 || capability == 87) return 163 << 10;
    return (capability >= 86 ? 99 : 64) << 10;
}
CU_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device), INVALID_DEVICE);
    static const std::map<int, int> values = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 0x7fffffff}, {6, 65535}, {7, 65535},
        {8, 48 << 10}, {9, 64 << 10}, {10, 32}, {11, 0x7fffffff}, {12, 65536}, {13, 1000000},
        {14, 512}, {15, 1}, {16, 4}, {19, 1}, {31, 1}, {36, 1000000}, {37, 256}, {38, 4 << 20},
        {39, 2048}, {40, 2}, {41, 1}, {78, 1}, {82, 65536}, {83, 1}, {95, 1}, {99, 1}, {106, 16},
        {111, 1024}, {115, 1}};
    auto found = values.find(attribute);
    *value = found == values.end() ? 0 : found->second;
    if (attribute == 33) *value = device + 1;
    if (attribute == 75) *value = state().capability / 10;
    if (attribute == 76) *value = state().capability % 10;
    if (attribute == 81) *value = shared_optin() + 1024;
    if (attribute == 97) *value = shared_optin();
    return SUCCESS;
}
CU_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device) && device_of(peer), INVALID_DEVICE);
    return *can = device != peer, SUCCESS;
}
CU_API CUresult cuDeviceGetP2PAttribute(int *value, int, CUdevice device, CUdevice peer) {
    ENTER_ANYWHERE(false)
    NEED(device_of(device) && device_of(peer) && device != peer, INVALID_DEVICE);
    return *value = 1, SUCCESS;
}

// Contexts

CU_API CUresult cuDevicePrimaryCtxRetain(Context **context, CUdevice number) {
    ENTER_ANYWHERE(false)
    Device *device = device_of(number);
    NEED(device, INVALID_DEVICE);
    if (!device->primary) device->primary = make_context(number, device->flags);
    device->retained++;
    return *context = device->primary, SUCCESS;
}
// The memory of a context that ends goes with it.
static void end_primary(Device *device) {
    std::vector<CUdeviceptr> lost;
    for (auto &[address, each] : state().memory)
        if (each.kind == DEVICE && each.device == device->primary->device) lost.push_back(address);
    for (CUdeviceptr address : lost) release(address);
    end_context(device->primary);
    device->primary = nullptr;
    device->retained = 0;
}
CU_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice number) {
    ENTER_ANYWHERE(false)
    Device *device = device_of(number);
    NEED(device, INVALID_DEVICE);
    NEED(device->primary, INVALID_CONTEXT);
    if (--device->retained == 0) end_primary(device);
    return SUCCESS;
}
CU_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice number) {
    ENTER_ANYWHERE(false)
    Device *device = device_of(number);
    NEED(device, INVALID_DEVICE);
    if (device->primary) end_primary(device);
    return SUCCESS;
}
CU_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice number, unsigned flags) {
    ENTER_ANYWHERE(false)
    NEED(device_of(number), INVALID_DEVICE);
    return device_of(number)->flags = flags, SUCCESS;
}
CU_API CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned *flags, int *active) {
    ENTER_ANYWHERE(false)
    NEED(device_of(number), INVALID_DEVICE);
    *flags = device_of(number)->flags;
    *active = device_of(number)->primary != nullptr;
    return SUCCESS;
}
CU_API CUresult cuCtxCreate_v2(Context **context, unsigned flags, CUdevice number) {
    ENTER_ANYWHERE(false)
    NEED(device_of(number), INVALID_DEVICE);
    current.push_back(*context = make_context(number, flags));
    return SUCCESS;
}
CU_API CUresult cuCtxCreate_v4(Context **context, void *, unsigned flags, CUdevice number) {
    return cuCtxCreate_v2(context, flags, number);
}
CU_API CUresult cuCtxDestroy_v2(void *handle) {
    ENTER_ANYWHERE(false)
    Context *context = valid<Context>(handle);
    NEED(context, INVALID_CONTEXT);
    if (!current.empty() && current.back() == context) current.pop_back();
    end_context(context);
    return SUCCESS;
}
CU_API CUresult cuCtxPushCurrent_v2(void *handle) {
    ENTER_ANYWHERE(false)
    NEED(valid<Context>(handle), INVALID_CONTEXT);
    current.push_back((Context *)(Object *)handle);
    return SUCCESS;
}
CU_API CUresult cuCtxPopCurrent_v2(Context **context) {
    ENTER_ANYWHERE(false)
    NEED(!current.empty(), INVALID_CONTEXT);
    if (context) *context = current.back();
    current.pop_back();
    return SUCCESS;
}
CU_API CUresult cuCtxSetCurrent(void *handle) {
    ENTER_ANYWHERE(false)
    NEED(!handle || valid<Context>(handle), INVALID_CONTEXT);
    if (!current.empty()) current.pop_back();
    if (handle) current.push_back(valid<Context>(handle));
    return SUCCESS;
}
CU_API CUresult cuCtxGetCurrent(Context **context) {
    ENTER_ANYWHERE(false)
    return *context = current.empty() ? nullptr : current.back(), SUCCESS;
}
CU_API CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER
    return *device = current.back()->device, SUCCESS;
}
CU_API CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER
    return *flags = current.back()->flags, SUCCESS;
}
CU_API CUresult cuCtxGetApiVersion(void *, unsigned *version) { return *version = 13000, SUCCESS; }
CU_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}
CU_API CUresult cuCtxGetLimit(size_t *value, int) {
    ENTER
    return *value = 1024, SUCCESS;
}
CU_API CUresult cuCtxSetLimit(int, size_t) {
    ENTER
    return SUCCESS;
}
CU_API CUresult cuCtxEnablePeerAccess(void *handle, unsigned flags) {
    ENTER
    Context *peer = valid<Context>(handle);
    NEED(peer, INVALID_CONTEXT);
    NEED(flags == 0 && peer->device != current.back()->device, INVALID_VALUE);
    bool fresh = current.back()->peers.insert(peer->device).second;
    return fresh ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}
CU_API CUresult cuCtxDisablePeerAccess(void *handle) {
    ENTER
    Context *peer = valid<Context>(handle);
    NEED(peer, INVALID_CONTEXT);
    return current.back()->peers.erase(peer->device) ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
}

// Modules: an image is known by its checksum, and stands for a source that the emulator compiled.

namespace {

uint64_t checksum(const unsigned char *image) {
    size_t size = strlen((const char *)image);
    if (!memcmp(image, "\x7f" "ELF", 4)) {  // its tables of sections and of segments close it
        uint64_t sections, segments;
        uint16_t numbers[4];
        memcpy(&segments, image + 32, 8);
        memcpy(&sections, image + 40, 8);
        memcpy(numbers, image + 54, 8);  // size and count of segments, then of sections
        uint64_t end = sections + (uint64_t)numbers[2] * numbers[3];
        uint64_t other = segments + (uint64_t)numbers[0] * numbers[1];
        size = (size_t)(end > other ? end : other);
    }
    uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
    for (size_t at = 0; at < size; at++) sum = (sum ^ image[at]) * 0x100000001b3;
    return sum;
}

std::string file_of(uint64_t sum) {
    char name[64];
    snprintf(name, sizeof name, "/image-%016llx.so", (unsigned long long)sum);
    return state().folder + name;
}

CUresult load(Module **made, const void *image) {
    NEED(image, INVALID_VALUE);
    uint64_t sum = checksum((const unsigned char *)image);
    auto found = state().images.find(sum);
    std::string path = found == state().images.end() ? file_of(sum) : found->second;
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say("no source is known for this image; it did not come from the recorded compiler (%s)",
            dlerror());
        return NO_BINARY;
    }
    Module *module = new Module;
    module->library = library;
    module->source = (const EmulationSource *)dlsym(library, "emulation_source");
    for (int at = 0; at < module->source->count; at++) {
        module->functions.push_back(new Function);
        module->functions.back()->module = module;
        module->functions.back()->kernel = module->source->kernels + at;
    }
    return *made = module, SUCCESS;
}

CUresult function_of(Function **function, void *handle, const char *name) {
    Module *module = valid<Module>(handle);
    NEED(module, INVALID_HANDLE);
    for (Function *each : module->functions)
        if (!strcmp(each->kernel->name, name)) return *function = each, SUCCESS;
    return NOT_FOUND;
}

CUresult unload(void *handle) {
    Module *module = valid<Module>(handle);
    NEED(module, INVALID_HANDLE);
    for (Stream *stream : std::vector<Stream *>(current.back()->streams)) run(stream, ~0ull);
    for (Function *each : module->functions) delete each;
    delete module;  // its library stays: reports may still name its lines
    return SUCCESS;
}

}  // namespace

CU_API CUresult cuModuleLoadData(Module **module, const void *image) {
    ENTER
    return load(module, image);
}
CU_API CUresult cuModuleLoadDataEx(Module **module, const void *image, unsigned, int *, void **) {
    ENTER
    return load(module, image);
}
CU_API CUresult cuModuleUnload(void *module) {
    ENTER
    return unload(module);
}
CU_API CUresult cuModuleGetFunction(Function **function, void *module, const char *name) {
    ENTER
    return function_of(function, module, name);
}
CU_API CUresult cuModuleGetLoadingMode(int *mode) { return *mode = 2, SUCCESS; }
CU_API CUresult cuLibraryLoadData(Module **module, const void *image, int *, void **, unsigned,
                                  int *, void **, unsigned) {
    ENTER
    return load(module, image);
}
CU_API CUresult cuLibraryUnload(void *module) {
    ENTER
    return unload(module);
}
CU_API CUresult cuLibraryGetKernel(Function **kernel, void *module, const char *name) {
    ENTER
    return function_of(kernel, module, name);
}
CU_API CUresult cuKernelGetFunction(void **function, void *kernel) {
    ENTER
    NEED(valid<Function>(kernel), INVALID_HANDLE);
    return *function = kernel, SUCCESS;
}
CU_API CUresult cuFuncGetName(const char **name, void *handle) {
    ENTER
    NEED(valid<Function>(handle), INVALID_HANDLE);
    return *name = valid<Function>(handle)->kernel->name, SUCCESS;
}
static int static_shared(const Function *function) {
    const EmulationSource *source = function->module->source;
    return (int)(source->shared_end - source->shared_begin);  // of all kernels of the module
}
CU_API CUresult cuFuncGetAttribute(int *value, int attribute, void *handle) {
    ENTER
    Function *function = valid<Function>(handle);
    NEED(function, INVALID_HANDLE);
    const std::map<int, int> values = {
        {0, 1024}, {1, static_shared(function)}, {4, 32}, {5, state().capability},
        {6, state().capability}, {8, (int)function->most_dynamic}};
    auto found = values.find(attribute);
    return *value = found == values.end() ? 0 : found->second, SUCCESS;
}
CU_API CUresult cuFuncSetAttribute(void *handle, int attribute, int value) {
    ENTER
    Function *function = valid<Function>(handle);
    NEED(function, INVALID_HANDLE);
    if (attribute != 8) return SUCCESS;
    NEED(value >= 0 && value <= shared_optin(), INVALID_VALUE);
    return function->most_dynamic = (unsigned)value, SUCCESS;
}
CU_API CUresult cuFuncSetCacheConfig(void *handle, int) {
    ENTER
    return valid<Function>(handle) ? SUCCESS : INVALID_HANDLE;
}
CU_API CUresult cuFuncGetParamInfo(void *handle, size_t index, size_t *offset, size_t *size) {
    ENTER
    Function *function = valid<Function>(handle);
    NEED(function && index < (size_t)function->kernel->count, INVALID_VALUE);
    size_t at = 0;
    for (size_t each = 0;; each++) {
        const EmulationParameter &parameter = function->kernel->parameters[each];
        at = (at + parameter.alignment - 1) / parameter.alignment * parameter.alignment;
        if (each == index) return *offset = at, *size = parameter.size, SUCCESS;
        at += parameter.size;
    }
}
CU_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, void *handle, int lanes,
                                                            size_t) {
    ENTER
    NEED(valid<Function>(handle), INVALID_HANDLE);
    NEED(lanes > 0 && lanes <= 1024, INVALID_VALUE);
    return *count = 2048 / lanes < 16 ? 2048 / lanes : 16, SUCCESS;
}
CU_API CUresult cuOccupancyMaxPotentialBlockSize(int *groups, int *lanes, void *handle, void *,
                                                 size_t, int most) {
    ENTER
    NEED(valid<Function>(handle), INVALID_HANDLE);
    *groups = 8;
    *lanes = most > 0 && most < 1024 ? most : 1024;
    return SUCCESS;
}
CU_API CUresult cuProfilerStart() { return SUCCESS; }
CU_API CUresult cuProfilerStop() { return SUCCESS; }

// What the tests say to the mock itself

CU_API void emulation_driver_know(const void *image, const char *library) {
    std::lock_guard<std::recursive_mutex> locked(state().lock);
    uint64_t sum = checksum((const unsigned char *)image);
    state().images[sum] = library;
    if (!state().folder.empty() && symlink(library, file_of(sum).c_str()))
        return;  // another process knew it first
}
CU_API void emulation_driver_order(long order) { state().order = order; }
CU_API void emulation_driver_lazy(int lazy) { state().lazy = lazy != 0; }
CU_API void emulation_driver_memory(int device, size_t bytes) { device_of(device)->total = bytes; }
CU_API size_t emulation_driver_used(int device) { return device_of(device)->used; }
CU_API void emulation_driver_fail(const char *function, int skip, int error) {
    std::lock_guard<std::recursive_mutex> locked(state().lock);
    state().failures[function] = {skip, error};
}
CU_API uint64_t emulation_driver_calls(const char *function) {
    std::lock_guard<std::recursive_mutex> locked(state().lock);
    auto found = state().calls.find(function);
    return found == state().calls.end() ? 0 : found->second;
}
CU_API const char *emulation_driver_message() { return state().message.c_str(); }

// Functions by name: the newest form of each that the caller's version of CUDA knows. A form is
// exported with its suffix; the version in which it came stands before it.
namespace {
const std::map<std::string, std::vector<std::pair<int, const char *>>> forms = {
    {"cuGraphAddDependencies", {{10000, ""}, {12030, "_v2"}}},
    {"cuStreamGetCaptureInfo", {{11030, "_v2"}, {12030, "_v3"}}},
    {"cuCtxCreate", {{3020, "_v2"}, {12050, "_v4"}}},
    {"cuGraphAddKernelNode", {{12000, "_v2"}}},
    {"cuGraphKernelNodeGetParams", {{12000, "_v2"}}},
    {"cuGraphKernelNodeSetParams", {{12000, "_v2"}}},
    {"cuGraphExecKernelNodeSetParams", {{12000, "_v2"}}},
    {"cuGraphExecUpdate", {{12000, "_v2"}}},
    {"cuGraphInstantiate", {{11040, "WithFlags"}}},
    {"cuStreamGetCaptureInfo_v2", {{11030, ""}}},
};
}
CU_API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t,
                                    int *status) {
    static void *self = nullptr;
    Dl_info about;
    if (!self && dladdr((void *)cuInit, &about)) self = dlopen(about.dli_fname, RTLD_NOW);
    *function = nullptr;
    auto known = forms.find(name);
    if (known == forms.end()) {
        for (const char *suffix : {"_v2", ""})
            if (!*function) *function = dlsym(self, (std::string(name) + suffix).c_str());
    } else {
        for (auto &[since, suffix] : known->second)
            if (version >= since) *function = dlsym(self, (std::string(name) + suffix).c_str());
    }
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
CU_API CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    if (!strcmp(name, "cuGetProcAddress") && version >= 12000)
        return *function = (void *)cuGetProcAddress_v2, SUCCESS;
    return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
