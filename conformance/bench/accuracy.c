// The real results of functions of float32, in double, and distances from them: see accuracy.py.
#include <math.h>
#include <string.h>

typedef double (*function)(double);

static double rsqrt(double x) { return 1 / sqrt(x); }
static double reciprocal(double x) { return 1 / x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static const struct { const char *name; function real; } functions[] = {
  {"exp", exp}, {"exp2", exp2}, {"log", log}, {"log2", log2}, {"log10", log10}, {"sin", sin},
  {"cos", cos}, {"tan", tan}, {"sinh", sinh}, {"cosh", cosh}, {"tanh", tanh}, {"erf", erf},
  {"sqrt", sqrt}, {"rsqrt", rsqrt}, {"reciprocal", reciprocal}, {"sigmoid", sigmoid}};

// The real results of a function; whether it is known.
int real_results(const char *name, const float *given, double *real, long count) {
  for (unsigned each = 0; each < sizeof functions / sizeof *functions; each++) {
    if (strcmp(functions[each].name, name)) continue;
    for (long i = 0; i < count; i++) real[i] = functions[each].real(given[i]);
    return 1;
  }
  return 0;
}

// The distance between a float and the next one, away from zero.
static double unit(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = bits >> 23 & 255;
  return ldexp(1, (exponent ? exponent : 1) - 150);
}

// How far a float is from the real result, in units in its last place.
static double distance(float found, double real) {
  const float largest = 0x1.fffffep127f;
  float rounded = (float)real, a = fabsf(found), b = fabsf(rounded);
  if (isfinite(a) && isfinite(b)) return fabs(found - real) / unit(rounded);
  if (found == rounded || (isnan(a) && isnan(b))) return 0;
  // Between the largest float and infinity, either may be what is rounded to.
  return (isinf(b) && a == largest) || (isinf(a) && b == largest) ? 1 : INFINITY;
}

void distances(const float *found, const double *real, double *away, long count) {
  for (long i = 0; i < count; i++) away[i] = distance(found[i], real[i]);
}
