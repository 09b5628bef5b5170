// The mock driver: memory, pools and copies.
#include "driver.h"

#include <stdlib.h>

using namespace mock;

namespace mock {

// Bytes before and behind memory, which nobody may change. AddressSanitizer guards better.
static const size_t GUARD = getenv("EMULATION_SANITIZED") ? 0 : 256;
const unsigned char GUARD_BYTE = 0xa5;

const Allocation *find(CUdeviceptr address, size_t size, CUdeviceptr *base) {
    auto next = state().memory.upper_bound(address);
    if (next == state().memory.begin()) return nullptr;
    auto &[start, allocation] = *--next;
    if (address + size > start + allocation.size) return nullptr;
    if (base) *base = start;
    return &allocation;
}

CUresult allocate(int device, size_t size, Kind kind, Pool *pool, CUdeviceptr *made) {
    NEED(size, INVALID_VALUE);
    Device &on = *state().devices[(size_t)device];
    if (kind == DEVICE && (size > on.total || on.used > on.total - size)) return OUT_OF_MEMORY;
    void *block = nullptr;
    if (posix_memalign(&block, 256, size + 2 * GUARD)) return OUT_OF_MEMORY;
    memset(block, GUARD_BYTE, size + 2 * GUARD);
    memset((unsigned char *)block + GUARD, 0xff, size);  // NaN, until somebody writes
    if (kind == DEVICE) on.used += size;
    if (pool) {
        pool->used += size;
        if (pool->used > pool->high) pool->high = pool->used;
    }
    *made = (CUdeviceptr)block + GUARD;
    state().memory[*made] = {(unsigned char *)block, size, device, kind, pool, false};
    return SUCCESS;
}

bool intact(CUdeviceptr, const Allocation &allocation) {
    if (allocation.kind == REGISTERED) return true;
    for (size_t at = 0; at < GUARD; at++)
        if (allocation.block[at] != GUARD_BYTE ||
            allocation.block[GUARD + allocation.size + at] != GUARD_BYTE)
            return false;
    return true;
}

CUresult release(CUdeviceptr address) {
    auto found = state().memory.find(address);
    NEED(found != state().memory.end(), INVALID_VALUE);
    Allocation gone = found->second;
    bool whole = intact(address, gone);
    if (gone.kind == DEVICE) state().devices[(size_t)gone.device]->used -= gone.size;
    if (gone.pool && alive(gone.pool)) gone.pool->used -= gone.size;
    state().memory.erase(found);
    if (gone.kind != REGISTERED) {
        memset(gone.block, 0xfe, gone.size + 2 * GUARD);
        free(gone.block);
    }
    if (whole) return SUCCESS;
    say("memory of %zu bytes was written beyond its ends", gone.size);
    return ILLEGAL_ADDRESS;
}

CUresult reachable(Context *context, CUdeviceptr address, const char *what) {
    const Allocation *memory = find(address, 0);
    if (!memory) {
        say("%s points to no memory that is allocated: %#llx", what, address);
        return ILLEGAL_ADDRESS;
    }
    if (memory->kind == DEVICE && memory->device != context->device &&
        !context->peers.count(memory->device)) {
        say("%s points to memory of device %d, which device %d has no access to", what,
            memory->device, context->device);
        return ILLEGAL_ADDRESS;
    }
    return SUCCESS;
}

}  // namespace mock

