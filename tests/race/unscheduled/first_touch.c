/* Locked instructions on persistent memory: sixteen that are executed once each, or one that is executed sixteen times.
 *
 *     first_touch FILE once|loop
 *
 * The other thread waits all the time, so nobody is interrupted.
 */
#include "../replay/replay.h"

static sem_t end;

static void *waits(void *argument)
{
    (void)argument;
    while (sem_wait(&end) != 0)
        ;
    return NULL;
}

#define ADD __asm__ volatile("lock addq $1, %0" : "+m"(notes[0]) : : "memory", "cc");
#define FOUR(what) what what what what

int main(int argc, char **argv)
{
    pthread_t thread;
    must(argc == 3, "usage");
    bool once = strcmp(argv[2], "once") == 0;
    open_notes(2, argv);
    sem_init(&end, 0, 0);
    start_all(&thread, 1, waits);
    if (once) {
        FOUR(FOUR(ADD))
    } else {
        for (int i = 0; i < 16; i++) {
            ADD
        }
    }
    sem_post(&end);
    join_all(&thread, 1);
    return 0;
}
