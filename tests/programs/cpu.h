// What the processor has, less what BROWNOUT_HIDE_CPU hides (docs/cli.md): under the tool CPUID says so, natively only the variable does.
#ifndef CPU_H
#define CPU_H

#include <stdlib.h>
#include <string.h>

// The word itself, or one that implies it.
static inline int cpu_hidden(const char *name)
{
    const char *at = getenv("BROWNOUT_HIDE_CPU");
    int implied = strcmp(name, "avx512") == 0;
    while (at && *at) {
        size_t length = strcspn(at, ",");
        if (length == strlen(name) && strncmp(at, name, length) == 0)
            return 1;
        if (implied && length == 4 && strncmp(at, "avx2", 4) == 0)
            return 1;
        at += length + (at[length] == ',');
    }
    return 0;
}

#endif