namespace {

// All the device's work runs before what follows.
CUresult wait_for_device() {
    NEED(!capturing(), CAPTURE_UNSUPPORTED);
    return run_all(here());
}

CUresult put_and_wait(Task task) {
    NEED(!capturing(), CAPTURE_UNSUPPORTED);
    Stream *stream = here()->null_stream;
    TRY(put(stream, std::move(task)));
    return run(stream, stream->last);
}

bool is_device(CUdeviceptr address, size_t size) { return find(address, size) != nullptr; }
bool is_host(const void *address, size_t size) {
    const Allocation *memory = find((CUdeviceptr)address, size);
    return !memory || memory->kind != DEVICE;
}

Task copying(CUdeviceptr to, CUdeviceptr from, size_t size) {
    Task task;
    task.kind = Task::COPY;
    task.copy = {to, from, size, nullptr};
    return task;
}

// From memory that is not pinned the driver takes what is there now.
void keep(Copy &copy) {
    if (find(copy.from, copy.size)) return;
    const unsigned char *bytes = (const unsigned char *)copy.from;
    copy.kept = std::make_shared<std::vector<unsigned char>>(bytes, bytes + copy.size);
}

CUresult copy_async(Stream *stream, Task task) {
    NEED(stream, INVALID_HANDLE);
    bool to_pageable = !find(task.copy.to, task.copy.size);
    if (!stream->capture) keep(task.copy);
    TRY(put(stream, std::move(task)));
    return to_pageable && !stream->capture ? run(stream, stream->last) : SUCCESS;
}

Task filling(CUdeviceptr to, unsigned value, unsigned width, size_t count) {
    Task task;
    task.kind = Task::FILL;
    task.fill = {to, value, width, count};
    return task;
}

CUresult fill(CUdeviceptr to, unsigned value, unsigned width, size_t count) {
    NEED(is_device(to, width * count), INVALID_VALUE);
    return put_and_wait(filling(to, value, width, count));
}

CUresult fill_async(CUdeviceptr to, unsigned value, unsigned width, size_t count, void *handle) {
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    NEED(is_device(to, width * count), INVALID_VALUE);
    return put(stream, filling(to, value, width, count));
}

Device &device() { return *state().devices[(size_t)here()->device]; }

}  // namespace

CU_API CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
    ENTER
    *total = device().total;
    *unused = device().used > *total ? 0 : *total - device().used;
    return SUCCESS;
}
CU_API CUresult cuMemAlloc_v2(CUdeviceptr *made, size_t size) {
    ENTER
    NEED(!capturing(), CAPTURE_UNSUPPORTED);
    return allocate(here()->device, size, DEVICE, nullptr, made);
}
CU_API CUresult cuMemAllocManaged(CUdeviceptr *made, size_t size, unsigned) {
    ENTER
    return allocate(here()->device, size, MANAGED, nullptr, made);
}
CU_API CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER
    if (!address) return SUCCESS;
    TRY(wait_for_device());
    const Allocation *memory = find(address, 0);
    NEED(memory && memory->kind != PINNED && memory->kind != REGISTERED, INVALID_VALUE);
    return release(address);
}
CU_API CUresult cuMemHostAlloc(void **made, size_t size, unsigned) {
    ENTER
    return allocate(here()->device, size, PINNED, nullptr, (CUdeviceptr *)made);
}
CU_API CUresult cuMemAllocHost_v2(void **made, size_t size) {
    ENTER
    return allocate(here()->device, size, PINNED, nullptr, (CUdeviceptr *)made);
}
CU_API CUresult cuMemFreeHost(void *address) {
    ENTER
    TRY(wait_for_device());
    const Allocation *memory = find((CUdeviceptr)address, 0);
    NEED(memory && memory->kind == PINNED, INVALID_VALUE);
    return release((CUdeviceptr)address);
}
CU_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned) {
    ENTER
    NEED(find((CUdeviceptr)host, 0), INVALID_VALUE);
    return *address = (CUdeviceptr)host, SUCCESS;
}
CU_API CUresult cuMemHostRegister_v2(void *host, size_t size, unsigned) {
    ENTER
    NEED(host && size, INVALID_VALUE);
    NEED(!find((CUdeviceptr)host, 0), HOST_MEMORY_ALREADY_REGISTERED);
    state().memory[(CUdeviceptr)host] = {nullptr, size, here()->device, REGISTERED, nullptr, false};
    return SUCCESS;
}
CU_API CUresult cuMemHostUnregister(void *host) {
    ENTER
    auto found = state().memory.find((CUdeviceptr)host);
    NEED(found != state().memory.end() && found->second.kind == REGISTERED,
         HOST_MEMORY_NOT_REGISTERED);
    TRY(wait_for_device());
    return release((CUdeviceptr)host);
}
CU_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    ENTER
    CUdeviceptr start;
    const Allocation *memory = find(address, 0, &start);
    NEED(memory, NOT_FOUND);
    if (base) *base = start;
    if (size) *size = memory->size;
    return SUCCESS;
}
CU_API CUresult cuPointerGetAttribute(void *into, int attribute, CUdeviceptr address) {
    ENTER
    const Allocation *memory = find(address, 0);
    NEED(memory, INVALID_VALUE);
    bool host = memory->kind == PINNED || memory->kind == REGISTERED;
    if (attribute == 2) *(unsigned *)into = host ? 1 : 2;
    else if (attribute == 3 || (attribute == 4 && host)) *(CUdeviceptr *)into = address;
    else if (attribute == 8) *(unsigned *)into = memory->kind == MANAGED;
    else if (attribute == 9) *(int *)into = memory->device;
    else return INVALID_VALUE;
    return SUCCESS;
}

