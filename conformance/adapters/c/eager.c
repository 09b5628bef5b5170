/* A second implementation of the program language, in C: an eager interpreter in one file.

   Build:  cc -std=gnu11 -O1 -ffp-contract=off -o eager eager.c -lm
   Test:   python -m conformance --impl-cmd ./eager

   It reads messages as JSON lines and answers each with one line.  It executes each statement
   where it stands, on arrays of its own: it claims the tier `values` and nothing else.  Floats are
   computed in double and rounded once to their dtype; integers wrap around in 64 bits, of which
   the low ones are kept.  Little-endian machines only. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Failure: one request fails, the next one is answered ------------------------------- */

static jmp_buf request_failed;
static const char *answer_type;
static char failure[400];

static void fail(const char *type, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure, sizeof failure, format, arguments);
  va_end(arguments);
  answer_type = type;
  longjmp(request_failed, 1);
}

/* ---- Memory: everything that a request needs is freed when it is answered ---------------- */

typedef struct Block { struct Block *next; } Block;
static Block *blocks;

static void *allocate(size_t bytes) {
  Block *block = calloc(1, sizeof(Block) + 16 + bytes);
  if (!block) { fputs("out of memory\n", stderr); exit(1); }
  block->next = blocks;
  blocks = block;
  return (char *)block + 16;
}

static void free_all(void) {
  while (blocks) { Block *next = blocks->next; free(blocks); blocks = next; }
}

/* ---- JSON -------------------------------------------------------------------------------- */

typedef enum { NOTHING, TRUTH, NUMBER, TEXT, LIST, OBJECT } Kind;
typedef struct Json {
  Kind kind;
  double number;
  long long whole;      /* the number, where it is whole */
  char *text;           /* of a TEXT; the key of an entry of an OBJECT is in `key` */
  char *key;
  struct Json *first, *next;
  int count;
} Json;

static const char *cursor;

static void skip_spaces(void) { while (*cursor && strchr(" \t\r\n", *cursor)) cursor++; }

static char *parse_text(void) {
  const char *start = ++cursor;
  while (*cursor && *cursor != '"') cursor += *cursor == '\\' && cursor[1] ? 2 : 1;
  char *text = allocate((size_t)(cursor - start) + 1), *out = text;
  for (const char *c = start; c < cursor; c++) {
    if (*c == '\\') c++;  /* names and data need no escapes; notes may have some */
    *out++ = *c;
  }
  if (*cursor) cursor++;
  return text;
}

static Json *parse(void);

static void parse_items(Json *value, char end) {
  Json **last = &value->first;
  for (cursor++, skip_spaces(); *cursor && *cursor != end; skip_spaces()) {
    char *key = NULL;
    if (end == '}') { key = parse_text(); skip_spaces(); cursor++; }
    *last = parse();
    (*last)->key = key;
    last = &(*last)->next;
    value->count++;
    skip_spaces();
    if (*cursor == ',') { cursor++; skip_spaces(); }
  }
  if (*cursor) cursor++;
}

static void parse_word(Json *value) {
  char *end;
  if (!strncmp(cursor, "true", 4)) { value->kind = TRUTH; value->number = value->whole = 1; cursor += 4; }
  else if (!strncmp(cursor, "false", 5)) { value->kind = TRUTH; cursor += 5; }
  else if (!strncmp(cursor, "null", 4)) cursor += 4;
  else {
    value->kind = NUMBER;
    // A number above 2^63 - 1 is unsigned; its bits are the same.
    value->whole = *cursor == '-' ? strtoll(cursor, NULL, 10)
                                  : (long long)strtoull(cursor, NULL, 10);
    value->number = strtod(cursor, &end);
    if (end == cursor) fail("error", "not JSON at: %.40s", cursor);
    cursor = end;
  }
}

static Json *parse(void) {
  Json *value = allocate(sizeof(Json));
  skip_spaces();
  if (*cursor == '{') { value->kind = OBJECT; parse_items(value, '}'); }
  else if (*cursor == '[') { value->kind = LIST; parse_items(value, ']'); }
  else if (*cursor == '"') { value->kind = TEXT; value->text = parse_text(); }
  else parse_word(value);
  return value;
}

