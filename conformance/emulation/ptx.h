// Instructions of PTX that kernels reach by inline assembly, each a function named after it.
//
// `assembly` turns a statement into a call: outputs are references, inputs values, in the order in
// which the instruction has them. `[a + 4]` comes as a + 4, braces are left out.
#pragma once
#include "cuda.h"

extern "C" unsigned char __start_emulation_shared[] __attribute__((weak, visibility("hidden")));

// Addresses of shared memory have 32 bits: where it begins, and whether it is static or dynamic.
inline size_t __cvta_generic_to_shared(const void *at) {
    size_t dynamic = (size_t)at - (size_t)emulation_dynamic;
    if (emulation_dynamic && dynamic < 1 << 20) return 0x40000000 + dynamic;
    return 0x20000000 + (size_t)at - (size_t)__start_emulation_shared;
}

namespace ptx {
typedef unsigned long long address;
typedef unsigned short ushort;
using emulation::Brain;
using emulation::Half;
using emulation::bits;

inline unsigned char *shared(unsigned at) {
    return at >= 0x40000000 ? emulation_dynamic + (at - 0x40000000)
                            : __start_emulation_shared + (at - 0x20000000);
}

// Matrix products of a warp. A register holds 4 / size elements; `mma` has the layout of m16n8.
struct Tf32 {
    unsigned data;
    operator float() const { return bits<float>(data & 0xffffe000); }  // 10 bits of mantissa count
};
struct Byte {
    signed char data;
    operator int() const { return data; }
};
template <class Element, class Sum, int K> struct Product {
    static const int PER = 4 / sizeof(Element), COLUMNS = 4 * PER, PARTS = K / COLUMNS;
    unsigned a[2 * PARTS], b[PARTS];
    Sum c[4], d[4];

    static Element part(unsigned word, int at) {
        Element elements[PER];
        memcpy(elements, &word, sizeof word);
        return elements[at];
    }
    static void gather(void **brought, Sum (*left)[K], Sum (*right)[8]) {
        for (int lane = 0; lane < 32; lane++)
            for (int part_of = 0; part_of < 2 * PARTS; part_of++)
                for (int at = 0; at < PER; at++) {
                    const Product &own = *(Product *)brought[lane];
                    int k = lane % 4 * PER + at + part_of / 2 * COLUMNS;
                    left[lane / 4 + part_of % 2 * 8][k] = (Sum)part(own.a[part_of], at);
                    if (part_of % 2 == 0) right[k][lane / 4] = (Sum)part(own.b[part_of / 2], at);
                }
    }
    static void complete(void **brought, unsigned present) {
        if (present != ~0u) return;
        Sum left[16][K], right[K][8];
        gather(brought, left, right);
        for (int lane = 0; lane < 32; lane++)
            for (int at = 0; at < 4; at++) {
                Product &own = *(Product *)brought[lane];
                int row = lane / 4 + at / 2 * 8, column = lane % 4 * 2 + at % 2;
                own.d[at] = own.c[at];
                for (int k = 0; k < K; k++) own.d[at] += left[row][k] * right[k][column];
            }
    }
};
inline void need_full_warp(int line) {
    unsigned first = emulation_number() / 32 * 32;
    if (emulation_count() - first < 32) emulation_fail(line, "mma needs a warp of 32 lanes");
}
#define PTX_MMA_2(name, Element, Sum, Register, K) \
    inline void name(Register &d0, Register &d1, Register &d2, Register &d3, unsigned a0, \
                     unsigned a1, unsigned b0, Register c0, Register c1, Register c2, Register c3, \
                     EMULATION_LINE) { \
        need_full_warp(line); \
        Product<Element, Sum, K> mine = { \
            {a0, a1}, {b0}, {(Sum)c0, (Sum)c1, (Sum)c2, (Sum)c3}, {}}; \
        emulation_meet(#name, line, ~0u, &mine, mine.complete); \
        d0 = mine.d[0]; d1 = mine.d[1]; d2 = mine.d[2]; d3 = mine.d[3]; }
#define PTX_MMA_4(name, Element, Sum, Register, K) \
    inline void name(Register &d0, Register &d1, Register &d2, Register &d3, unsigned a0, \
                     unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, Register c0, \
                     Register c1, Register c2, Register c3, EMULATION_LINE) { \
        need_full_warp(line); \
        Product<Element, Sum, K> mine = { \
            {a0, a1, a2, a3}, {b0, b1}, {(Sum)c0, (Sum)c1, (Sum)c2, (Sum)c3}, {}}; \
        emulation_meet(#name, line, ~0u, &mine, mine.complete); \
        d0 = mine.d[0]; d1 = mine.d[1]; d2 = mine.d[2]; d3 = mine.d[3]; }
PTX_MMA_4(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, Half, float, float, 16)
PTX_MMA_4(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, Brain, float, float, 16)
PTX_MMA_4(mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32, Tf32, float, float, 8)
PTX_MMA_4(mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32, Byte, int, unsigned, 32)
PTX_MMA_2(mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32, Half, float, float, 8)
PTX_MMA_2(mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32, Brain, float, float, 8)
PTX_MMA_2(mma_sync_aligned_m16n8k4_row_col_f32_tf32_tf32_f32, Tf32, float, float, 4)
inline void mma_sync_aligned_m16n8k16_row_col_f16_f16_f16_f16(
        unsigned &d0, unsigned &d1, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
        unsigned b1, unsigned c0, unsigned c1, EMULATION_LINE) {
    const __half2 first = bits<__half2>(c0), second = bits<__half2>(c1);
    need_full_warp(line);
    Product<Half, float, 16> mine = {
        {a0, a1, a2, a3}, {b0, b1}, {first.x, first.y, second.x, second.y}, {}};
    emulation_meet("mma_sync", line, ~0u, &mine, mine.complete);
    d0 = bits<unsigned>(__floats2half2_rn(mine.d[0], mine.d[1]));
    d1 = bits<unsigned>(__floats2half2_rn(mine.d[2], mine.d[3]));
}

// Matrices of 8 x 8 from shared memory: lane i brings the address of row i % 8 of matrix i / 8.
struct Rows {
    unsigned at, words[4];
    bool transposed;
    static void complete(void **brought, unsigned) {
        for (int lane = 0; lane < 32; lane++)
            for (int matrix = 0; matrix < 4; matrix++)
                for (int at = 0; at < 2; at++) {
                    Rows *own = (Rows *)brought[lane];
                    int row = lane / 4, column = lane % 4 * 2 + at;
                    if (own->transposed) row = column, column = lane / 4;
                    unsigned from = ((Rows *)brought[matrix * 8 + row])->at;
                    if (from) memcpy((ushort *)&own->words[matrix] + at,
                                     shared(from) + 2 * column, 2);
                }
    }
};
inline Rows load_rows(unsigned at, unsigned matrices, bool transposed, int line) {
    need_full_warp(line);
    if (at % 16 && emulation_number() % 32 < 8 * matrices)
        emulation_fail(line, "ldmatrix: the address of a row is not aligned to 16 bytes");
    Rows mine = {emulation_number() % 32 < 8 * matrices ? at : 0, {}, transposed};
    emulation_meet("ldmatrix", line, ~0u, &mine, Rows::complete);
    return mine;
}
#define PTX_LDMATRIX(suffix, transposed) \
    inline void ldmatrix_sync_aligned_m8n8_x1##suffix( \
            unsigned &a, unsigned at, EMULATION_LINE) { \
        a = load_rows(at, 1, transposed, line).words[0]; } \
    inline void ldmatrix_sync_aligned_m8n8_x2##suffix( \
            unsigned &a, unsigned &b, unsigned at, EMULATION_LINE) { \
        Rows rows = load_rows(at, 2, transposed, line); \
        a = rows.words[0]; b = rows.words[1]; } \
    inline void ldmatrix_sync_aligned_m8n8_x4##suffix( \
            unsigned &a, unsigned &b, unsigned &c, unsigned &d, unsigned at, EMULATION_LINE) { \
        Rows rows = load_rows(at, 4, transposed, line); \
        a = rows.words[0]; b = rows.words[1]; c = rows.words[2]; d = rows.words[3]; }
