"""Products of matrices by a processor's unit for them: AMX. Chapter: spec/functions.md.

The unit multiplies tiles: 16 rows of 64 bytes by 16 rows of 64 bytes, of which each has 16 words,
a word for each column: four int8 or two bfloat16 that follow each other in the sum. So the second
operand is put in that order first, up to 8 panels of 32 columns at a time. 32 rows of the first are
read for all of these: as they lie, unless they lie so far apart that the first cache, which has few
places for each address, would not hold them. Then they are copied side by side.
"""
from __future__ import annotations

#: Asks the system, once, whether this process may use the unit: it has more registers to keep.
TILES_ALLOWED = """static int tiles_allowed(void) {
#if defined(__AMX_TILE__) && defined(__linux__) && defined(__x86_64__)
  static int known;
  if (!known) {
    long status;
    __asm__ volatile("syscall" : "=a"(status) : "a"(158L), "D"(0x1023L), "S"(18L)
                     : "rcx", "r11", "memory");
    known = status == 0 ? 1 : -1;
  }
  return known > 0;
#else
  return 0;
#endif
}"""

#: 16 words of the panel, where the rows lie side by side. GCC takes a vector apart where it has to
#: convert it to more than twice its width.
_PAIR = ("(__builtin_convertvector((u8x16)*(const u8x16u *)(at + %s * bk), u16x16)"
         " | __builtin_convertvector((u8x16)*(const u8x16u *)(at + %s * bk), u16x16) << 8)")
_WORDS = {
    "i8": f"""__builtin_convertvector({_PAIR % (0, 1)}, u32x16)
            | __builtin_convertvector({_PAIR % (2, 3)}, u32x16) << 16""",
    "bf16": """__builtin_convertvector((u16x16)*(const u16x16u *)at, u32x16)
            | __builtin_convertvector((u16x16)*(const u16x16u *)(at + bk), u32x16) << 16""",
}