static Json *find(const Json *object, const char *key) {
  for (Json *each = object ? object->first : NULL; each; each = each->next)
    if (each->key && !strcmp(each->key, key)) return each;
  return NULL;
}

static Json *get(const Json *object, const char *key) {
  Json *found = find(object, key);
  if (!found) fail("error", "%s is missing", key);
  return found;
}

static Json *item(const Json *list, int index) {
  Json *each = list->first;
  while (index-- > 0 && each) each = each->next;
  if (!each) fail("error", "a list is too short");
  return each;
}

static int is(const Json *text, const char *word) { return !strcmp(text->text, word); }

/* ---- The answer -------------------------------------------------------------------------- */

static char *answer;
static size_t answer_length, answer_room;

static void append(const char *text, size_t length) {
  if (answer_length + length + 1 > answer_room) {
    answer_room = 2 * (answer_length + length + 1);
    answer = realloc(answer, answer_room);
    if (!answer) { fputs("out of memory\n", stderr); exit(1); }
  }
  memcpy(answer + answer_length, text, length);
  answer[answer_length += length] = 0;
}

static void say(const char *format, ...) {
  char text[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  append(text, strlen(text));
}

/* ---- Dtypes and tensors ------------------------------------------------------------------ */

enum { BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64, DTYPES };
static const char *const NAMES[] = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
                                    "uint32", "uint64", "float16", "float32", "float64"};
static const int SIZES[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};
enum { MOST_AXES = 32 };

typedef struct {
  int dtype, rank;
  long shape[MOST_AXES], size;
  void *data;
} Tensor;

static int is_float(int dtype) { return dtype >= F16; }
static int is_signed(int dtype) { return dtype >= I8 && dtype <= I64; }

static int dtype_of(const Json *name) {
  for (int dtype = 0; dtype < DTYPES; dtype++) if (is(name, NAMES[dtype])) return dtype;
  fail("unsupported", "the dtype %s", name->text);
  return 0;
}

static Tensor *make(int dtype, int rank, const long *shape) {
  Tensor *made = allocate(sizeof(Tensor));
  if (rank > MOST_AXES) fail("unsupported", "more than %d axes", MOST_AXES);
  made->dtype = dtype;
  made->rank = rank;
  made->size = 1;
  for (int axis = 0; axis < rank; axis++) made->size *= made->shape[axis] = shape[axis];
  made->data = allocate((size_t)made->size * (size_t)SIZES[dtype] + 8);
  return made;
}

static int read_shape(const Json *list, long *shape) {
  if (list->count > MOST_AXES) fail("unsupported", "more than %d axes", MOST_AXES);
  int rank = 0;
  for (Json *each = list->first; each; each = each->next) shape[rank++] = (long)each->whole;
  return rank;
}

/* float16 has one bit of sign, five of exponent, ten of fraction. */
static double half_to_double(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31 ? (fraction ? NAN : INFINITY)
      : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return bits >> 15 ? -value : value;
}

static uint16_t double_to_half(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double size = fabs(value);
  if (isnan(value)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;  /* 65504 and a half step more */
  int exponent = 0;
  if (size >= ldexp(1, -14)) { frexp(size, &exponent); exponent += 14; }
  /* The step between neighbours is 2 to the (exponent - 25); nearbyint rounds to even. */
  double steps = nearbyint(ldexp(size, (exponent ? 25 : 24) - exponent));
  return sign | (uint16_t)(exponent ? (exponent << 10) + (int)steps - 1024 : (int)steps);
}

static double get_float(const Tensor *x, long i) {
  switch (x->dtype) {
    case F16: return half_to_double(((uint16_t *)x->data)[i]);
    case F32: return ((float *)x->data)[i];
    default: return ((double *)x->data)[i];
  }
}

static void set_float(Tensor *x, long i, double value) {
  switch (x->dtype) {
    case F16: ((uint16_t *)x->data)[i] = double_to_half(value); break;
    case F32: ((float *)x->data)[i] = (float)value; break;
    default: ((double *)x->data)[i] = value;
  }
}

static uint64_t get_whole(const Tensor *x, long i) {
  switch (x->dtype) {
    case I8: return (uint64_t)((int8_t *)x->data)[i];
    case I16: return (uint64_t)((int16_t *)x->data)[i];
    case I32: return (uint64_t)((int32_t *)x->data)[i];
    case U16: return ((uint16_t *)x->data)[i];
    case U32: return ((uint32_t *)x->data)[i];
    case I64: case U64: return ((uint64_t *)x->data)[i];
    default: return ((uint8_t *)x->data)[i];
  }
}

static void set_whole(Tensor *x, long i, uint64_t value) {
  if (x->dtype == BOOL) value = value != 0;
  memcpy((char *)x->data + i * SIZES[x->dtype], &value, (size_t)SIZES[x->dtype]);
}

static void copy_element(Tensor *to, long i, const Tensor *from, long j) {
  int size = SIZES[to->dtype];
  memcpy((char *)to->data + i * size, (char *)from->data + j * size, (size_t)size);
}

/* ---- Element by element ------------------------------------------------------------------ */

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; }
static double smaller(double a, double b) { return isnan(a) || a < b ? a : b; }