// Pools: memory that is allocated and freed in the order of a stream.

CU_API CUresult cuDeviceGetDefaultMemPool(Pool **pool, CUdevice number) {
    ENTER_ANYWHERE(false)
    NEED(number >= 0 && number < (int)state().devices.size(), INVALID_DEVICE);
    return *pool = &state().devices[(size_t)number]->default_pool, SUCCESS;
}
CU_API CUresult cuDeviceGetMemPool(Pool **pool, CUdevice number) {
    ENTER_ANYWHERE(false)
    NEED(number >= 0 && number < (int)state().devices.size(), INVALID_DEVICE);
    return *pool = state().devices[(size_t)number]->pool, SUCCESS;
}
CU_API CUresult cuDeviceSetMemPool(CUdevice number, void *handle) {
    ENTER_ANYWHERE(false)
    Pool *pool = valid<Pool>(handle);
    NEED(pool && pool->device == number, INVALID_VALUE);
    return state().devices[(size_t)number]->pool = pool, SUCCESS;
}
struct PoolProperties {
    int kind, handles, location, device;
};
CU_API CUresult cuMemPoolCreate(Pool **pool, const PoolProperties *properties) {
    ENTER_ANYWHERE(false)
    NEED(properties->kind == 1 && properties->location == 1, INVALID_VALUE);
    NEED(properties->device >= 0 && properties->device < (int)state().devices.size(),
         INVALID_DEVICE);
    *pool = new Pool;
    (*pool)->device = properties->device;
    return SUCCESS;
}
CU_API CUresult cuMemPoolDestroy(void *handle) {
    ENTER_ANYWHERE(false)
    Pool *pool = valid<Pool>(handle);
    NEED(pool, INVALID_VALUE);
    for (auto &each : state().devices) {
        NEED(pool != &each->default_pool, INVALID_VALUE);
        if (each->pool == pool) each->pool = &each->default_pool;
    }
    delete pool;
    return SUCCESS;
}
CU_API CUresult cuMemPoolTrimTo(void *handle, size_t) {
    ENTER_ANYWHERE(false)
    return valid<Pool>(handle) ? SUCCESS : INVALID_VALUE;
}
CU_API CUresult cuMemPoolSetAccess(void *handle, const void *, size_t) {
    ENTER_ANYWHERE(false)
    return valid<Pool>(handle) ? SUCCESS : INVALID_VALUE;
}
CU_API CUresult cuMemPoolSetAttribute(void *handle, int attribute, void *value) {
    ENTER_ANYWHERE(false)
    Pool *pool = valid<Pool>(handle);
    NEED(pool, INVALID_VALUE);
    if (attribute == 4) pool->threshold = *(uint64_t *)value;
    if (attribute == 8) pool->high = *(uint64_t *)value;
    return SUCCESS;
}
CU_API CUresult cuMemPoolGetAttribute(void *handle, int attribute, void *value) {
    ENTER_ANYWHERE(false)
    Pool *pool = valid<Pool>(handle);
    NEED(pool, INVALID_VALUE);
    if (attribute <= 3) *(int *)value = 1;
    else if (attribute == 4) *(uint64_t *)value = pool->threshold;
    else *(uint64_t *)value = attribute == 8 || attribute == 6 ? pool->high : pool->used;
    return SUCCESS;
}
static CUresult allocate_from(Pool *pool, CUdeviceptr *made, size_t size, void *handle) {
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    NEED(!stream->capture, NOT_SUPPORTED);
    // What was freed in this stream before may be taken again, without waiting for other streams.
    if (allocate(pool->device, size, DEVICE, pool, made) == SUCCESS) return SUCCESS;
    TRY(run(stream, stream->last));
    return allocate(pool->device, size, DEVICE, pool, made);
}
CU_API CUresult cuMemAllocAsync(CUdeviceptr *made, size_t size, void *stream) {
    ENTER
    return allocate_from(device().pool, made, size, stream);
}
CU_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *made, size_t size, void *pool, void *stream) {
    ENTER
    NEED(valid<Pool>(pool), INVALID_VALUE);
    return allocate_from(valid<Pool>(pool), made, size, stream);
}
CU_API CUresult cuMemFreeAsync(CUdeviceptr address, void *handle) {
    ENTER
    Stream *stream = stream_of(handle);
    NEED(stream, INVALID_HANDLE);
    NEED(!stream->capture, NOT_SUPPORTED);
    auto found = state().memory.find(address);
    NEED(found != state().memory.end() && !found->second.freed, INVALID_VALUE);
    NEED(found->second.kind == DEVICE, INVALID_VALUE);
    found->second.freed = true;
    Task task;
    task.kind = Task::CALL;
    task.call = [address] { return release(address); };
    return put(stream, std::move(task));
}