_TILES = """static void tiles_$T($S *c, long cs, const $E *a, long as, const $E *b,
                      long bk, long bn, long rows, long columns, long depth) {
#if defined(__AMX_$M__) && defined(__linux__) && defined(__x86_64__)
  if (tiles_allowed()) {
    struct { unsigned char palette, start, none[14]; unsigned short bytes[16];
             unsigned char rows[16]; } shape = {1};
    for (int t = 0; t < 8; t++) shape.bytes[t] = 64, shape.rows[t] = 16;
    __attribute__((aligned(64))) $E panels[8 * 32 * 16 * $D], part[32 * 16 * $D];
    __attribute__((aligned(64))) $S sums[32 * 32];
    __asm__ volatile("ldtilecfg %0" : : "m"(shape));
    for (long first = 0; first < columns; first += 256) for (long k = 0; k < depth; k += 16 * $D) {
      long end = columns - first < 256 ? columns : first + 256;
      long deep = depth - k < 16 * $D ? depth - k : 16 * $D, turns = (deep + $D - 1) / $D;
      for (long j = first; j < end; j += 32) for (long w = 0; w < 16 * turns; w++) {
        const $E *at = b + (k + $W * w) * bk + j * bn;
        $E *to = panels + 16 * $D * (j - first) + 32 * $W * w;
        long wide = end - j < 32 ? end - j : 32;
        if (bn == 1 && wide == 32 && $W * w + $W <= deep) {
          for (long h = 0; h < 2; h++, at += 16, to += 16 * $W)
            *(u32x16u *)to = $L;
        } else if (bk == 1 && wide == 32 && $W * w + $W <= deep) {
          for (long n = 0; n < 32; n++) __builtin_memcpy(to + $W * n, at + n * bn, 4);
        } else {
          for (long n = 0; n < 32; n++) for (long l = 0; l < $W; l++)
            to[$W * n + l] = n < wide && $W * w + l < deep ? at[l * bk + n * bn] : 0;
        }
      }
      for (long i = 0; i < rows; i += 32) {
        long high = rows - i < 32 ? rows - i : 32, by = as, on = $D;
        const $E *from = a + i * as + k;
        long whole = deep / $D, left = deep % $D * sizeof *from;
        if (high < 32 || left || (end - first > 64 && as * sizeof *from % 2048 == 0)) {
          if (high < 32 || left) __builtin_memset(part, 0, sizeof part);
          for (long r = 0; r < high; r++, from += as) {
            $E *to = part + $D * r;
            for (long t = 0; t < whole; t++)
              __builtin_memcpy(to + 32 * $D * t, from + $D * t, 64);
            if (left) __builtin_memcpy(to + 32 * $D * whole, from + $D * whole, left);
          }
          from = part, by = $D, on = 32 * $D;
        }
        for (long j = first; j < end; j += 32) {
          long wide = end - j < 32 ? end - j : 32, inside = high == 32 && wide == 32;
          const $E *of = panels + 16 * $D * (j - first);
          $S *out = inside ? c + i * cs + j : sums;
          long os = 4 * (inside ? cs : 32);
          if (k && !inside) for (long r = 0; r < high; r++)
            __builtin_memcpy(sums + 32 * r, c + (i + r) * cs + j, 4 * wide);
          if (k) __asm__ volatile(
            "tileloadd (%0,%4,1), %%tmm0\\n tileloadd (%1,%4,1), %%tmm1\\n"
            "tileloadd (%2,%4,1), %%tmm2\\n tileloadd (%3,%4,1), %%tmm3" : : "r"(out),
            "r"(out + 16), "r"(out + 4 * os), "r"(out + 4 * os + 16), "r"(os) : "memory");
          else __asm__ volatile("tilezero %tmm0\\n tilezero %tmm1\\n"
                                "tilezero %tmm2\\n tilezero %tmm3");
          for (long t = 0; t < turns; t++) __asm__ volatile(
            "tileloadd (%0,%4,1), %%tmm4\\n tileloadd (%2,%5,1), %%tmm6\\n"
            "tileloadd (%3,%5,1), %%tmm7\\n tileloadd (%1,%4,1), %%tmm5\\n"
            "$I %%tmm6, %%tmm4, %%tmm0\\n $I %%tmm7, %%tmm4, %%tmm1\\n"
            "$I %%tmm6, %%tmm5, %%tmm2\\n $I %%tmm7, %%tmm5, %%tmm3" : : "r"(from + on * t),
            "r"(from + on * t + 16 * by), "r"(of + 32 * $D * t),
            "r"((const char *)(of + 32 * $D * t) + 64), "r"(by * (64 / $D)), "r"(128L) : "memory");
          __asm__ volatile(
            "tilestored %%tmm0, (%0,%4,1)\\n tilestored %%tmm1, (%1,%4,1)\\n"
            "tilestored %%tmm2, (%2,%4,1)\\n tilestored %%tmm3, (%3,%4,1)" : : "r"(out),
            "r"(out + 16), "r"(out + 4 * os), "r"(out + 4 * os + 16), "r"(os) : "memory");
          if (!inside) for (long r = 0; r < high; r++)
            __builtin_memcpy(c + (i + r) * cs + j, sums + 32 * r, 4 * wide);
        }
      }
    }
    __asm__ volatile("tilerelease");
    return;
  }
#endif
  for (long i = 0; i < rows; i++) for (long j = 0; j < columns; j++) {
    $S sum = 0;
    for (long k = 0; k < depth; k++)
      sum = $A;
    c[i * cs + j] = sum;
  }
}"""


def _tiles(kind: str, element: str, result: str, words: int, feature: str, instruction: str,
           added: str) -> str:
    """The function for operands of a type. `c += a b`: `as`, `bk`, `bn`, `cs` are how far the rows
    of a, the rows and columns of b, and the rows of c are apart.
    """
    text = _TILES.replace("$L", _WORDS[kind]).replace("$A", added)
    for mark, value in (("$T", kind), ("$E", element), ("$S", result), ("$W", str(words)),
                        ("$M", feature), ("$I", instruction), ("$D", str(16 * words))):
        text = text.replace(mark, value)
    return text


#: The functions, by their names.
TILES = {
    "tiles_allowed": TILES_ALLOWED,
    "tiles_i8": _tiles("i8", "signed char", "int", 4, "INT8", "tdpbssd",
                       "sum + a[i * as + k] * b[k * bk + j * bn]"),
    "tiles_bf16": _tiles("bf16", "unsigned short", "float", 2, "BF16", "tdpbf16ps",
                         "fma_f32(from_bfloat16(a[i * as + k]), "
                         "from_bfloat16(b[k * bk + j * bn]), sum)"),
}

__all__ = ["TILES"]