static double float_unary(const char *word, double x) {
  if (!strcmp(word, "neg")) return -x;
  if (!strcmp(word, "abs")) return fabs(x);
  if (!strcmp(word, "relu")) return larger(x, 0);
  if (!strcmp(word, "exp")) return exp(x);
  if (!strcmp(word, "log")) return log(x);
  if (!strcmp(word, "sqrt")) return sqrt(x);
  if (!strcmp(word, "sin")) return sin(x);
  if (!strcmp(word, "tanh")) return tanh(x);
  if (!strcmp(word, "reciprocal")) return 1 / x;
  return x;  /* contiguous, copy */
}

static uint64_t whole_unary(const char *word, uint64_t x, int dtype) {
  int negative = is_signed(dtype) && (int64_t)x < 0;
  if (!strcmp(word, "neg")) return 0 - x;
  if (!strcmp(word, "abs")) return negative ? 0 - x : x;
  if (!strcmp(word, "relu")) return negative ? 0 : x;
  if (!strcmp(word, "not")) return dtype == BOOL ? !x : ~x;
  return x;
}

static double float_binary(const char *word, double a, double b) {
  if (!strcmp(word, "add")) return a + b;
  if (!strcmp(word, "sub")) return a - b;
  if (!strcmp(word, "mul")) return a * b;
  if (!strcmp(word, "div")) return a / b;
  if (!strcmp(word, "pow")) return pow(a, b);
  if (!strcmp(word, "maximum")) return larger(a, b);
  return smaller(a, b);
}

