// The real results of functions of float32, in double, and distances from them: see accuracy.py.
#include <math.h>
#include <string.h>

// A loop for each function, since some C libraries have these functions for vectors too.
#define FUNCTION(name, value) \
  static void real_##name(const float *given, double *real, long count) { \
    for (long i = 0; i < count; i++) { double x = given[i]; real[i] = (value); } \
  }
#define FUNCTIONS(each) \
  each(exp, exp(x)) each(exp2, exp2(x)) each(log, log(x)) each(log2, log2(x)) \
  each(log10, log10(x)) each(sin, sin(x)) each(cos, cos(x)) each(tan, tan(x)) \
  each(tanh, tanh(x)) each(erf, erf(x)) each(sqrt, sqrt(x)) each(rsqrt, 1 / sqrt(x)) \
  each(reciprocal, 1 / x) each(sigmoid, 1 / (1 + exp(-x)))
FUNCTIONS(FUNCTION)

// The real results of a function; whether it is known.
int real_results(const char *name, const float *given, double *real, long count) {
#define CHOOSE(known, value) \
  if (!strcmp(name, #known)) { real_##known(given, real, count); return 1; }
  FUNCTIONS(CHOOSE)
  return 0;
}

// The distance between a float and the next one, away from zero.
static double unit(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  unsigned long exponent = bits >> 23 & 255, power = (exponent ? exponent : 1) - 150 + 1023;
  power <<= 52;
  double result;
  memcpy(&result, &power, sizeof result);
  return result;
}

// How far a float is from the real result, in units in its last place.
static double distance(float found, double real) {
  const float largest = 0x1.fffffep127f;
  float rounded = (float)real, a = fabsf(found), b = fabsf(rounded);
  if (a <= largest && b <= largest) return fabs(found - real) / unit(rounded);
  if (found == rounded || (a != a && b != b)) return 0;
  // Between the largest float and infinity, either may be what is rounded to.
  return (b > largest && a == largest) || (a > largest && b == largest) ? 1 : INFINITY;
}

void distances(const float *found, const double *real, double *away, long count) {
  for (long i = 0; i < count; i++) away[i] = distance(found[i], real[i]);
}