PTX_LDMATRIX(_shared_b16, false) PTX_LDMATRIX(_trans_shared_b16, true)

// Asynchronous copies arrive when they are waited for, and not before.
struct Transfer {
    unsigned char *to;
    const void *from;
    unsigned size, taken, group;
};
const unsigned MOST_TRANSFERS = 2048;  // far more than the tiles of a product need
struct Transfers {
    unsigned epoch, group, count;
    Transfer all[MOST_TRANSFERS];
};
inline Transfers &transfers(int line) {
    static Transfers of_lanes[1024];
    Transfers &own = of_lanes[emulation_number()];
    if (own.epoch != emulation_epoch) own.epoch = emulation_epoch, own.group = own.count = 0;
    if (own.count == MOST_TRANSFERS)
        emulation_fail(line, "too many cp.async of a lane are under way");
    return own;
}
inline void start_transfer(unsigned to, address from, unsigned size, unsigned taken, int line) {
    if (to % size || from % size) emulation_fail(line, "cp.async: an address is not aligned");
    Transfers &own = transfers(line);
    own.all[own.count++] = {shared(to), (const void *)from, size, taken, own.group};
    memset(shared(to), 0xff, size);  // what is under way there, nobody may read
}
inline void finish_transfers(Transfers &own, unsigned before) {
    unsigned kept = 0;
    for (unsigned at = 0; at < own.count; at++) {
        Transfer each = own.all[at];
        if (each.group >= before) {
            own.all[kept++] = each;
            continue;
        }
        memset(each.to, 0, each.size);
        memcpy(each.to, each.from, each.taken);
    }
    own.count = kept;
}
#define PTX_CP_ASYNC(name) \
    inline void name(unsigned to, address from, unsigned size, EMULATION_LINE) { \
        start_transfer(to, from, size, size, line); } \
    inline void name##_taken(unsigned to, address from, unsigned size, unsigned taken, \
                             EMULATION_LINE) { start_transfer(to, from, size, taken, line); }
