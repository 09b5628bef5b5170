/* Eight threads run tables of kernels with phases, whose results tell when a part is run twice, not
   at all, or before the phase in front of it is over; when more threads share it than may, or when
   two have the same memory; and when one takes parts of others before its own. With an argument, the process also forks while
   they do so, and the child runs the same. Built and run by test_cpu_threads.py. */
#include "runtime.c"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define PARTS 8
#define EACH 100

/* Arguments: numbers, results, the number of parts, the total. */
static void summed(void **arguments, long thread, long phase, char *scratch) {
  long *numbers = arguments[0], *results = arguments[1], *sums = (long *)scratch, total = 0;
  if (phase == 0) {
    if (thread == 0 && numbers[0] % 50 == 0) usleep(200); /* others take the other parts */
    sums[thread] = 0;
    for (long i = thread * EACH; i < (thread + 1) * EACH; i++) sums[thread] += numbers[i];
    return;
  }
  for (long i = 0; i < *(long *)arguments[2]; i++) total += sums[i];
  if (phase == 1) results[thread] = total + thread;
  else *(long *)arguments[3] += total;
}

/* Arguments: for each part who ran it, and as the how manieth. */
static void noted(void **arguments, long thread, long phase, char *scratch) {
  static long order;
  pthread_t *who = arguments[0], self = pthread_self();
  long *when = arguments[1];
  *(pthread_t *)scratch = who[thread] = self;
  when[thread] = ts_add(&order, 1);
  if (when[thread] % 40 == 0) usleep(200);
  if (!pthread_equal(*(pthread_t *)scratch, self)) when[thread] = -1;
}

/* Whether who ran `first` to `end` or a part of them began with those, or found none left. */
static int near(pthread_t *who, long *when, pthread_t self, long first, long end) {
  long one = -1, left = 0;
  for (long i = 0; i < 2 * PARTS; i++)
    if (pthread_equal(who[i], self) && (one < 0 || when[i] < when[one])) one = i;
  for (long i = first; i < end; i++) left += pthread_equal(who[i], self);
  return one < 0 || (first <= one && one < end) || !left;
}

/* What is wrong with how two threads share sixteen parts. */
static char *shared(void) {
  pthread_t who[2 * PARTS], self = pthread_self(), other = self;
  long when[2 * PARTS];
  void *arguments[] = {who, when};
  ts_launch launch = {noted, arguments, 2 * PARTS, 2, 1 | 2, 0, 1 << 16, 1000000};
  for (long i = 0; i < 2 * PARTS; i++) when[i] = -1;
  if (ts_run(&launch, 1)) return "memory";
  for (long i = 0; i < 2 * PARTS; i++) {
    if (when[i] < 0) return "the same memory, or not run";
    if (pthread_equal(who[i], self)) continue;
    if (!pthread_equal(other, self) && !pthread_equal(other, who[i])) return "a third thread";
    other = who[i];
  }
  if (!near(who, when, self, 0, PARTS)) return "the caller began elsewhere";
  return near(who, when, other, pthread_equal(other, self) ? 0 : PARTS, 2 * PARTS) ? 0 : "elsewhere";
}

static void cleared(void **arguments) { *(long *)arguments[3] = 0; }

static void *user(void *argument) {
  static __thread long numbers[PARTS * EACH], results[PARTS];
  long seed = (long)argument, total, parts;
  void *arguments[] = {numbers, results, &parts, &total};
  for (long round = 0; round < 300; round++) {
    long wanted = 0;
    parts = 2 + (round + seed) % (PARTS - 1);
    for (long i = 0; i < parts * EACH; i++) wanted += numbers[i] = i * seed + round;
    long may = 2 + round % (parts - 1); /* threads: up to as many as there are parts */
    ts_launch table[] = {{cleared, arguments, 1, 1, 0, 0, 0, 0},
                         {summed, arguments, parts, may, 3 | 8, 64, 0, round % 3 ? 1000000 : 10},
                         {summed, arguments, parts, parts, 3 | 8, 1 << 20, 0, 10}};
    if (ts_run(table, 3) || total != 2 * wanted) return "total";
    for (long i = 0; i < parts; i++)
      if (results[i] != wanted + i) return "part";
    if (round % 50 == 0) usleep(200);
  }
  return 0;
}

int main(int count, char **given) {
  pthread_t threads[8];
  int bad = 0;
  for (int round = 0; round < 3; round++) {
    void *said = 0;
    for (long i = 0; i < 8; i++) pthread_create(threads + i, 0, user, (void *)(i + 1));
    if (count > 1) {
      int status = 1;
      pid_t child = fork();
      if (!child) _exit(user((void *)9L) != 0);
      waitpid(child, &status, 0);
      bad |= status != 0;
    }
    for (int i = 0; i < 8; i++) {
      pthread_join(threads[i], &said);
      bad |= said != 0;
    }
  }
  bad |= user((void *)3L) != 0;
  for (int round = 0; round < 300 && !bad; round++) {
    char *said = shared();
    if (said) bad = 1, fprintf(stderr, "%s\n", said);
  }
  printf("%s %s\n", bad ? "wrong" : "fine", workers ? "with workers" : "alone");
  return bad;
}
