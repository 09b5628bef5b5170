// Fibers: stacks that are switched by hand. A few instructions where the machine is known, ucontext
// where it is not. AddressSanitizer is told of each switch.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(FIBERS_PORTABLE)
#define FIBERS_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace fibers {

#if FIBERS_OWN_SWITCH
// Keeps what a function call has to keep on the stack of the fiber that stops, notes its stack
// pointer in `*from`, and goes on where the stack `to` was left. (A jump: a return to where no call
// came from is mispredicted each time.)
extern "C" __attribute__((visibility("hidden"))) void fibers_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.hidden fibers_switch
.globl fibers_switch
.type fibers_switch, @function
fibers_switch:
    endbr64
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
.size fibers_switch, .-fibers_switch
)");
const int KEPT = 6;         // registers on a stopped stack below the address to go on at
const int ADDRESS_AT = 6;   // where that address is
const int ABOVE = 1;        // a word above it, which keeps the stack aligned as after a call
#else
asm(R"(
.text
.hidden fibers_switch
.globl fibers_switch
.type fibers_switch, %function
fibers_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size fibers_switch, .-fibers_switch
)");
const int KEPT = 20;
const int ADDRESS_AT = 11;
const int ABOVE = 0;
#endif
#endif

// One stack and the place where it stopped. `main` is whoever switches to fibers.
struct Fiber {
    char *stack = 0;
    size_t size = 0;
#if FIBERS_OWN_SWITCH
    void *stopped = 0;
#else
    ucontext_t stopped;
#endif
    void *fake = 0;  // AddressSanitizer's
};

inline size_t page() { return (size_t)sysconf(_SC_PAGESIZE); }

// A stack with a page in front that must not be touched.
inline bool allocate(Fiber &fiber, size_t size) {
    void *memory = mmap(0, size + page(), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    mprotect(memory, page(), PROT_NONE);
    fiber.stack = (char *)memory + page();
    fiber.size = size;
    return true;
}

// Lets the fiber begin at `entry`, which never returns. What it had on its stack is forgotten.
// `color` moves the top of the stack, so that stacks of neighbours lie in different cache sets.
inline void begin(Fiber &fiber, void (*entry)(), unsigned color) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber.stack, fiber.size);
#endif
#if FIBERS_OWN_SWITCH
    uintptr_t top = ((uintptr_t)fiber.stack + fiber.size - color % 32 * 128) & ~(uintptr_t)15;
    void **words = (void **)top - KEPT - (ADDRESS_AT == KEPT) - ABOVE;
    for (int at = 0; at < KEPT; at++) words[at] = 0;
    words[ADDRESS_AT] = (void *)entry;
    if (ABOVE) words[ADDRESS_AT + 1] = 0;
    fiber.stopped = words;
#else
    (void)color;
    getcontext(&fiber.stopped);
    fiber.stopped.uc_stack.ss_sp = fiber.stack;
    fiber.stopped.uc_stack.ss_size = fiber.size;
    fiber.stopped.uc_link = 0;
    makecontext(&fiber.stopped, entry, 0);
#endif
    fiber.fake = 0;
}

// Stops `from` and goes on with `to`. `forever`: `from` is not gone back to.
inline void switch_to(Fiber &from, Fiber &to, bool forever = false) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(forever ? 0 : &from.fake, to.stack, to.size);
#endif
    (void)forever;
#if FIBERS_OWN_SWITCH
    fibers_switch(&from.stopped, to.stopped);
#else
    swapcontext(&from.stopped, &to.stopped);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake, 0, 0);
#endif
}

// The first thing that a fiber does. Notes in `main` on which stack it was, if nobody knows yet.
inline void arrived(Fiber &main) {
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(0, &bottom, &size);
    main.stack = (char *)bottom;
    main.size = size;
#else
    (void)main;
#endif
}

}  // namespace fibers
