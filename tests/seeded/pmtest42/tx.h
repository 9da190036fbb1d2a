/* Annotated undo-log transactions for the cases about backup, completion and repeated logging.
 *
 * tx_begin, then tx_add before each change (tx_alloc for new objects), tx_write_back, pm_fence, tx_end. The steps of
 * the commit are the caller's, so that a case can leave one out. The log is excluded: its stores are not the
 * transaction's.
 */
#ifndef TX_H
#define TX_H

#include "cases.h"

enum { TX_RANGES = 8, TX_OLD = 176 };

struct tx_entry {
    PM_ALIGNED uint32_t offset; /* from the log */
    uint32_t length;
    uint64_t unused;
    unsigned char old[TX_OLD];
};

struct tx_log {
    PM_ALIGNED uint64_t count;
    struct tx_entry entries[TX_RANGES];
};

/* What the running transaction must write back. */
static struct {
    const char *address;
    size_t length;
} tx_ranges[2 * TX_RANGES];
static int tx_range_count;

static inline void tx_remember(const void *address, size_t length)
{
    if (tx_range_count == 2 * TX_RANGES)
        _exit(2);
    tx_ranges[tx_range_count].address = address;
    tx_ranges[tx_range_count++].length = length;
}

static inline void tx_begin(struct tx_log *log)
{
    brownout_exclude(log, sizeof *log);
    brownout_tx_begin();
}

static inline void tx_add(struct tx_log *log, void *address, size_t length)
{
    if (log->count == TX_RANGES || length > TX_OLD)
        _exit(2);
    struct tx_entry *entry = &log->entries[log->count];
    entry->offset = (uint32_t)((char *)address - (char *)log);
    entry->length = (uint32_t)length;
    memcpy(entry->old, address, length);
    pm_persist(entry, offsetof(struct tx_entry, old) + length);
    log->count++;
    pm_persist(&log->count, sizeof log->count);
    brownout_tx_add(address, length);
    tx_remember(address, length);
}

static inline void tx_alloc(void *address, size_t length)
{
    brownout_tx_alloc(address, length);
    tx_remember(address, length);
}

/* Writes back the first `ranges` of what was logged or allocated, each line once. */
static inline void tx_write_back(int ranges)
{
    uintptr_t done[64];
    int count = 0;
    for (int i = 0; i < tx_range_count && i < ranges; i++) {
        uintptr_t end = (uintptr_t)tx_ranges[i].address + tx_ranges[i].length;
        for (uintptr_t at = (uintptr_t)tx_ranges[i].address & ~(uintptr_t)(PM_LINE - 1); at < end; at += PM_LINE) {
            int seen = 0;
            while (seen < count && done[seen] != at)
                seen++;
            if (seen < count)
                continue;
            if (count == 64)
                _exit(2);
            done[count++] = at;
            pm_flush_line((const void *)at);
        }
    }
}
#define TX_ALL (2 * TX_RANGES)

static inline void tx_end(struct tx_log *log)
{
    brownout_tx_end();
    tx_range_count = 0;
    log->count = 0;
    pm_persist(&log->count, sizeof log->count);
}

static inline void tx_recover(struct tx_log *log)
{
    if (log->count == 0)
        return;
    for (uint64_t i = log->count; i-- > 0;) {
        char *address = (char *)log + (int32_t)log->entries[i].offset;
        memcpy(address, log->entries[i].old, log->entries[i].length);
        pm_flush(address, log->entries[i].length);
    }
    pm_fence();
    log->count = 0;
    pm_persist(&log->count, sizeof log->count);
}

#endif
