/* The runtime of the CPU device: runs tables of launches, with threads where a kernel has chunks.
   Chapter: spec/cpu.md. Compiled once; one copy of it serves the whole process.

   One caller at a time has the workers. Who comes meanwhile, from another thread of Python, runs
   the chunks itself, one after another: nobody waits for a pool, so nothing can block. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

typedef void ts_kernel(void **arguments);
typedef void ts_part(void **arguments, long thread, long phase, char *scratch);

/* `phases`: a bit for each, the first lowest: 1 if all chunks run, 0 if one call does; above the
   last one stands a 1. `scratch`: bytes that the chunks share; `own`: bytes that each thread has to
   itself. `nanoseconds`: how long one thread would take at the least; what was measured since takes
   its place. A kernel without phases has nothing but a function and its arguments. */
typedef struct {
  void *function;
  void **arguments;
  long chunks;
  long threads;
  unsigned long phases;
  long scratch;
  long own;
  long nanoseconds;
} ts_launch;

#define ts_load(place) __atomic_load_n(place, __ATOMIC_SEQ_CST)
#define ts_set(place, value) __atomic_store_n(place, value, __ATOMIC_SEQ_CST)
#define ts_add(place, value) __atomic_fetch_add(place, value, __ATOMIC_SEQ_CST)
#define ts_exchange(place, known, value) \
  __atomic_compare_exchange_n(place, known, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/* The phase that is being run. Only who has a right to a chunk of it that is not done may read it. */
static struct {
  ts_launch *launch;
  long phase;
  char *scratch;
} job;

/* How many threads may take chunks, how many chunks there are, and how many are taken: 32, 16 and
   16 bits in one word. Who adds one to it has a right to a chunk, of the phase that is on now: also
   a worker that comes late. The caller is thread 0, and a worker has its number. */
static unsigned long state;
static long unfinished;
#define TS_THREADS(word) ((long)((word) >> 32))
#define TS_CHUNKS(word) ((word) >> 16 & 0xffff)
#define TS_TAKEN(word) ((word) & 0xffff)
#define TS_OPEN(word, me) (TS_TAKEN(word) < TS_CHUNKS(word) && (me) < TS_THREADS(word))

static int has_right(long me) {
  unsigned long word = ts_load(&state);
  while (TS_OPEN(word, me))
    if (ts_exchange(&state, &word, word + 1)) return 1;
  return 0;
}

static int busy, workers, sleeping, waiting, registered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;

/* How long somebody looks again and again before it sleeps, in nanoseconds: the next kernel of a
   table, the last chunk of this one, or the next call of a loop in Python is seldom later, also
   where the last chunk takes some hundred microseconds more than the others. */
#define TS_SPIN 1000000

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Each thread has as many chunks of its own as the others, side by side; here is the next one of
   each. They lie in lines of the cache apart. */
#define TS_MOST_THREADS 1025
static struct {
  long next __attribute__((aligned(64)));
} queues[TS_MOST_THREADS];

/* The chunk for who has a right to one: of its own, or else of those that others have left. What
   a thread had in its caches in the last run, it finds there in this one. */
static long chunk_for(long me) {
  long chunks = job.launch->chunks, threads = job.launch->threads;
  for (long whose = me;; whose = (whose + 1) % threads) {
    long end = chunks * (whose + 1) / threads;
    if (ts_load(&queues[whose].next) >= end) continue;
    long mine = ts_add(&queues[whose].next, 1);
    if (mine < end) return mine;
  }
}

/* Take chunks until none is left. How many it were. */
static int work(long me) {
  int taken = 0;
  for (; has_right(me); taken++) {
    ts_part *function = (ts_part *)job.launch->function;
    char *scratch = job.scratch + me * job.launch->own;
    function(job.launch->arguments, chunk_for(me), job.phase, scratch);
    if (ts_add(&unfinished, -1) == 1 && ts_load(&waiting)) {
      pthread_mutex_lock(&lock);
      pthread_cond_broadcast(&done);
      pthread_mutex_unlock(&lock);
    }
  }
  return taken;
}

static void *worker(void *number) {
  for (long me = (long)number;;) {
    if (work(me)) { /* who was late may have been given the caller's own processor: no waiting then */
      for (long end = now() + TS_SPIN; !TS_OPEN(ts_load(&state), me) && now() < end;)
        for (int i = 0; i < 16 && !TS_OPEN(ts_load(&state), me); i++) pause_briefly();
      if (TS_OPEN(ts_load(&state), me)) continue;
    }
    pthread_mutex_lock(&lock);
    ts_add(&sleeping, 1); /* before the last look: who opens a phase looks at this afterwards */
    while (!TS_OPEN(ts_load(&state), me)) pthread_cond_wait(&wake, &lock);
    ts_add(&sleeping, -1);
    pthread_mutex_unlock(&lock);
  }
  return 0;
}

static pthread_t threads[TS_MOST_THREADS];
static int placed, avoided; /* how many workers keep off which processor */

/* Keep the workers off the caller's processor, if there are enough others. The system may wake one
   there if the others are not idle, and then both share it for as long as they run. */
static void keep_apart(void) {
#ifdef __linux__
  cpu_set_t allowed;
  int here = sched_getcpu();
  if (here < 0 || (placed == workers && avoided == here)) return;
  placed = workers, avoided = here;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
  if (workers < CPU_COUNT(&allowed)) CPU_CLR(here, &allowed);
  for (int i = 0; i < workers; i++) pthread_setaffinity_np(threads[i], sizeof allowed, &allowed);
#endif
}

/* A child has the thread that forked and no other: it starts workers of its own. */
static void forked(void) {
  state = 0, unfinished = 0, busy = workers = sleeping = waiting = placed = 0;
  pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t nobody = PTHREAD_COND_INITIALIZER;
  lock = free_lock, wake = done = nobody;
}

/* Start workers up to a number, or as many as the system gives. Signals are for other threads. */
static void start(int wanted) {
  sigset_t every, before;
  pthread_t thread;
  if (wanted >= TS_MOST_THREADS) wanted = TS_MOST_THREADS - 1;
  if (workers >= wanted) return;
  if (!registered) registered = !pthread_atfork(0, 0, forked);
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  while (workers < wanted && !pthread_create(&thread, 0, worker, (void *)(workers + 1L))) {
    pthread_detach(thread);
    threads[workers++] = thread;
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
}

/* Run all chunks of one phase, and return when they are done. */
static void share(ts_launch *launch, long phase, char *scratch) {
  long chunks = launch->chunks, threads = launch->threads;
  job.launch = launch, job.phase = phase, job.scratch = scratch;
  for (long i = 0; i < threads; i++) ts_set(&queues[i].next, chunks * i / threads);
  ts_set(&unfinished, chunks);
  ts_set(&state, (unsigned long)threads << 32 | (unsigned long)chunks << 16);
  if (ts_load(&sleeping)) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
  }
  work(0);
  for (long end = now() + TS_SPIN; ts_load(&unfinished) && now() < end;)
    for (int i = 0; i < 16 && ts_load(&unfinished); i++) pause_briefly();
  if (!ts_load(&unfinished)) return;
  pthread_mutex_lock(&lock);
  ts_set(&waiting, 1);
  while (ts_load(&unfinished)) pthread_cond_wait(&done, &lock);
  ts_set(&waiting, 0);
  pthread_mutex_unlock(&lock);
}

/* Run one launch; `together`: with the workers. */
static void phases(ts_launch *launch, char *scratch, int together) {
  ts_part *function = (ts_part *)launch->function;
  unsigned long left = launch->phases;
  for (long phase = 0; left > 1; phase++, left >>= 1) {
    long chunks = left & 1 ? launch->chunks : 1;
    if (together && chunks > 1) share(launch, phase, scratch);
    else
      for (long i = 0; i < chunks; i++) function(launch->arguments, i, phase, scratch);
  }
}

#define TS_ON_STACK 16384

/* Waking a worker takes 15 to 40 microseconds, and the caller as much of its own time. */
#define TS_WORTH 80000

/* Whether workers are awake, or what is to be done is worth waking them. */
static int awake(ts_launch *launch, ts_launch *end) {
  long left = TS_WORTH;
  if (workers && !ts_load(&sleeping)) return 1;
  for (; launch < end && left > 0; launch++)
    if (launch->threads > 1) left -= __atomic_load_n(&launch->nanoseconds, __ATOMIC_RELAXED);
  return left <= 0;
}

/* Note how long one thread takes: what the caller took, or if the workers helped, no more than as
   many times that as there are threads. */
static void learn(ts_launch *launch, long took, int together) {
  long known = __atomic_load_n(&launch->nanoseconds, __ATOMIC_RELAXED);
  if (together) took *= launch->threads;
  if (!together || took < known) __atomic_store_n(&launch->nanoseconds, took, __ATOMIC_RELAXED);
}

static int launch_phases(ts_launch *launch, ts_launch *end) {
  char nearby[TS_ON_STACK] __attribute__((aligned(64)));
  char *scratch = nearby;
  long bytes = launch->scratch + launch->own * launch->threads;
  if (bytes > TS_ON_STACK && posix_memalign((void **)&scratch, 64, bytes)) return 1;
  int mine = launch->threads > 1 && !__atomic_exchange_n(&busy, 1, __ATOMIC_SEQ_CST);
  int together = mine && awake(launch, end);
  if (together) start((int)launch->threads - 1), keep_apart();
  long begin = mine ? now() : 0;
  phases(launch, scratch, together);
  if (mine) learn(launch, now() - begin, together);
  if (mine) ts_set(&busy, 0);
  if (scratch != nearby) free(scratch);
  return 0;
}

/* Run launches in order. 0, or 1 if there is no memory for scratch. */
long ts_run(ts_launch *launches, long count) {
  for (ts_launch *one = launches, *end = launches + count; one < end; one++)
    if (!one->phases) ((ts_kernel *)one->function)(one->arguments);
    else if (launch_phases(one, end)) return 1;
  return 0;
}
