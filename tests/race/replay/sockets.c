/* Sockets: more bytes than one takes at once, by write, writev, send and sendmsg; a receiver and an accepter that do not wait
 * for ever; and more connections than a server takes at a time.
 *
 * prints: sent 1600000, same 1, timed out 2, connected 5
 */
#include "replay.h"
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { LEN = 400000, WAYS = 4, CLIENTS = 5 };

static int pair[2];
static unsigned char *data;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int connected;

static void *sends(void *argument)
{
    (void)argument;
    struct iovec pieces[3] = {{data, 1000}, {data + 1000, 0}, {data + 1000, LEN - 1000}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
    must(write(pair[0], data, LEN) == LEN, "write");
    note(1);
    must(writev(pair[0], pieces, 3) == LEN, "writev");
    note(2);
    must(send(pair[0], data, LEN, MSG_NOSIGNAL) == LEN, "send");
    note(3);
    must(sendmsg(pair[0], &message, 0) == LEN, "sendmsg");
    shutdown(pair[0], SHUT_WR);
    return NULL;
}

static void *connects(void *argument)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char c;
    must(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    must((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0, "the flags of the socket");
    note(100 + (uint64_t)(intptr_t)argument);
    must(read(fd, &c, 1) == 1, "read");
    __atomic_add_fetch(&connected, 1, __ATOMIC_SEQ_CST);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t sender, clients[CLIENTS];
    struct timeval soon = {.tv_usec = 3000};
    unsigned char buffer[5000];
    char c;
    int timed_out = 0;
    open_notes(argc, argv);
    data = malloc(LEN);
    for (int i = 0; i < LEN; i++)
        data[i] = (unsigned char)(i * 13 + i / 253);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    must(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "SO_RCVTIMEO");
    timed_out += read(pair[1], &c, 1) < 0 && errno == EAGAIN;
    soon.tv_usec = 0;
    must(setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "SO_RCVTIMEO");

    must(pthread_create(&sender, NULL, sends, NULL) == 0, "pthread_create");
    size_t sent = 0;
    bool same = true;
    for (;;) {
        ssize_t n = recv(pair[1], buffer, sizeof buffer, 0);
        must(n >= 0, "recv");
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            same &= buffer[i] == data[(sent + (size_t)i) % LEN];
        sent += (size_t)n;
    }
    same &= sent == (size_t)WAYS * LEN;
    pthread_join(sender, NULL);

    snprintf(address.sun_path, sizeof address.sun_path, "%s.socket", argv[1]);
    unlink(address.sun_path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    must(server >= 0 && bind(server, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(server, 0) == 0, "listen");
    start_all(clients, CLIENTS, connects);
    for (int i = 0; i < CLIENTS; i++) {
        int fd = accept(server, NULL, NULL);
        must(fd >= 0 && write(fd, "x", 1) == 1, "accept");
        note(200);
        close(fd);
    }
    join_all(clients, CLIENTS);
    soon.tv_usec = 3000;
    must(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "SO_RCVTIMEO");
    timed_out += accept(server, NULL, NULL) < 0 && errno == EAGAIN;
    unlink(address.sun_path);
    printf("sent %zu, same %d, timed out %d, connected %d\n", sent, same, timed_out, connected);
    return 0;
}