// Copies

CU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    ENTER
    NEED(is_device(to, size) && is_host(from, size), INVALID_VALUE);
    return put_and_wait(copying(to, (CUdeviceptr)from, size));
}
CU_API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    ENTER
    NEED(is_device(from, size) && is_host(to, size), INVALID_VALUE);
    return put_and_wait(copying((CUdeviceptr)to, from, size));
}
CU_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER
    NEED(is_device(to, size) && is_device(from, size), INVALID_VALUE);
    return put_and_wait(copying(to, from, size));
}
CU_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    ENTER
    return put_and_wait(copying(to, from, size));
}
CU_API CUresult cuMemcpyPeer(CUdeviceptr to, void *, CUdeviceptr from, void *, size_t size) {
    ENTER
    NEED(is_device(to, size) && is_device(from, size), INVALID_VALUE);
    return put_and_wait(copying(to, from, size));
}
CU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
    ENTER
    NEED(is_device(to, size) && is_host(from, size), INVALID_VALUE);
    return copy_async(stream_of(stream), copying(to, (CUdeviceptr)from, size));
}
CU_API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream) {
    ENTER
    NEED(is_device(from, size) && is_host(to, size), INVALID_VALUE);
    return copy_async(stream_of(stream), copying((CUdeviceptr)to, from, size));
}
CU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
    ENTER
    NEED(is_device(to, size) && is_device(from, size), INVALID_VALUE);
    return copy_async(stream_of(stream), copying(to, from, size));
}
CU_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
    ENTER
    return copy_async(stream_of(stream), copying(to, from, size));
}
CU_API CUresult cuMemcpyPeerAsync(CUdeviceptr to, void *, CUdeviceptr from, void *, size_t size,
                                  void *stream) {
    ENTER
    NEED(is_device(to, size) && is_device(from, size), INVALID_VALUE);
    return copy_async(stream_of(stream), copying(to, from, size));
}

CU_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER
    return fill(to, value, 1, count);
}
CU_API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
    ENTER
    return fill(to, value, 2, count);
}
CU_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    ENTER
    return fill(to, value, 4, count);
}
CU_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void *stream) {
    ENTER
    return fill_async(to, value, 1, count, stream);
}
CU_API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, void *stream) {
    ENTER
    return fill_async(to, value, 2, count, stream);
}
CU_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void *stream) {
    ENTER
    return fill_async(to, value, 4, count, stream);
}
