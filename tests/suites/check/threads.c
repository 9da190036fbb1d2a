/* What threads can read of each other too early: one way a run, by name. `WAY` of the second argument, "wrong" or "right" the third.
 *
 * Where the order of a run is to be the same each time and the tool is not to know of it, threads agree by ordinary loads and stores
 * of ordinary memory (`await`, `go`). Everything else is what programs do.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <threads.h>
#include <unistd.h>

struct line {
    uint64_t value;
    uint64_t other;
    char rest[48];
};

static struct pool {
    struct line data;
    struct line copy;
    struct line flag;
    struct line nodes[16];
    pthread_mutex_t mutex __attribute__((aligned(64)));
    struct line lock;
    struct line locked;
} *pm;

static int is_wrong;
/* Which step of the run it is; nobody but these two looks at it. */
static volatile int step;

static void await(int wanted)
{
    while (step < wanted)
        ;
}

static void go(int next)
{
    step = next;
}

static void persist(const void *at)
{
    _mm_clflush((void *)at);
    _mm_sfence();
}

static void keep(uint64_t value)
{
    pm->copy.value = value; /* @effect */
    persist(&pm->copy);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static mtx_t c11;
static sem_t ready, done;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int has_come;
static struct line *published;
static int ends[2];

/* ---- a lock that is given back too early */

static void store_and_give_back(void (*give_back)(void))
{
    pm->data.value = 7; /* @store */
    if (!is_wrong)
        persist(&pm->data);
    give_back(); /* @unlock */
    if (is_wrong)
        persist(&pm->data);
}

static void mutex_give(void) { pthread_mutex_unlock(&mutex); }
static void mutex_writer(void)
{
    pthread_mutex_lock(&mutex);
    store_and_give_back(mutex_give);
}
static void mutex_reader(void)
{
    pthread_mutex_lock(&mutex);
    uint64_t value = pm->data.value; /* @load */
    pthread_mutex_unlock(&mutex);
    keep(value);
}

static void try_writer(void)
{
    while (pthread_mutex_trylock(&mutex) != 0)
        ;
    store_and_give_back(mutex_give);
}

static void rwlock_give(void) { pthread_rwlock_unlock(&rwlock); }
static void rwlock_writer(void)
{
    pthread_rwlock_wrlock(&rwlock);
    store_and_give_back(rwlock_give);
}
static void rwlock_reader(void)
{
    pthread_rwlock_rdlock(&rwlock);
    uint64_t value = pm->data.value;
    pthread_rwlock_unlock(&rwlock);
    keep(value);
}

static void spin_give(void) { pthread_spin_unlock(&spin); }
static void spin_writer(void)
{
    pthread_spin_lock(&spin);
    store_and_give_back(spin_give);
}
static void spin_reader(void)
{
    pthread_spin_lock(&spin);
    uint64_t value = pm->data.value;
    pthread_spin_unlock(&spin);
    keep(value);
}

static void c11_give(void) { mtx_unlock(&c11); }
static void c11_writer(void)
{
    mtx_lock(&c11);
    store_and_give_back(c11_give);
}
static void c11_reader(void)
{
    mtx_lock(&c11);
    uint64_t value = pm->data.value;
    mtx_unlock(&c11);
    keep(value);
}

/* A lock that lies in persistent memory itself. */
static void inside_give(void) { pthread_mutex_unlock(&pm->mutex); }
static void inside_writer(void)
{
    pthread_mutex_lock(&pm->mutex);
    store_and_give_back(inside_give);
}
static void inside_reader(void)
{
    pthread_mutex_lock(&pm->mutex);
    uint64_t value = pm->data.value;
    pthread_mutex_unlock(&pm->mutex);
    keep(value);
}

/* A wait for a condition gives the lock back, too. */
static void waiting_writer(void)
{
    pthread_mutex_lock(&mutex);
    pm->data.value = 7; /* @waiting-store */
    if (!is_wrong)
        persist(&pm->data);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_cond_timedwait(&cond, &mutex, &now); /* @waiting-unlock */
    if (is_wrong)
        persist(&pm->data);
    pthread_mutex_unlock(&mutex);
}

/* ---- readers without a lock */

static void free_writer(void)
{
    pm->data.value = 7; /* @free-store */
    persist(&pm->data);
}
/* Right: it writes back what it has read before it makes anything of it. */
static void free_reader(void)
{
    uint64_t value = pm->data.value; /* @free-load */
    if (!is_wrong)
        persist(&pm->data);
    keep(value);
}

/* It does happen. */
static void slow_writer(void)
{
    pm->data.value = 7; /* @slow-store */
    if (!is_wrong)
        persist(&pm->data);
    go(1);
    await(2);
    if (is_wrong)
        persist(&pm->data);
}
static void slow_reader(void)
{
    await(1);
    /* The store is persistent if it is right, and the tool sees no order: the reader helps. */
    uint64_t value = pm->data.value; /* @slow-load */
    if (!is_wrong)
        persist(&pm->data);
    keep(value);
    go(2);
}

/* The writer never writes back. */
static void never_writer(void)
{
    pm->data.value = 7; /* @never-store */
    if (!is_wrong)
        persist(&pm->data);
    sem_post(&ready);
}
static void never_reader(void)
{
    sem_wait(&ready);
    keep(pm->data.value);
}

/* ---- order that is seen: always right */

static void semaphore_writer(void)
{
    pm->data.value = 7;
    persist(&pm->data);
    sem_post(&ready);
}
static void semaphore_reader(void)
{
    sem_wait(&ready);
    keep(pm->data.value);
}

static void condition_writer(void)
{
    pthread_mutex_lock(&mutex);
    pm->data.value = 7;
    pthread_mutex_unlock(&mutex);
    persist(&pm->data);
    pthread_mutex_lock(&mutex);
    has_come = 1;
    pthread_cond_signal(&cond);
    pthread_mutex_unlock(&mutex);
}
static void condition_reader(void)
{
    pthread_mutex_lock(&mutex);
    go(1);
    while (!has_come)
        pthread_cond_wait(&cond, &mutex);
    uint64_t value = pm->data.value;
    pthread_mutex_unlock(&mutex);
    keep(value);
}
static void condition_writer_second(void)
{
    await(1);
    condition_writer();
}

static void barrier_writer(void)
{
    pm->data.value = 7;
    persist(&pm->data);
    pthread_barrier_wait(&barrier);
}
static void barrier_reader(void)
{
    pthread_barrier_wait(&barrier);
    keep(pm->data.value);
}

static void pipe_writer(void)
{
    pm->data.value = 7;
    persist(&pm->data);
    if (write(ends[1], "x", 1) != 1)
        abort();
}
static void pipe_reader(void)
{
    char byte;
    if (read(ends[0], &byte, 1) != 1)
        abort();
    keep(pm->data.value);
}

static void yielding_reader(void)
{
    while (step < 1)
        sched_yield();
    keep(pm->data.value);
}
static void telling_writer(void)
{
    usleep(20000);
    pm->data.value = 7;
    persist(&pm->data);
    go(1);
}
static void polling_reader(void)
{
    while (step < 1)
        usleep(1000);
    keep(pm->data.value);
}

/* Durable before it is published by a lock that has nothing to do with the store; and the memory is used again. */
static void init_writer(void)
{
    for (int round = 0; round < 20; round++) {
        struct line *node = &pm->nodes[round % 4];
        node->value = 100 + round;
        persist(node);
        for (int is_taken = 0; !is_taken;) {
            pthread_mutex_lock(&mutex);
            is_taken = published == NULL;
            if (is_taken)
                published = node;
            pthread_mutex_unlock(&mutex);
        }
    }
    pthread_mutex_lock(&mutex);
    has_come = 1;
    pthread_mutex_unlock(&mutex);
}
static void init_reader(void)
{
    uint64_t sum = 0;
    for (int is_over = 0; !is_over;) {
        pthread_mutex_lock(&mutex);
        struct line *node = published;
        is_over = has_come && !node;
        published = NULL;
        pthread_mutex_unlock(&mutex);
        if (node)
            sum += node->value;
    }
    keep(sum);
}

/* Published by a word in persistent memory, which the reader writes back. */
static void link_writer(void)
{
    pm->nodes[0].value = 9;
    persist(&pm->nodes[0]);
    pm->flag.value = 1;
    persist(&pm->flag);
}
static void link_reader(void)
{
    while (*(volatile uint64_t *)&pm->flag.value == 0)
        ;
    persist(&pm->flag);
    keep(pm->nodes[0].value);
}

/* A lock word in persistent memory: nobody makes it durable. */
static void word_lock(uint64_t *word)
{
    uint64_t free = 0;
    while (!__atomic_compare_exchange_n(word, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        free = 0;
        while (*(volatile uint64_t *)word)
            ;
    }
}
static void word_unlock(uint64_t *word) { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }
static void word_worker(void)
{
    for (int i = 0; i < 200; i++) {
        word_lock(&pm->lock.value);
        pm->data.value++;
        persist(&pm->data);
        word_unlock(&pm->lock.value);
    }
}
/* The same in the line of what it guards, which is made durable all the time. */
static void beside_worker(void)
{
    for (int i = 0; i < 200; i++) {
        word_lock(&pm->locked.other);
        pm->locked.value++;
        persist(&pm->locked);
        word_unlock(&pm->locked.other);
    }
}

/* Locks in ordinary memory without a function of the C library: given back by an ordinary store, and by a locked instruction. */
static uint64_t dram_lock;
static void dram_worker(void)
{
    for (int i = 0; i < 200; i++) {
        word_lock(&dram_lock);
        pm->data.value++;
        persist(&pm->data);
        word_unlock(&dram_lock);
    }
}
static void exchange_worker(void)
{
    for (int i = 0; i < 200; i++) {
        while (__atomic_exchange_n(&dram_lock, 1, __ATOMIC_SEQ_CST))
            ;
        pm->data.value++;
        persist(&pm->data);
        __atomic_store_n(&dram_lock, 0, __ATOMIC_SEQ_CST);
    }
}

static void own_worker(int number)
{
    for (int i = 0; i < 100; i++) {
        pm->nodes[number].value += i;
        if (i % 10 == 0)
            persist(&pm->nodes[number]);
    }
    persist(&pm->nodes[number]);
}
static void own_one(void) { own_worker(1); }
static void own_two(void) { own_worker(2); }

static const struct way {
    const char *name;
    void (*writer)(void), (*reader)(void);
    /* 0: at the same time; 1: the writer first, unseen; -1: the reader first, unseen; 2: the writer is joined first */
    int order;
} ways[] = {
    {"mutex-late", mutex_writer, mutex_reader, 1},
    {"mutex-early", mutex_writer, mutex_reader, -1},
    {"trylock", try_writer, mutex_reader, 1},
    {"rwlock", rwlock_writer, rwlock_reader, 1},
    {"spin", spin_writer, spin_reader, 1},
    {"c11", c11_writer, c11_reader, 1},
    {"inside", inside_writer, inside_reader, 1},
    {"waiting", waiting_writer, mutex_reader, 1},
    {"free-late", free_writer, free_reader, 1},
    {"free-early", free_writer, free_reader, -1},
    {"slow", slow_writer, slow_reader, 0},
    {"never", never_writer, never_reader, 0},
    {"semaphore", semaphore_writer, semaphore_reader, 0},
    {"condition", condition_writer_second, condition_reader, 0},
    {"barrier", barrier_writer, barrier_reader, 0},
    {"pipe", pipe_writer, pipe_reader, 0},
    {"yield", telling_writer, yielding_reader, 0},
    {"poll", telling_writer, polling_reader, 0},
    {"join", free_writer, semaphore_reader, 2},
    {"init", init_writer, init_reader, 0},
    {"link", link_writer, link_reader, 0},
    {"word", word_worker, word_worker, 0},
    {"beside", beside_worker, beside_worker, 0},
    {"dram", dram_worker, dram_worker, 0},
    {"exchange", exchange_worker, exchange_worker, 0},
    {"own", own_one, own_two, 0},
    {"alone", NULL, NULL, 0},
};

struct task {
    void (*run)(void);
    int after, then;
};

static void *thread(void *arg)
{
    const struct task *task = arg;
    await(task->after);
    task->run();
    if (task->then)
        go(task->then);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    is_wrong = !strcmp(argv[3], "wrong");
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 65536) != 0)
        return 2;
    pm = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    mtx_init(&c11, mtx_plain);
    sem_init(&ready, 0, 0);
    sem_init(&done, 0, 0);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_mutex_init(&pm->mutex, NULL);
    if (pipe(ends) != 0)
        return 2;
    pm->data.value = 1;
    persist(&pm->data);
    persist(&pm->mutex);
    for (const struct way *way = ways; way < ways + sizeof ways / sizeof *ways; way++) {
        if (strcmp(way->name, argv[2]))
            continue;
        if (!way->writer)
            return pm->data.value != 1;
        struct task writer = {way->writer, way->order == -1 ? 10 : 0, way->order == 1 ? 10 : 0};
        struct task reader = {way->reader, way->order == 1 ? 10 : 0, way->order == -1 ? 10 : 0};
        pthread_t one, two;
        pthread_create(&one, NULL, thread, &writer);
        if (way->order == 2) {
            pthread_join(one, NULL);
            sem_post(&ready);
        }
        pthread_create(&two, NULL, thread, &reader);
        if (way->order != 2)
            pthread_join(one, NULL);
        pthread_join(two, NULL);
        return 0;
    }
    return 2;
}