PTX_CP_ASYNC(cp_async_ca_shared_global) PTX_CP_ASYNC(cp_async_cg_shared_global)
inline void cp_async_commit_group(EMULATION_LINE) { transfers(line).group++; }
inline void cp_async_wait_group(unsigned open, EMULATION_LINE) {
    Transfers &own = transfers(line);
    finish_transfers(own, own.group > open ? own.group - open : 0);
}
inline void cp_async_wait_all(EMULATION_LINE) { finish_transfers(transfers(line), ~0u); }

// Conversions and approximations.
inline void cvt_rn_f16_f32(ushort &to, float from) { to = Half(from).data; }
inline void cvt_rn_bf16_f32(ushort &to, float from) { to = Brain(from).data; }
inline void cvt_f32_f16(float &to, ushort from) { to = Half::from_bits(from); }
inline void cvt_f32_bf16(float &to, ushort from) { to = Brain::from_bits(from); }
inline void cvt_rn_f16x2_f32(unsigned &to, float high, float low) {
    to = (unsigned)Half(high).data << 16 | Half(low).data;
}
inline void cvt_rn_bf16x2_f32(unsigned &to, float high, float low) {
    to = (unsigned)Brain(high).data << 16 | Brain(low).data;
}
inline void cvt_rna_tf32_f32(unsigned &to, float from) {
    unsigned data = bits<unsigned>(from);
    to = (data & 0x7f800000) == 0x7f800000 ? data : (data + 0x1000) & 0xffffe000;
}
#define PTX_APPROXIMATION(name, value) \
    inline void name##_approx_f32(float &to, float a) { to = value; } \
    inline void name##_approx_ftz_f32(float &to, float a) { to = value; }
PTX_APPROXIMATION(ex2, exp2f(a)) PTX_APPROXIMATION(lg2, log2f(a))
PTX_APPROXIMATION(sin, sinf(a)) PTX_APPROXIMATION(cos, cosf(a))
PTX_APPROXIMATION(rcp, 1 / a) PTX_APPROXIMATION(rsqrt, rsqrtf(a))
PTX_APPROXIMATION(sqrt, sqrtf(a))
inline void tanh_approx_f32(float &to, float a) { to = tanhf(a); }

inline void bar_sync(unsigned number, EMULATION_LINE) {
    if (number) emulation_fail(line, "bar.sync with another number than 0");
    emulation_barrier("bar.sync", line, 0);
}
inline void bar_warp_sync(unsigned mask, EMULATION_LINE) { __syncwarp(mask, line); }
}  // namespace ptx
