/* Runs a litmus file of this folder with real threads and real instructions (tests/src/litmus.rs explains the form).
 *
 *     litmus POOL FILE            runs the threads' programs, prints registers and memory in the end
 *     litmus POOL FILE recover    prints what memory holds
 *
 * Each line is in the form of the file's `outcomes` and `survives`. A variable lies at its address from the beginning
 * of POOL. On a processor without clwb, clflushopt takes its place: the same rules hold for it. Between the
 * operations of a thread there are only accesses to ordinary memory: no fence, no locked instruction, no system call.
 */
#include "../race.h"

enum { SIZE = 0x2000, NAMES = 16, THREADS = 4, OPERATIONS = 12 };

enum code { STORE, LOAD, RMW, CLWB, CLFLUSHOPT, CLFLUSH, SFENCE, MFENCE, LOCKED };

static const char *const words[] = {"store",   "load",   "rmw",    "clwb",  "clflushopt",
                                    "clflush", "sfence", "mfence", "locked"};

struct operation {
    enum code code;
    uint64_t *where;
    uint64_t value;  /* stored, unless there is a register that holds it */
    int from, to;    /* registers, or -1 */
};

static struct {
    char names[NAMES][8];
    uint64_t *places[NAMES];
    int count;
} variables;

static struct {
    char names[NAMES][8];
    uint64_t values[NAMES];
    int count;
} registers;

static struct {
    struct operation operations[OPERATIONS];
    int count;
} programs[THREADS];

static bool has_clwb;

/* Which write-backs this processor knows. */
static void ask_processor(void)
{
    unsigned a, b = 0, c, d;
    __cpuid_count(7, 0, a, b, c, d);
    has_clwb = b >> 24 & 1;
    if (!(b >> 23 & 1)) {
        pm_print_to(2, "this processor has no clflushopt\n");
        _exit(2);
    }
}

static void bad(const char *line)
{
    pm_print_to(2, "not understood: %s\n", line);
    _exit(2);
}

static uint64_t *variable(const char *name, const char *line)
{
    for (int i = 0; i < variables.count; i++) {
        if (strcmp(variables.names[i], name) == 0)
            return variables.places[i];
    }
    bad(line);
    return NULL;
}

/* In the order in which loads name them, which is that of the file's `outcomes`. */
static int register_of(const char *name, const char *line)
{
    for (int i = 0; i < registers.count; i++) {
        if (strcmp(registers.names[i], name) == 0)
            return i;
    }
    if (registers.count == NAMES || strlen(name) > 7)
        bad(line);
    strcpy(registers.names[registers.count], name);
    return registers.count++;
}

static void parse_operation(const char *line)
{
    char word[16] = "", name[16] = "", value[16] = "", into[16] = "";
    int thread, given = sscanf(line, "T%d %15s %15s %15s %15s", &thread, word, name, value, into);
    if (given < 2 || thread < 1 || thread > THREADS || programs[thread - 1].count == OPERATIONS)
        bad(line);
    struct operation *operation = &programs[thread - 1].operations[programs[thread - 1].count++];
    *operation = (struct operation){.from = -1, .to = -1};
    while (strcmp(words[operation->code], word) != 0) {
        if (operation->code++ == LOCKED)
            bad(line);
    }
    if (operation->code >= SFENCE)
        return;
    operation->where = variable(name, line);
    if (operation->code == LOAD)
        operation->to = register_of(value, line);
    if (operation->code == STORE || operation->code == RMW) {
        if (value[0] == 'r')
            operation->from = register_of(value, line);
        operation->value = strtoul(value, NULL, 0);
    }
    if (operation->code == RMW && into[0])
        operation->to = register_of(into, line);
}

static void parse(const char *path, char *pool)
{
    static char line[4096];
    FILE *file = fopen(path, "r");
    if (!file) {
        pm_print_to(2, "%s: %m\n", path);
        _exit(2);
    }
    while (fgets(line, sizeof line, file)) {
        char name[8];
        unsigned long address;
        if (line[0] == 'T') {
            parse_operation(line);
        } else if (sscanf(line, "var %7s %lx 8", name, &address) == 2) {
            if (variables.count == NAMES || address > SIZE - 8)
                bad(line);
            strcpy(variables.names[variables.count], name);
            variables.places[variables.count++] = (uint64_t *)(pool + address);
        }
    }
    fclose(file);
}

__attribute__((target("clwb,clflushopt"))) static void *run(void *argument)
{
    int index = (int)(intptr_t)argument;
    static uint64_t elsewhere;
    for (int i = 0; i < programs[index].count; i++) {
        struct operation *operation = &programs[index].operations[i];
        uint64_t *where = operation->where;
        uint64_t value = operation->from < 0 ? operation->value : registers.values[operation->from];
        pm_barrier();
        switch (operation->code) {
        case STORE:
            __asm__ volatile("movq %1, %0" : "=m"(*where) : "r"(value) : "memory");
            break;
        case LOAD:
            __asm__ volatile("movq %1, %0" : "=r"(value) : "m"(*where) : "memory");
            break;
        case RMW:
            __asm__ volatile("xchgq %0, %1" : "+r"(value), "+m"(*where) : : "memory");
            break;
        case CLWB:
            if (has_clwb)
                _mm_clwb(where);
            else
                _mm_clflushopt(where);
            break;
        case CLFLUSHOPT:
            _mm_clflushopt(where);
            break;
        case CLFLUSH:
            _mm_clflush(where);
            break;
        case SFENCE:
            _mm_sfence();
            break;
        case MFENCE:
            _mm_mfence();
            break;
        case LOCKED:
            __asm__ volatile("lock addq $1, %0" : "+m"(elsewhere) : : "memory");
            break;
        }
        pm_barrier();
        if (operation->to >= 0)
            registers.values[operation->to] = value;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    bool recover = argc == 4 && strcmp(argv[3], "recover") == 0;
    if (argc != 3 && !recover) {
        pm_print_to(2, "usage: %s POOL FILE [recover]\n", argv[0]);
        return 2;
    }
    ask_processor();
    char *pool = pm_map(argv[1], SIZE);
    char text[256] = "";
    parse(argv[2], pool);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS && !recover; i++) {
        if (programs[i].count && pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) != 0)
            return 2;
    }
    for (int i = 0; i < THREADS && !recover; i++) {
        if (programs[i].count)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < registers.count && !recover; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s=%lu ", registers.names[i], registers.values[i]);
    for (int i = 0; i < variables.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s=%lu ", variables.names[i], *variables.places[i]);
    text[strlen(text) - 1] = '\n';
    pm_print("%s", text);
    munmap(pool, SIZE);
    return 0;
}
