/* A server on epoll and its clients, in one process: connections over a listening socket, an eventfd that ends it,
 * and a timer.
 *
 * prints: served 12, ticked
 */
#include "replay.h"
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

enum { CLIENTS = 3, REQUESTS = 4 };

static struct sockaddr_un address;
static socklen_t address_size;
static int listener, ending, timer, served;

static void watch(int set, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static void *serve(void *argument)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    uint64_t number, ticks = 0;
    bool end = false;
    (void)argument;
    watch(set, listener);
    watch(set, ending);
    watch(set, timer);
    while (!end || ticks == 0) {
        struct epoll_event events[4];
        int count = epoll_wait(set, events, 4, 1000);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                must(client >= 0, "accept4");
                watch(set, client);
            } else if (fd == ending || fd == timer) {
                must(read(fd, &number, sizeof number) == sizeof number, "read");
                end |= fd == ending;
                ticks += fd == timer ? number : 0;
            } else if (recv(fd, &number, sizeof number, 0) == sizeof number) {
                note(number);
                number = ~number;
                must(send(fd, &number, sizeof number, MSG_NOSIGNAL) == sizeof number, "send");
                served++;
            } else {
                close(fd);
            }
        }
    }
    close(set);
    return NULL;
}

static void *client(void *argument)
{
    uint64_t index = (uint64_t)(intptr_t)argument;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(fd, (struct sockaddr *)&address, address_size) == 0, "connect");
    for (uint64_t i = 0; i < REQUESTS; i++) {
        uint64_t number = index << 32 | i, answer;
        must(send(fd, &number, sizeof number, MSG_NOSIGNAL) == sizeof number, "send");
        must(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer && answer == ~number, "recv");
    }
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t server, clients[CLIENTS];
    struct itimerspec soon = {.it_value.tv_nsec = 2000000};
    uint64_t one = 1;
    open_notes(argc, argv);
    /* A name that the system makes up. */
    address.sun_family = AF_UNIX;
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(listener, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path)) == 0, "bind");
    address_size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &address_size);
    must(listen(listener, 8) == 0, "listen");
    ending = eventfd(0, EFD_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    must(timerfd_settime(timer, 0, &soon, NULL) == 0, "timerfd_settime");
    must(pthread_create(&server, NULL, serve, NULL) == 0, "pthread_create");
    start_all(clients, CLIENTS, client);
    join_all(clients, CLIENTS);
    must(write(ending, &one, sizeof one) == sizeof one, "write");
    must(pthread_join(server, NULL) == 0, "pthread_join");
    printf("served %d, ticked\n", served);
    return 0;
}
