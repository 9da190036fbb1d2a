// What a process learns about itself: auxv, /proc/self/*, program headers, argv and environment.
// build: dynamic static nopie
#include "harness.h"
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>

extern char **environ;
static int data_variable = 3;
static int bss_variable;

static ssize_t slurp(const char *path, char *buf, size_t cap)
{
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t total = 0, n;
    while ((n = read(fd, buf + total, cap - (size_t)total - 1)) > 0)
        total += n;
    close(fd);
    buf[total] = 0;
    return total;
}

static char maps[1 << 20];

// Protection letters and name of the mapping that holds `p`.
static int find_mapping(const void *p, char perms[8], char *name, size_t cap)
{
    for (char *line = maps; *line;) {
        unsigned long lo, hi;
        int at = 0;
        sscanf(line, "%lx-%lx %7s %*s %*s %*s %n", &lo, &hi, perms, &at);
        char *end = strchr(line, '\n');
        if ((unsigned long)p >= lo && (unsigned long)p < hi) {
            snprintf(name, cap, "%.*s", (int)(end - line - at), line + at);
            return 1;
        }
        line = end + 1;
    }
    return 0;
}

static int count_modules(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    ++*(int *)arg;
    if (info->dlpi_phdr == (void *)getauxval(AT_PHDR))
        CHECK_EQ(info->dlpi_phnum, getauxval(AT_PHNUM));
    return 0;
}

int main(int argc, char **argv)
{
    char exe[4096], buf[65536], perms[8], name[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    CHECK(n > 0);
    exe[n] = 0;
    CHECK(strstr(exe, "proc_self"));
    struct stat by_link, by_path;
    CHECK(stat("/proc/self/exe", &by_link) == 0 && stat(argv[0], &by_path) == 0);
    CHECK(by_link.st_ino == by_path.st_ino);
    // The auxiliary vector: kernel's copy, libc's view, and the stack agree.
    n = slurp("/proc/self/auxv", buf, sizeof buf);
    int entries = 0;
    for (Elf64_auxv_t *a = (Elf64_auxv_t *)buf; a->a_type != AT_NULL; a++, entries++)
        if (a->a_type != AT_HWCAP) // glibc answers with its own idea of it on x86
            CHECK_EQ(getauxval(a->a_type), a->a_un.a_val);
    CHECK(entries > 10);
    char **e = environ;
    while (*e)
        e++;
    CHECK_EQ(((Elf64_auxv_t *)(e + 1))->a_type, ((Elf64_auxv_t *)buf)->a_type);
    CHECK(getauxval(AT_PHDR) && getauxval(AT_ENTRY) && getauxval(AT_RANDOM) && getauxval(AT_SYSINFO_EHDR));
    CHECK_EQ(getauxval(AT_PAGESZ), 4096);
    CHECK_EQ(getauxval(AT_UID), getuid());
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), argv[0]) || strchr((char *)getauxval(AT_EXECFN), '/'));
    CHECK(!memcmp((void *)getauxval(AT_SYSINFO_EHDR), "\177ELF", 4));
    Elf64_Phdr *ph = (Elf64_Phdr *)getauxval(AT_PHDR);
    for (unsigned i = 0; i < getauxval(AT_PHNUM); i++)
        if (ph[i].p_type == PT_PHDR)
            CHECK((uintptr_t)ph - ph[i].p_vaddr + ph[i].p_vaddr == (uintptr_t)ph);
    int modules = 0;
    dl_iterate_phdr(count_modules, &modules);
    CHECK(modules >= 1);
    // Command line and environment.
    n = slurp("/proc/self/cmdline", buf, sizeof buf);
    char *p = buf;
    for (int i = 0; i < argc; i++) {
        CHECK(!strcmp(p, argv[i]));
        p += strlen(p) + 1;
    }
    CHECK(p == buf + n);
    n = slurp("/proc/self/comm", buf, sizeof buf);
    CHECK(strstr(buf, "proc_self"));
    CHECK(prctl(PR_SET_NAME, "renamed") == 0);
    slurp("/proc/self/comm", buf, sizeof buf);
    CHECK(!strcmp(buf, "renamed\n"));
    // Mappings: code, data, heap, stack, vDSO are where they are said to be.
    void *heap = malloc(1000);
    char *brk_heap = sbrk(4096);
    brk_heap[0] = 1;
    slurp("/proc/self/maps", maps, sizeof maps);
    CHECK(find_mapping((void *)main, perms, name, sizeof name));
    CHECK(!strncmp(perms, "r-xp", 4) && !strcmp(name, exe));
    CHECK(find_mapping(&data_variable, perms, name, sizeof name) && !strncmp(perms, "rw-p", 4));
    CHECK(find_mapping(&bss_variable, perms, name, sizeof name) && !strncmp(perms, "rw-p", 4));
    CHECK(find_mapping(heap, perms, name, sizeof name) && !strncmp(perms, "rw-p", 4));
    CHECK(find_mapping(brk_heap, perms, name, sizeof name) && !strcmp(name, "[heap]"));
    CHECK(find_mapping(&n, perms, name, sizeof name) && !strcmp(name, "[stack]"));
    CHECK(find_mapping((void *)getauxval(AT_SYSINFO_EHDR), perms, name, sizeof name) && !strcmp(name, "[vdso]"));
    CHECK(find_mapping((void *)ph, perms, name, sizeof name) && !strcmp(name, exe));
    // Status: one thread, no tracer left behind.
    slurp("/proc/self/status", buf, sizeof buf);
    CHECK(strstr(buf, "\nThreads:\t1\n"));
    CHECK(strstr(buf, "\nTracerPid:\t0\n"));
    // Only the standard descriptors are open.
    for (int fd = 3; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) != -1)
            printf("descriptor %d open\n", fd);
    CHECK_EQ((uintptr_t)&n & 3, 0);
    printf("self ok %d\n", data_variable + bss_variable);
    return 0;
}
