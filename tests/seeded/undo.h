/* A small undo log, right in itself, for programs whose bug is in how they use it.
 *
 * tx_log copies the old bytes into an entry, persists it, and only then counts it; the next store in place comes after
 * the fence. Callers write back what they change (tx_set does); tx_commit fences that and then empties the log.
 * Recovery restores the counted entries, newest first, persists, and then empties the log. It writes absolute values,
 * so it may be cut short and begun again.
 *
 * An entry that was written and not counted is never read. Entries of earlier transactions are overwritten.
 *
 * -DASSERT builds tell Brownout about the transactions. The log itself is no transactional data: its stores are
 * excluded.
 */
#ifndef UNDO_H
#define UNDO_H

#include "pm.h"

#ifdef ASSERT
#define TX_NOTE(call) (call)
#else
#define TX_NOTE(call) ((void)0)
#endif

enum { UNDO_ENTRIES = 6, UNDO_BYTES = 48 };

struct undo_entry {
    PM_ALIGNED uint32_t offset; /* from the log */
    uint32_t length;
    unsigned char old[UNDO_BYTES];
};

struct undo_log {
    PM_ALIGNED uint64_t count;
    struct undo_entry entries[UNDO_ENTRIES];
};

static inline void tx_begin(struct undo_log *log)
{
    (void)log;
    TX_NOTE(brownout_exclude(log, sizeof *log));
    TX_NOTE(brownout_tx_begin());
}

static inline void tx_log(struct undo_log *log, void *address, size_t length)
{
    if (log->count == UNDO_ENTRIES || length > UNDO_BYTES) {
        pm_print_to(2, "undo log: no room\n");
        _exit(2);
    }
    struct undo_entry *entry = &log->entries[log->count];
    entry->offset = (uint32_t)((char *)address - (char *)log);
    entry->length = (uint32_t)length;
    memcpy(entry->old, address, length);
    pm_persist(entry, sizeof *entry);
    log->count++;
    pm_persist(&log->count, sizeof log->count);
    TX_NOTE(brownout_tx_add(address, length));
}

static inline void tx_set(uint64_t *address, uint64_t value)
{
    *address = value;
    pm_flush(address, sizeof *address);
}

static inline void tx_commit(struct undo_log *log)
{
    pm_fence();
    TX_NOTE(brownout_tx_end());
    log->count = 0;
    pm_persist(&log->count, sizeof log->count);
}

static inline void tx_recover(struct undo_log *log)
{
    if (log->count == 0)
        return;
    for (uint64_t i = log->count; i-- > 0;) {
        struct undo_entry *entry = &log->entries[i];
        char *address = (char *)log + (int32_t)entry->offset;
        memcpy(address, entry->old, entry->length);
        pm_flush(address, entry->length);
    }
    pm_fence();
    log->count = 0;
    pm_persist(&log->count, sizeof log->count);
}

#endif
