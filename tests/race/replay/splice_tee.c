/* Pipes that are filled and emptied by vmsplice, tee, splice and sendfile, each by a thread that has to wait for the others.
 *
 * prints: copied 300000, moved 300000, same 1
 */
#include "replay.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { LEN = 300000 };

static int first[2], second[2], copies[2], source;
static unsigned char *data, *got, *copied;

static void *fills(void *argument)
{
    (void)argument;
    /* One half from memory, the other from a file. */
    for (size_t done = 0; done < LEN / 2;) {
        struct iovec piece = {data + done, LEN / 2 - done};
        ssize_t n = vmsplice(first[1], &piece, 1, 0);
        must(n > 0, "vmsplice");
        note((uint64_t)n);
        done += (size_t)n;
    }
    for (off_t done = LEN / 2; done < LEN;)
        must(sendfile(first[1], source, &done, (size_t)(LEN - done)) > 0, "sendfile");
    close(first[1]);
    return NULL;
}

static void *copies_and_moves(void *argument)
{
    (void)argument;
    for (;;) {
        ssize_t seen = tee(first[0], copies[1], 30000, 0);
        must(seen >= 0, "tee");
        note((uint64_t)seen << 32);
        if (seen == 0)
            break;
        while (seen > 0) {
            ssize_t moved = splice(first[0], NULL, second[1], NULL, (size_t)seen, SPLICE_F_MOVE);
            must(moved > 0, "splice");
            seen -= moved;
        }
    }
    close(copies[1]);
    close(second[1]);
    return NULL;
}

static size_t read_all(int fd, unsigned char *to)
{
    size_t done = 0;
    for (;;) {
        ssize_t n = read(fd, to + done, LEN + 1 - done);
        must(n >= 0, "read");
        if (n == 0)
            return done;
        done += (size_t)n;
    }
}

static void *reads_copies(void *argument)
{
    *(size_t *)argument = read_all(copies[0], copied);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[3];
    size_t copied_len = 0;
    open_notes(argc, argv);
    data = malloc(LEN);
    got = malloc(LEN + 1);
    copied = malloc(LEN + 1);
    for (int i = 0; i < LEN; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    source = memfd_create("source", 0);
    must(source >= 0 && write(source, data, LEN) == LEN, "memfd_create");
    must(pipe(first) == 0 && pipe(second) == 0 && pipe(copies) == 0, "pipe");
    must(pthread_create(&threads[0], NULL, fills, NULL) == 0, "pthread_create");
    must(pthread_create(&threads[1], NULL, copies_and_moves, NULL) == 0, "pthread_create");
    must(pthread_create(&threads[2], NULL, reads_copies, &copied_len) == 0, "pthread_create");
    size_t moved = read_all(second[0], got);
    join_all(threads, 3);
    bool same = memcmp(data, got, LEN) == 0 && memcmp(data, copied, LEN) == 0;
    printf("copied %zu, moved %zu, same %d\n", copied_len, moved, same);
    return 0;
}