static int whole_less(uint64_t a, uint64_t b, int dtype) {
  return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

/* Rounded down; a division by zero gives zero, as quotient and as remainder. */
static uint64_t divide(uint64_t a, uint64_t b, int dtype, int remainder) {
  if (!b) return 0;
  if (!is_signed(dtype)) return remainder ? a % b : a / b;
  if (b == UINT64_MAX) return remainder ? 0 : 0 - a;  /* by -1: the one that overflows */
  int64_t quotient = (int64_t)a / (int64_t)b, rest = (int64_t)a % (int64_t)b;
  if (rest && (rest < 0) != ((int64_t)b < 0)) { quotient--; rest += (int64_t)b; }
  return (uint64_t)(remainder ? rest : quotient);
}

static uint64_t whole_binary(const char *word, uint64_t a, uint64_t b, int dtype) {
  if (!strcmp(word, "add")) return a + b;
  if (!strcmp(word, "sub")) return a - b;
  if (!strcmp(word, "mul")) return a * b;
  if (!strcmp(word, "floordiv")) return divide(a, b, dtype, 0);
  if (!strcmp(word, "mod")) return divide(a, b, dtype, 1);
  if (!strcmp(word, "maximum")) return whole_less(a, b, dtype) ? b : a;
  if (!strcmp(word, "minimum")) return whole_less(b, a, dtype) ? b : a;
  if (!strcmp(word, "and")) return a & b;
  if (!strcmp(word, "or")) return a | b;
  return a ^ b;
}

static int compared(const char *word, const Tensor *a, const Tensor *b, long i) {
  int less, equal;
  if (is_float(a->dtype)) {
    double x = get_float(a, i), y = get_float(b, i);
    less = x < y, equal = x == y;
  } else {
    uint64_t x = get_whole(a, i), y = get_whole(b, i);
    less = whole_less(x, y, a->dtype), equal = x == y;
  }
  return !strcmp(word, "equal") ? equal : !strcmp(word, "less") ? less : less || equal;
}

static int one_of(const char *word, const char *const *words) {
  for (; *words; words++) if (!strcmp(word, *words)) return 1;
  return 0;
}

static const char *const UNARY[] = {"neg", "abs", "relu", "not", "exp", "log", "sqrt", "sin", "tanh",
                                    "reciprocal", "contiguous", "copy", NULL};
static const char *const BINARY[] = {"add", "sub", "mul", "div", "floordiv", "mod", "maximum",
                                     "minimum", "pow", "and", "or", "xor", NULL};
static const char *const COMPARISONS[] = {"less", "less_equal", "equal", NULL};
static const char *const MOVEMENTS[] = {"reshape", "expand", "permute", "pad", "shrink", "flip",
                                        "stride", NULL};
static const char *const REDUCTIONS[] = {"sum", "prod", "max", "min", "mean", NULL};
static const char *const OTHERS[] = {"input", "constant", "where", "cast", "bitcast", "matmul",
                                     "softmax", "cumsum", "gather", "assign", "store", "realize",
                                     "drop", "observe", "repeat", "calls", NULL};

static Tensor *elementwise(const char *word, Tensor *a, Tensor *b) {
  int comparison = one_of(word, COMPARISONS);
  Tensor *made = make(comparison ? BOOL : a->dtype, a->rank, a->shape);
  for (long i = 0; i < made->size; i++) {
    if (comparison) set_whole(made, i, (uint64_t)compared(word, a, b, i));
    else if (is_float(a->dtype))
      set_float(made, i, b ? float_binary(word, get_float(a, i), get_float(b, i))
                           : float_unary(word, get_float(a, i)));
    else
      set_whole(made, i, b ? whole_binary(word, get_whole(a, i), get_whole(b, i), a->dtype)
                           : whole_unary(word, get_whole(a, i), a->dtype));
  }
  return made;
}

static Tensor *chosen(Tensor *condition, Tensor *a, Tensor *b) {
  Tensor *made = make(a->dtype, a->rank, a->shape);
  for (long i = 0; i < made->size; i++)
    copy_element(made, i, get_whole(condition, i) ? a : b, i);
  return made;
}

/* Out of range there is no right answer; it is zero here. */
static uint64_t cut_off(double x, int dtype) {
  if (isnan(x) || x < -9223372036854775808.0) return 0;
  if (dtype == U64 && x >= 9223372036854775808.0 && x < 18446744073709551616.0) return (uint64_t)x;
  return x >= 9223372036854775808.0 ? 0 : (uint64_t)(int64_t)x;
}

static Tensor *cast(Tensor *x, int dtype) {
  Tensor *made = make(dtype, x->rank, x->shape);
  for (long i = 0; i < x->size; i++) {
    if (is_float(x->dtype)) {
      double value = get_float(x, i);
      if (is_float(dtype)) set_float(made, i, value);
      else set_whole(made, i, dtype == BOOL ? value != 0 : cut_off(value, dtype));
      continue;
    }
    uint64_t value = get_whole(x, i);
    if (!is_float(dtype)) set_whole(made, i, value);
    else if (dtype == F32)  /* rounded once, and not to a double first */
      ((float *)made->data)[i] = is_signed(x->dtype) ? (float)(int64_t)value : (float)value;
    else set_float(made, i, is_signed(x->dtype) ? (double)(int64_t)value : (double)value);
  }
  return made;
}

/* ---- Places ------------------------------------------------------------------------------ */

/* The place after this one, row by row; of no axes there is one place. */
static void advance(long *at, const long *shape, int rank) {
  for (int axis = rank - 1; axis >= 0; axis--) {
    if (++at[axis] < shape[axis]) return;
    at[axis] = 0;
  }
}

static long offset(const long *at, const long *shape, int rank) {
  long place = 0;
  for (int axis = 0; axis < rank; axis++) place = place * shape[axis] + at[axis];
  return place;
}

static int moved_shape(const Json *step, const Tensor *x, long *shape) {
  const Json *word = get(step, "do");
  if (is(word, "reshape") || is(word, "expand")) return read_shape(get(step, "shape"), shape);
  for (int axis = 0; axis < x->rank; axis++) {
    if (is(word, "permute")) shape[axis] = x->shape[item(get(step, "order"), axis)->whole];
    else if (is(word, "stride")) {
      long every = (long)item(get(step, "steps"), axis)->whole;
      shape[axis] = (x->shape[axis] + every - 1) / every;
    } else if (is(word, "shrink")) {
      Json *bounds = item(get(step, "bounds"), axis);
      shape[axis] = (long)(item(bounds, 1)->whole - item(bounds, 0)->whole);
    } else if (is(word, "pad")) {
      Json *widths = item(get(step, "widths"), axis);
      shape[axis] = x->shape[axis] + (long)(item(widths, 0)->whole + item(widths, 1)->whole);
    } else shape[axis] = x->shape[axis];
  }
  return x->rank;
}

static int flips(const Json *step, int axis) {
  for (Json *each = get(step, "axes")->first; each; each = each->next)
    if (each->whole == axis) return 1;
  return 0;
}

/* Where in x an element of the moved tensor comes from; outside of x: from nowhere. */
static void source_place(const Json *step, const Tensor *x, const long *at, long *from) {
  const Json *word = get(step, "do");
  for (int axis = 0; axis < x->rank; axis++) {
    if (is(word, "expand")) from[axis] = x->shape[axis] == 1 ? 0 : at[axis];
    else if (is(word, "permute")) from[item(get(step, "order"), axis)->whole] = at[axis];
    else if (is(word, "stride"))
      from[axis] = at[axis] * (long)item(get(step, "steps"), axis)->whole;
    else if (is(word, "shrink"))
      from[axis] = at[axis] + (long)item(item(get(step, "bounds"), axis), 0)->whole;
    else if (is(word, "pad"))
      from[axis] = at[axis] - (long)item(item(get(step, "widths"), axis), 0)->whole;
    else from[axis] = flips(step, axis) ? x->shape[axis] - 1 - at[axis] : at[axis];
  }
}

static Tensor *move(const Json *step, Tensor *x) {
  long shape[MOST_AXES], at[MOST_AXES] = {0}, from[MOST_AXES];
  int rank = moved_shape(step, x, shape);
  Tensor *made = make(x->dtype, rank, shape);
  for (long i = 0; i < made->size; i++, advance(at, shape, rank)) {
    if (is(get(step, "do"), "reshape")) { copy_element(made, i, x, i); continue; }
    source_place(step, x, at, from);
    int inside = 1;
    for (int axis = 0; axis < x->rank; axis++)
      inside = inside && from[axis] >= 0 && from[axis] < x->shape[axis];
    if (inside) copy_element(made, i, x, offset(from, x->shape, x->rank));
  }
  return made;
}

/* ---- Along axes -------------------------------------------------------------------------- */

/* What has been combined so far: halves are added up in singles, other floats in doubles. */
static double combine_floats(const char *word, double total, double x, int dtype) {
  if (!strcmp(word, "prod")) return total * x;
  if (!strcmp(word, "max")) return larger(total, x);
  if (!strcmp(word, "min")) return smaller(total, x);
  return dtype == F16 ? (float)(total + x) : total + x;
}

static uint64_t combine_wholes(const char *word, uint64_t total, uint64_t x, int dtype) {
  if (!strcmp(word, "prod")) return total * x;
  if (!strcmp(word, "max")) return whole_binary("maximum", total, x, dtype);
  if (!strcmp(word, "min")) return whole_binary("minimum", total, x, dtype);
  return total + x;
}

static Tensor *reduce(const Json *statement, Tensor *x) {
  const char *word = get(statement, "do")->text;
  long kept[MOST_AXES], shape[MOST_AXES], at[MOST_AXES] = {0}, to[MOST_AXES];
  int rank = 0, keep = get(statement, "keepdims")->whole != 0;
  long count = 1;
  for (int axis = 0; axis < x->rank; axis++) {
    int gone = flips(statement, axis);
    kept[axis] = gone ? 1 : x->shape[axis];
    if (gone) count *= x->shape[axis];
    if (!gone || keep) shape[rank++] = kept[axis];
  }
  Tensor *made = make(x->dtype, rank, shape);
  double *floats = allocate((size_t)made->size * sizeof(double) + 8);
  uint64_t *wholes = allocate((size_t)made->size * sizeof(uint64_t) + 8);
  char *begun = allocate((size_t)made->size + 1);
  for (long i = 0; i < x->size; i++, advance(at, x->shape, x->rank)) {
    for (int axis = 0; axis < x->rank; axis++) to[axis] = kept[axis] == 1 ? 0 : at[axis];
    long place = offset(to, kept, x->rank);
    if (is_float(x->dtype))
      floats[place] = begun[place] ? combine_floats(word, floats[place], get_float(x, i), x->dtype)
                                   : get_float(x, i);
    else
      wholes[place] = begun[place] ? combine_wholes(word, wholes[place], get_whole(x, i), x->dtype)
                                   : get_whole(x, i);
    begun[place] = 1;
  }
  for (long i = 0; i < made->size; i++) {
    double nothing = strcmp(word, "prod") ? 0 : 1;
    double total = begun[i] ? floats[i] : nothing;
    if (!strcmp(word, "mean")) total /= (double)count;
    if (is_float(x->dtype)) set_float(made, i, total);
    else set_whole(made, i, begun[i] ? wholes[i] : (uint64_t)nothing);
  }
  return made;
}

static Tensor *along(const Json *statement, Tensor *x) {
  int axis = (int)get(statement, "axis")->whole, softmax = is(get(statement, "do"), "softmax");
  Tensor *made = make(x->dtype, x->rank, x->shape);
  long step = 1, length = x->shape[axis];
  for (int other = axis + 1; other < x->rank; other++) step *= x->shape[other];
  for (long line = 0; length && line < x->size / length; line++) {
    long start = line / step * step * length + line % step;
    double highest = -INFINITY, total = 0;
    uint64_t whole = 0;
    for (long i = 0; softmax && i < length; i++)
      highest = larger(get_float(x, start + i * step), highest);
    for (long i = 0; i < length; i++) {
      long place = start + i * step;
      if (softmax) total += exp(get_float(x, place) - highest);
      else if (!is_float(x->dtype)) set_whole(made, place, whole += get_whole(x, place));
      else set_float(made, place,
                     total = combine_floats("sum", total, get_float(x, place), x->dtype));
    }
    for (long i = 0; softmax && i < length; i++)
      set_float(made, start + i * step, exp(get_float(x, start + i * step) - highest) / total);
  }
  return made;
}

static Tensor *product(Tensor *a, Tensor *b) {
  long shape[MOST_AXES], rows = a->shape[a->rank - 2], inner = a->shape[a->rank - 1];
  long columns = b->shape[b->rank - 1];
  memcpy(shape, a->shape, sizeof shape);
  shape[a->rank - 1] = columns;
  Tensor *made = make(a->dtype, a->rank, shape);
  for (long place = 0; place < made->size; place++) {
    long row = place / columns, column = place % columns, batch = row / rows;
    double total = 0;
    uint64_t whole = 0;
    for (long k = 0; k < inner; k++) {
      long left = row * inner + k, right = (batch * inner + k) * columns + column;
      if (is_float(a->dtype)) total += get_float(a, left) * get_float(b, right);
      else whole += get_whole(a, left) * get_whole(b, right);
    }
    if (is_float(a->dtype)) set_float(made, place, total);
    else set_whole(made, place, whole);
  }
  return made;
}

static Tensor *gather(Tensor *x, Tensor *index) {
  long shape[2 * MOST_AXES], row = 1;
  int rank = index->rank + x->rank - 1;
  if (rank > MOST_AXES) fail("unsupported", "more than %d axes", MOST_AXES);
  memcpy(shape, index->shape, (size_t)index->rank * sizeof(long));
  for (int axis = 1; axis < x->rank; axis++) {
    shape[index->rank + axis - 1] = x->shape[axis];
    row *= x->shape[axis];
  }
  Tensor *made = make(x->dtype, rank, shape);
  for (long i = 0; i < index->size; i++) {
    uint64_t from = get_whole(index, i);
    if (from >= (uint64_t)x->shape[0]) continue;  /* means nothing in particular */
    for (long j = 0; j < row; j++) copy_element(made, i * row + j, x, (long)from * row + j);
  }
  return made;
}

/* ---- Variables --------------------------------------------------------------------------- */

typedef struct { char *name; Tensor *value; } Variable;
static Variable *variables;
static int variable_count, variable_room;

/* The arguments of the present call, of `calls`: other names of variables, and numbers. */
static const Json *arguments;

static const char *meant(const char *name) {
  const Json *given = find(arguments, name);
  return given && given->kind == TEXT ? given->text : name;
}

static Variable *look_up(const char *name) {
  for (int i = variable_count - 1; i >= 0; i--)
    if (variables[i].value && !strcmp(variables[i].name, meant(name))) return &variables[i];
  return NULL;
}

static Tensor *value_of(const Json *name) {
  Variable *found = look_up(name->text);
  if (!found) fail("error", "%s is not defined", name->text);
  return found->value;
}

static void define(char *name, Tensor *value) {
  Variable *known = look_up(name);
  if (known) { known->value = value; return; }
  if (variable_count == variable_room) {
    variable_room = 2 * variable_room + 64;
    variables = realloc(variables, (size_t)variable_room * sizeof(Variable));
    if (!variables) { fputs("out of memory\n", stderr); exit(1); }
  }
  variables[variable_count++] = (Variable){name, value};
}

/* ---- Statements -------------------------------------------------------------------------- */

static Tensor *input(const Json *statement) {
  long shape[MOST_AXES];
  int rank = read_shape(get(statement, "shape"), shape);
  Tensor *made = make(dtype_of(get(statement, "dtype")), rank, shape);
  const char *data = get(statement, "data")->text;
  long bytes = made->size * SIZES[made->dtype];
  if ((long)strlen(data) != 2 * bytes) fail("error", "the data has not %ld bytes", bytes);
  for (long i = 0; i < bytes; i++) {
    char digits[3] = {data[2 * i], data[2 * i + 1], 0};
    ((uint8_t *)made->data)[i] = (uint8_t)strtoul(digits, NULL, 16);
  }
  return made;
}

static Tensor *constant(const Json *statement) {
  long shape[MOST_AXES];
  int rank = read_shape(get(statement, "shape"), shape);
  Tensor *made = make(dtype_of(get(statement, "dtype")), rank, shape);
  const Json *value = get(statement, "value");
  if (value->kind == OBJECT) value = get(arguments, get(value, "given")->text);
  double number = value->kind == TEXT ? strtod(value->text, NULL) : value->number;
  for (long i = 0; i < made->size; i++) {
    if (is_float(made->dtype)) set_float(made, i, number);
    else set_whole(made, i, (uint64_t)value->whole);
  }
  return made;
}

static Tensor *bitcast(Tensor *x, int dtype) {
  if (SIZES[dtype] != SIZES[x->dtype]) fail("error", "elements of other sizes");
  Tensor *made = make(dtype, x->rank, x->shape);
  memcpy(made->data, x->data, (size_t)(x->size * SIZES[dtype]));
  return made;
}

static Tensor *evaluate(const Json *statement) {
  const Json *word = get(statement, "do"), *from;
  Tensor *sources[3] = {NULL, NULL, NULL};
  if (is(word, "input")) return input(statement);
  if (is(word, "constant")) return constant(statement);
  from = get(statement, "from");
  for (int i = 0; i < from->count && i < 3; i++) sources[i] = value_of(item(from, i));
  if (one_of(word->text, UNARY) || one_of(word->text, BINARY) || one_of(word->text, COMPARISONS))
    return elementwise(word->text, sources[0], sources[1]);
  if (one_of(word->text, MOVEMENTS)) return move(statement, sources[0]);
  if (one_of(word->text, REDUCTIONS)) return reduce(statement, sources[0]);
  if (is(word, "where")) return chosen(sources[0], sources[1], sources[2]);
  if (is(word, "cast")) return cast(sources[0], dtype_of(get(statement, "dtype")));
  if (is(word, "bitcast")) return bitcast(sources[0], dtype_of(get(statement, "dtype")));
  if (is(word, "softmax") || is(word, "cumsum")) return along(statement, sources[0]);
  if (is(word, "matmul")) return product(sources[0], sources[1]);
  if (is(word, "gather")) return gather(sources[0], sources[1]);
  fail("unsupported", "%s", word->text);
  return NULL;
}

/* A region of the target gets the elements of a value: the region is found by moving numbers. */
static void store(const Json *statement) {
  Tensor *target = value_of(get(statement, "target")), *value;
  Tensor *numbers = make(I64, target->rank, target->shape);
  value = value_of(item(get(statement, "from"), 0));
  for (long i = 0; i < numbers->size; i++) set_whole(numbers, i, (uint64_t)i);
  const Json *view = find(statement, "view");
  for (Json *step = view ? view->first : NULL; step; step = step->next)
    numbers = move(step, numbers);
  Tensor *before = bitcast(value, value->dtype);  /* the value may be the target itself */
  for (long i = 0; i < numbers->size; i++)
    copy_element(target, (long)get_whole(numbers, i), before, i);
}

static int observed;

static void observe(const Json *name) {
  static const char DIGITS[] = "0123456789abcdef";
  Tensor *x = value_of(name);
  say("%s{\"name\": \"%s\", \"dtype\": \"%s\", \"shape\": [", observed++ ? ", " : "",
      meant(name->text), NAMES[x->dtype]);
  for (int axis = 0; axis < x->rank; axis++) say("%s%ld", axis ? ", " : "", x->shape[axis]);
  say("], \"data\": \"");
  for (long i = 0; i < x->size * SIZES[x->dtype]; i++) {
    uint8_t byte = ((uint8_t *)x->data)[i];
    char digits[2] = {DIGITS[byte >> 4], DIGITS[byte & 15]};
    append(digits, 2);
  }
  say("\"}");
}

static void execute(const Json *statements);

static void repeat(const Json *statement) {
  const Json *given = find(statement, "given");
  if (!given)
    for (long i = 0; i < (long)get(statement, "count")->whole; i++)
      execute(get(statement, "statements"));
  else
    for (Json *each = given->first; each; each = each->next) {
      arguments = each;
      execute(get(statement, "statements"));
      arguments = NULL;
    }
}

static void execute(const Json *statements) {
  for (Json *each = statements->first; each; each = each->next) {
    const Json *word = get(each, "do"), *names = find(each, "names");
    if (is(word, "repeat") || is(word, "calls")) repeat(each);
    else if (is(word, "assign") || is(word, "store")) store(each);
    else if (is(word, "observe"))
      for (Json *name = names->first; name; name = name->next) observe(name);
    else if (is(word, "drop"))
      for (Json *name = names->first; name; name = name->next) {
        value_of(name);
        look_up(name->text)->value = NULL;
      }
    else if (!is(word, "realize")) define(get(each, "to")->text, evaluate(each));
  }
}

/* ---- Messages ---------------------------------------------------------------------------- */

static int named;

static void say_names(const char *const *words) {
  for (; *words; words++) say("%s\"%s\"", named++ ? ", " : "", *words);
}

static void introduce(void) {
  named = 0;
  say("{\"type\": \"started\", \"info\": {\"name\": \"eager.c\", \"version\": \"1\", "
      "\"language\": \"C\", \"observes\": [\"values\"], \"statements\": [");
  say_names(UNARY);
  say_names(BINARY);
  say_names(COMPARISONS);
  say_names(MOVEMENTS);
  say_names(REDUCTIONS);
  say_names(OTHERS);
  say("]}}");
}

static void respond(const char *line) {
  volatile long long sequence = 0;
  answer_length = 0;
  variable_count = observed = 0;
  arguments = NULL;
  if (setjmp(request_failed)) {
    for (char *c = failure; *c; c++) if (*c == '"' || *c == '\\' || *c < ' ') *c = '\'';
    answer_length = 0;
    int unsupported = !strcmp(answer_type, "unsupported");
    say("{\"type\": \"%s\", \"seq\": %lld, \"%s\": \"%s\"%s}", answer_type, sequence,
        unsupported ? "what" : "message", failure, unsupported ? "" : ", \"traceback\": \"\"");
    return;
  }
  cursor = line;
  const Json *message = parse(), *type = get(message, "type");
  if (is(type, "start")) { introduce(); return; }
  if (is(type, "stop")) exit(0);
  sequence = get(message, "seq")->whole;
  say("{\"type\": \"ok\", \"seq\": %lld, \"observation\": {\"values\": [", (long long)sequence);
  if (is(type, "run")) execute(get(get(message, "program"), "statements"));
  say("]}}");
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    respond(line);
    puts(answer);
    fflush(stdout);
    free_all();
  }
  free(line);
  return 0;
}
