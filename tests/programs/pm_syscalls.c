// System calls that read from and write into the pool, and that change the mapping itself.
// build: dynamic static
// args: POOL
#include "pm_pool.h"
#include <dirent.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static unsigned char *pm; // where the next case works
static unsigned char dram[65536];

static void next_case(const char *name)
{
    printf("%s\n", name);
    fflush(stdout);
    pm += 4096;
}

static void reads(void)
{
    int p[2];
    CHECK(pipe(p) == 0);
    next_case("read");
    CHECK(write(p[1], "hello pm", 8) == 8);
    CHECK(read(p[0], pm + 3, 100) == 8 && !memcmp(pm + 3, "hello pm", 8) && pm[11] == 0);
    next_case("readv");
    CHECK(write(p[1], "0123456789", 10) == 10);
    struct iovec *v = (struct iovec *)(pm + 512); // the vector itself in the pool too
    v[0] = (struct iovec){pm + 1, 3};
    v[1] = (struct iovec){dram, 2};
    v[2] = (struct iovec){pm + 100, 50};
    CHECK(readv(p[0], v, 3) == 10);
    CHECK(!memcmp(pm + 1, "012", 3) && !memcmp(dram, "34", 2) && !memcmp(pm + 100, "56789", 5));

    char file[] = "/tmp/pm_syscalls.XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0 && unlink(file) == 0);
    for (int i = 0; i < 10000; i++)
        dram[i] = (unsigned char)(i * 7);
    CHECK(write(fd, dram, 10000) == 10000);
    next_case("pread");
    CHECK(pread(fd, pm + 100, 3000, 50) == 3000 && !memcmp(pm + 100, dram + 50, 3000));
    next_case("preadv and preadv2");
    struct iovec w[2] = {{pm, 10}, {pm + 60, 10}};
    CHECK(preadv(fd, w, 2, 5) == 20 && !memcmp(pm, dram + 5, 10) && !memcmp(pm + 60, dram + 15, 10));
    w[0].iov_base = pm + 200;
    w[1].iov_base = pm + 300;
    CHECK(preadv2(fd, w, 2, 25, 0) == 20 && !memcmp(pm + 300, dram + 35, 10));
    next_case("read across pages");
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, pm + 4000, 9000) == 9000 && !memcmp(pm + 4000, dram, 9000));
    pm += 3 * 4096;
    next_case("getdents and statx");
    int dir = open("/proc/self", O_RDONLY | O_DIRECTORY);
    CHECK(syscall(SYS_getdents64, dir, pm, 2048) > 0);
    memset(pm, 0, 2048); // its content is not the same on every run
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, (struct statx *)(pm + 2048)) == 0);
    CHECK_EQ(((struct statx *)(pm + 2048))->stx_size, 10000);
    close(dir);
    next_case("copy_file_range and sendfile source");
    CHECK(lseek(fd, 100, SEEK_SET) == 100);
    off_t *at = (off_t *)pm;
    *at = 40;
    CHECK(sendfile(p[1], fd, at, 16) == 16);
    CHECK_EQ(*at, 56);
    CHECK(read(p[0], pm + 64, 16) == 16 && !memcmp(pm + 64, dram + 40, 16));
    close(fd);
    close(p[0]);
    close(p[1]);
}

static void sockets(void)
{
    int s[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    next_case("recv");
    CHECK(send(s[0], "datagram", 8, 0) == 8);
    CHECK(recv(s[1], pm, 100, 0) == 8 && !memcmp(pm, "datagram", 8));
    next_case("recvfrom with address");
    socklen_t *len = (socklen_t *)(pm + 200);
    *len = sizeof(struct sockaddr_un);
    CHECK(send(s[0], "from", 4, 0) == 4);
    CHECK(recvfrom(s[1], pm, 100, 0, (struct sockaddr *)(pm + 256), len) == 4);
    next_case("recvmsg with control data, all in the pool");
    struct msghdr *m = (struct msghdr *)pm;
    struct iovec *v = (struct iovec *)(pm + 256);
    memset(m, 0, sizeof *m);
    v[0] = (struct iovec){pm + 512, 3};
    v[1] = (struct iovec){pm + 600, 100};
    m->msg_iov = v;
    m->msg_iovlen = 2;
    m->msg_control = pm + 1024;
    m->msg_controllen = 256;
    struct msghdr out = {0};
    struct iovec ov = {"scattered", 9};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    out.msg_iov = &ov;
    out.msg_iovlen = 1;
    out.msg_control = control;
    out.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&out);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    int fd = 0;
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK(sendmsg(s[0], &out, 0) == 9);
    CHECK(recvmsg(s[1], m, 0) == 9);
    CHECK(!memcmp(pm + 512, "sca", 3) && !memcmp(pm + 600, "ttered", 6));
    CHECK_EQ(m->msg_controllen, CMSG_SPACE(sizeof(int)));
    CHECK(CMSG_FIRSTHDR(m)->cmsg_type == SCM_RIGHTS);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(m)), sizeof fd);
    CHECK(fd > 2 && close(fd) == 0);
    next_case("recvmmsg");
    struct mmsghdr *mm = (struct mmsghdr *)pm;
    memset(mm, 0, 3 * sizeof *mm);
    struct iovec *iv = (struct iovec *)(pm + 512);
    for (int i = 0; i < 3; i++) {
        iv[i] = (struct iovec){pm + 1024 + 64 * i, 64};
        mm[i].msg_hdr.msg_iov = &iv[i];
        mm[i].msg_hdr.msg_iovlen = 1;
        char text[8];
        snprintf(text, sizeof text, "msg%d", i);
        CHECK(send(s[0], text, 4, 0) == 4);
    }
    CHECK_EQ(recvmmsg(s[1], mm, 3, 0, NULL), 3);
    for (int i = 0; i < 3; i++)
        CHECK(mm[i].msg_len == 4 && pm[1024 + 64 * i + 3] == '0' + i);
    next_case("send, sendto, sendmsg, sendmmsg from the pool");
    memcpy(pm, "outgoing", 8);
    CHECK(send(s[0], pm, 8, 0) == 8 && recv(s[1], dram, 100, 0) == 8 && !memcmp(dram, "outgoing", 8));
    struct msghdr *om = (struct msghdr *)(pm + 64);
    struct iovec *oi = (struct iovec *)(pm + 192);
    memset(om, 0, sizeof *om);
    oi[0] = (struct iovec){pm, 3};
    oi[1] = (struct iovec){pm + 5, 3};
    om->msg_iov = oi;
    om->msg_iovlen = 2;
    CHECK(sendmsg(s[0], om, 0) == 6 && recv(s[1], dram, 100, 0) == 6 && !memcmp(dram, "outing", 6));
    struct mmsghdr *sm = (struct mmsghdr *)(pm + 512);
    memset(sm, 0, sizeof *sm);
    sm->msg_hdr = *om;
    CHECK(sendmmsg(s[0], sm, 1, 0) == 1 && sm->msg_len == 6 && recv(s[1], dram, 100, 0) == 6);
    next_case("socket options and names");
    int *opt = (int *)pm;
    socklen_t *ol = (socklen_t *)(pm + 8);
    *ol = sizeof *opt;
    CHECK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, opt, ol) == 0 && *opt == SOCK_DGRAM);
    *ol = 100;
    CHECK(getsockname(s[0], (struct sockaddr *)(pm + 64), ol) == 0);
    *opt = 1;
    CHECK(setsockopt(s[0], SOL_SOCKET, SO_PASSCRED, opt, sizeof *opt) == 0);
    int *pair = (int *)(pm + 256);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[0]);
    close(pair[1]);
    pair[0] = pair[1] = 0;
    close(s[0]);
    close(s[1]);
}

static void answers(struct pool pool)
{
    next_case("fstat, stat, statfs");
    CHECK(fstat(pool.fd, (struct stat *)pm) == 0);
    CHECK_EQ(((struct stat *)pm)->st_size, (off_t)pool.size);
    CHECK(stat("/", (struct stat *)(pm + 512)) == 0 && S_ISDIR(((struct stat *)(pm + 512))->st_mode));
    CHECK(fstatat(AT_FDCWD, "/", (struct stat *)(pm + 1024), 0) == 0);
    CHECK(statfs("/", (struct statfs *)(pm + 2048)) == 0);
    next_case("getrandom");
    CHECK(getrandom(pm, 100, 0) == 100);
    int zeros = 0;
    for (int i = 0; i < 100; i++)
        zeros += pm[i] == 0;
    CHECK(zeros < 20);
    next_case("pipe2");
    int *fds = (int *)pm;
    CHECK(pipe2(fds, O_CLOEXEC) == 0 && fds[0] > 2 && fds[1] > 2);
    int a = fds[0], b = fds[1];
    next_case("poll, ppoll, select, epoll_wait");
    struct pollfd *pf = (struct pollfd *)pm;
    pf[0] = (struct pollfd){a, POLLIN, 0};
    CHECK_EQ(poll(pf, 1, 0), 0);
    CHECK(write(b, "x", 1) == 1);
    CHECK(poll(pf, 1, 1000) == 1 && pf[0].revents == POLLIN);
    pf[0].revents = 0;
    struct timespec *ts = (struct timespec *)(pm + 64);
    *ts = (struct timespec){1, 0};
    sigset_t *set = (sigset_t *)(pm + 128);
    sigemptyset(set);
    CHECK(ppoll(pf, 1, ts, set) == 1 && pf[0].revents == POLLIN);
    fd_set *rs = (fd_set *)(pm + 256);
    FD_ZERO(rs);
    FD_SET(a, rs);
    struct timeval *tv = (struct timeval *)(pm + 512);
    *tv = (struct timeval){1, 0};
    CHECK(select(a + 1, rs, NULL, NULL, tv) == 1 && FD_ISSET(a, rs));
    int ep = epoll_create1(0);
    struct epoll_event *ev = (struct epoll_event *)(pm + 600);
    ev->events = EPOLLIN;
    ev->data.u64 = 0x1234;
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, a, ev) == 0);
    CHECK(epoll_wait(ep, ev + 1, 3, 1000) == 1 && ev[1].data.u64 == 0x1234);
    next_case("ioctl");
    CHECK(ioctl(a, FIONREAD, pm) == 0 && *(int *)pm == 1);
    close(ep);
    close(a);
    close(b);
    next_case("getcwd and readlink");
    CHECK(chdir("/tmp") == 0);
    CHECK(getcwd((char *)pm, 100) && !strcmp((char *)pm, "/tmp"));
    CHECK(readlink("/proc/self/exe", (char *)pm + 256, 1000) > 5);
    memset(pm + 256, 0, 1000);
    next_case("uname, sysinfo, times, rusage, limits");
    CHECK(uname((struct utsname *)pm) == 0);
    CHECK(sysinfo((struct sysinfo *)(pm + 512)) == 0);
    CHECK(times((struct tms *)(pm + 1024)) != (clock_t)-1);
    CHECK(getrusage(RUSAGE_SELF, (struct rusage *)(pm + 2048)) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, (struct rlimit *)(pm + 3000)) == 0);
    next_case("clocks");
    CHECK(clock_gettime(CLOCK_REALTIME, (struct timespec *)pm) == 0);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, pm + 64) == 0);
    CHECK(gettimeofday((struct timeval *)(pm + 128), NULL) == 0);
    CHECK(clock_getres(CLOCK_REALTIME, (struct timespec *)(pm + 192)) == 0);
    *(struct timespec *)(pm + 256) = (struct timespec){0, 1000};
    CHECK(nanosleep((struct timespec *)(pm + 256), (struct timespec *)(pm + 320)) == 0);
    CHECK(time((time_t *)(pm + 384)) > 1000000);
    next_case("signals");
    sigset_t *old = (sigset_t *)pm;
    CHECK(sigprocmask(SIG_SETMASK, NULL, old) == 0);
    CHECK(sigpending((sigset_t *)(pm + 256)) == 0);
    struct sigaction *sa = (struct sigaction *)(pm + 512);
    CHECK(sigaction(SIGUSR1, NULL, sa) == 0 && sa->sa_handler == SIG_DFL);
    // The raw call with both structures in the pool.
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, pm + 1024, 8) == 0);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    raise(SIGUSR1);
    siginfo_t *info = (siginfo_t *)(pm + 2048);
    CHECK(syscall(SYS_rt_sigtimedwait, &usr1, info, NULL, 8) == SIGUSR1 && info->si_signo == SIGUSR1);
    next_case("wait4 and affinity");
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    CHECK(wait4(pid, (int *)pm, 0, (struct rusage *)(pm + 64)) == pid && *(int *)pm == 3 << 8);
    CHECK(syscall(SYS_sched_getaffinity, 0, 128, pm + 512) > 0);
    next_case("paths in the pool");
    strcpy((char *)pm, "/dev/null");
    int fd = open((char *)pm, O_WRONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(access((char *)pm, R_OK) == 0);
}

static void *futex_partner(void *arg)
{
    uint32_t *w = arg;
    for (uint32_t i = 0; i < 500; i++) {
        while (__atomic_load_n(&w[0], __ATOMIC_SEQ_CST) == i)
            syscall(SYS_futex, &w[0], FUTEX_WAIT, i, NULL, NULL, 0);
        __atomic_store_n(&w[16], i + 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &w[16], FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return NULL;
}

static _Atomic long counter;
static pthread_mutex_t *pm_mutex;
static pthread_cond_t *pm_cond;
static void *mutex_user(void *arg)
{
    long *value = arg;
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(pm_mutex);
        ++*value;
        counter++;
        pthread_cond_signal(pm_cond);
        pthread_mutex_unlock(pm_mutex);
    }
    return NULL;
}

static void futexes(void)
{
    next_case("futex words in the pool");
    uint32_t *w = (uint32_t *)pm;
    w[0] = w[16] = 0;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, futex_partner, w) == 0);
    for (uint32_t i = 0; i < 500; i++) {
        __atomic_store_n(&w[0], i + 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &w[0], FUTEX_WAKE, 1, NULL, NULL, 0);
        while (__atomic_load_n(&w[16], __ATOMIC_SEQ_CST) != i + 1)
            syscall(SYS_futex, &w[16], FUTEX_WAIT, i, NULL, NULL, 0);
    }
    pthread_join(t, NULL);
    next_case("pthread mutex and condition in the pool");
    pm_mutex = (pthread_mutex_t *)pm;
    pm_cond = (pthread_cond_t *)(pm + 256);
    pthread_mutex_init(pm_mutex, NULL);
    pthread_cond_init(pm_cond, NULL);
    long *value = (long *)(pm + 512);
    pthread_t u[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&u[i], NULL, mutex_user, value) == 0);
    pthread_mutex_lock(pm_mutex);
    while (*value < 2000)
        pthread_cond_wait(pm_cond, pm_mutex);
    pthread_mutex_unlock(pm_mutex);
    for (int i = 0; i < 4; i++)
        pthread_join(u[i], NULL);
    CHECK_EQ(*value, 2000);
}

static void writes_from(void)
{
    next_case("write, writev, pwrite from the pool");
    int p[2];
    CHECK(pipe(p) == 0);
    memcpy(pm, "from persistent memory", 22);
    CHECK(write(p[1], pm, 22) == 22 && read(p[0], dram, 100) == 22 && !memcmp(dram, pm, 22));
    struct iovec *v = (struct iovec *)(pm + 256);
    v[0] = (struct iovec){pm, 4};
    v[1] = (struct iovec){pm + 16, 6};
    CHECK(writev(p[1], v, 2) == 10 && read(p[0], dram, 100) == 10 && !memcmp(dram, "frommemory", 10));
    CHECK(vmsplice(p[1], v, 1, 0) == 4 && read(p[0], dram, 100) == 4 && !memcmp(dram, "from", 4));
    close(p[0]);
    close(p[1]);
}

// Ways around the mapping.
static void around(void)
{
    next_case("/proc/self/mem");
    int mem = open("/proc/self/mem", O_RDWR);
    CHECK(mem >= 0);
    off_t at = (off_t)(uintptr_t)pm;
    memcpy(pm, "through the mapping", 19);
    CHECK(pread(mem, dram, 19, at) == 19 && !memcmp(dram, pm, 19));
    CHECK(pwrite(mem, "through the file", 16, at + 64) == 16 && !memcmp(pm + 64, "through the file", 16));
    CHECK(lseek(mem, at + 128, SEEK_SET) == at + 128);
    CHECK(write(mem, "one", 3) == 3 && write(mem, "two", 3) == 3 && !memcmp(pm + 128, "onetwo", 6));
    CHECK(lseek(mem, 0, SEEK_CUR) == at + 134);
    struct iovec parts[2] = {{dram, 0}, {dram, 6}};
    CHECK(preadv(mem, parts, 2, at + 128) == 6 && !memcmp(dram, "onetwo", 6));
    // From the pool to the pool.
    CHECK(pwrite(mem, pm + 128, 6, at + 192) == 6 && !memcmp(pm + 192, "onetwo", 6));
    CHECK(pread(mem, pm + 256, 6, at + 192) == 6 && !memcmp(pm + 256, "onetwo", 6));
    // Other memory is reached as ever.
    strcpy((char *)dram, "ordinary");
    CHECK(pwrite(mem, "O", 1, (off_t)(uintptr_t)dram) == 1 && !strcmp((char *)dram, "Ordinary"));
    close(mem);
    next_case("process_vm_readv and process_vm_writev of this process");
    struct iovec here = {dram, 8}, there = {pm, 8};
    memcpy(pm, "12345678", 8);
    CHECK(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 8 && !memcmp(dram, "12345678", 8));
    memcpy(dram, "87654321", 8);
    CHECK(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 8 && !memcmp(pm, "87654321", 8));
    next_case("answers of calls that the engine makes itself");
    struct stat *status = (struct stat *)pm;
    CHECK(stat("/", status) == 0 && S_ISDIR(status->st_mode));
    CHECK(clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(pm + 256)) == 0);
    CHECK(syscall(SYS_gettimeofday, pm + 320, NULL) == 0);
    CHECK(syscall(SYS_time, pm + 384) > 0);
    CHECK(syscall(SYS_getcpu, pm + 448, pm + 456, NULL) == 0);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, pm + 512, 8) == 0);
    CHECK(syscall(SYS_rt_sigaction, SIGUSR2, NULL, pm + 576, 8) == 0);
    CHECK(syscall(SYS_sigaltstack, NULL, pm + 640) == 0);
    CHECK(syscall(SYS_times, pm + 704) > 0 && getrusage(RUSAGE_SELF, (struct rusage *)(pm + 768)) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    CHECK(waitpid(child, (int *)(pm + 1024), 0) == child && WEXITSTATUS(*(int *)(pm + 1024)) == 3);
    next_case("mlock");
    CHECK(mlock(pm, 4096) == 0 && munlock(pm, 4096) == 0);
}

static void mappings(struct pool pool, const char *path)
{
    next_case("pwrite to the mapped file");
    off_t at = pm - pool.base;
    CHECK(pwrite(pool.fd, "written", 7, at + 10) == 7 && !memcmp(pm + 10, "written", 7));
    CHECK(lseek(pool.fd, at + 100, SEEK_SET) == at + 100 && write(pool.fd, "again", 5) == 5);
    CHECK(!memcmp(pm + 100, "again", 5));
    int other = open(path, O_RDWR);
    CHECK(other >= 0 && pwrite(other, "other fd", 8, at + 200) == 8 && !memcmp(pm + 200, "other fd", 8));
    // From one place of the pool to another through the descriptor.
    CHECK(pwrite(other, pm + 200, 8, at + 300) == 8 && !memcmp(pm + 300, "other fd", 8));
    CHECK(fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096) == 0 || errno == EOPNOTSUPP);
    next_case("second mapping of the same file");
    unsigned char *twice = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, other, pm - pool.base);
    CHECK(twice != MAP_FAILED);
    pm[5] = 55;
    CHECK_EQ(twice[5], 55);
    twice[6] = 66;
    CHECK_EQ(pm[6], 66);
    PM_STORE64(twice + 64, 0x1111);
    PM_STORE64(pm + 72, *(uint64_t *)(twice + 64) + 1);
    CHECK_EQ(*(uint64_t *)(twice + 72), 0x1112);
    CHECK(close(other) == 0); // the mapping outlives the descriptor
    twice[7] = 77;
    CHECK_EQ(pm[7], 77);
    CHECK(munmap(twice, 8192) == 0);
    next_case("private mapping is not the pool");
    unsigned char *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, pool.fd, pm - pool.base);
    CHECK(private != MAP_FAILED);
    pm[0] = 1;
    CHECK_EQ(private[0], 1);
    private[1] = 2;
    CHECK_EQ(pm[1], 0);
    CHECK(munmap(private, 4096) == 0);
    next_case("mprotect");
    for (int i = 0; i < 20; i++) {
        CHECK(mprotect(pm, 4096, PROT_READ) == 0);
        CHECK_EQ(pm[0], i);
        CHECK(mprotect(pm, 4096, PROT_READ | PROT_WRITE) == 0);
        pm[0]++;
    }
    CHECK(mprotect(pm, 4096, PROT_NONE) == 0);
    CHECK(read(0, pm, 0) <= 0);
    int p[2];
    CHECK(pipe(p) == 0 && write(p[1], "x", 1) == 1);
    CHECK(read(p[0], pm, 1) == -1 && errno == EFAULT);
    CHECK(write(p[1], pm, 1) == -1 && errno == EFAULT);
    CHECK(mprotect(pm, 4096, PROT_READ) == 0);
    CHECK(read(p[0], pm, 1) == -1 && errno == EFAULT); // the program's protection counts
    CHECK(write(p[1], pm, 1) == 1);
    CHECK(mprotect(pm, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(read(p[0], pm + 1, 1) == 1);
    close(p[0]);
    close(p[1]);
    next_case("msync, fsync, fdatasync, sync_file_range");
    pm[9] = 9;
    CHECK(msync(pm, 4096, MS_SYNC) == 0);
    CHECK(msync(pm, 4096, MS_ASYNC) == 0);
    CHECK(msync(pm + 1, 4096, MS_SYNC) == -1 && errno == EINVAL);
    CHECK(fsync(pool.fd) == 0 && fdatasync(pool.fd) == 0);
    CHECK(sync_file_range(pool.fd, 0, 4096, SYNC_FILE_RANGE_WRITE) == 0 || errno == ESPIPE || errno == EINVAL);
    next_case("madvise and mincore");
    CHECK(madvise(pm, 4096, MADV_WILLNEED) == 0 && madvise(pm, 4096, MADV_RANDOM) == 0);
    pm[3] = 3;
    CHECK(madvise(pm, 4096, MADV_DONTNEED) == 0 && pm[3] == 3);
    unsigned char vec[1];
    CHECK(mincore(pm, 4096, vec) == 0);
    next_case("holes: partial munmap and MAP_FIXED over a part");
    unsigned char *m = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, pm - pool.base);
    CHECK(m != MAP_FAILED);
    CHECK(munmap(m + 2 * 4096, 4096) == 0);
    m[0] = 1;
    m[3 * 4096] = 2;
    CHECK(mmap(m + 5 * 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 5 * 4096);
    m[5 * 4096] = 99; // ordinary memory now
    m[4 * 4096 + 4095] = 3;
    CHECK(pm[0] == 1 && pm[3 * 4096] == 2 && pm[5 * 4096] == 0 && pm[4 * 4096 + 4095] == 3);
    memset(m + 4 * 4096, 0x44, 3 * 4096); // one call over pool, ordinary, pool
    CHECK(pm[4 * 4096 + 1] == 0x44 && pm[5 * 4096 + 1] == 0 && pm[6 * 4096 + 1] == 0x44);
    CHECK(mmap(m + 2 * 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool.fd, pm - pool.base + 2 * 4096) == m + 2 * 4096);
    m[2 * 4096] = 7;
    CHECK_EQ(pm[2 * 4096], 7);
    next_case("mremap");
    unsigned char *before = pm;
    unsigned char *g = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, before - pool.base);
    g[1] = 1;
    unsigned char *h = mremap(g, 4096, 4 * 4096, MREMAP_MAYMOVE);
    CHECK(h != MAP_FAILED);
    h[3 * 4096 + 1] = 4;
    CHECK(before[1] == 1 && before[3 * 4096 + 1] == 4);
    unsigned char *fixed = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(h, 4 * 4096, 4 * 4096, MREMAP_MAYMOVE | MREMAP_FIXED, fixed) == fixed);
    fixed[2 * 4096 + 1] = 3;
    CHECK_EQ(before[2 * 4096 + 1], 3);
    CHECK(mremap(fixed, 4 * 4096, 4096, 0) == fixed);
    fixed[2] = 22;
    CHECK(before[2] == 22 && munmap(fixed, 4096) == 0);
    // A part was protected and is as it was: the pieces are one mapping again.
    g = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pool.fd, before - pool.base);
    CHECK(g != MAP_FAILED);
    CHECK(mprotect(g + 4096, 4096, PROT_READ) == 0 && mprotect(g + 3 * 4096, 4096, PROT_NONE) == 0);
    CHECK(mremap(g, 4 * 4096, 8 * 4096, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK(mprotect(g + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(mprotect(g + 3 * 4096, 4096, PROT_READ | PROT_WRITE) == 0);
    h = mremap(g, 4 * 4096, 8 * 4096, MREMAP_MAYMOVE);
    CHECK(h != MAP_FAILED);
    h[4096 + 3] = 41;
    h[7 * 4096 + 3] = 47;
    CHECK(before[4096 + 3] == 41 && before[7 * 4096 + 3] == 47 && munmap(h, 8 * 4096) == 0);
    CHECK(munmap(m, 8 * 4096) == 0);
    pm += 8 * 4096;
}

static void grow_and_shrink(const char *path)
{
    next_case("ftruncate grows and shrinks under a mapping");
    char name[4096];
    snprintf(name, sizeof name, "%s.grow", path);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
    unsigned char *m = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(m != MAP_FAILED);
    m[0] = 1;
    CHECK(ftruncate(fd, 3 * 4096) == 0);
    m[2 * 4096 + 5] = 3;
    CHECK(ftruncate(fd, 4096 + 100) == 0); // cuts off, and zeroes the rest of its last page
    m[4096 + 50] = 2;
    CHECK(ftruncate(fd, 3 * 4096) == 0);
    CHECK(m[2 * 4096 + 5] == 0 && m[4096 + 50] == 2);
    CHECK(truncate(name, 4 * 4096) == 0);
    m[3 * 4096] = 4;
    CHECK(fallocate(fd, 0, 0, 5 * 4096) == 0);
    unsigned char c;
    CHECK(pread(fd, &c, 1, 3 * 4096) == 1 && c == 4);
    CHECK(rename(name, strcat(strcpy((char *)dram, name), "2")) == 0);
    m[1] = 9; // still the same file
    CHECK(munmap(m, 4 * 4096) == 0 && close(fd) == 0);
    CHECK(unlink((char *)dram) == 0);
}

static void fork_both(void)
{
    next_case("fork: parent and child both store");
    volatile uint64_t *w = (volatile uint64_t *)pm;
    for (int round = 0; round < 5; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (uint64_t i = 0; i < 200; i++) {
                w[i % 100] = i + 1000;
                __atomic_add_fetch(&w[300], 1, __ATOMIC_SEQ_CST);
            }
            _exit(0);
        }
        for (uint64_t i = 0; i < 200; i++) {
            w[100 + i % 100] = i + 2000;
            __atomic_add_fetch(&w[300], 1, __ATOMIC_SEQ_CST);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    CHECK_EQ(w[300], 2000);
    CHECK(w[99] == 1199 && w[199] == 2199);
}

int main(int argc, char **argv)
{
    struct pool pool = pool_create(argc, argv, 1 << 20);
    char path[4096];
    CHECK(realpath(argv[1], path));
    pm = pool.base;
    reads();
    sockets();
    answers(pool);
    futexes();
    writes_from();
    around();
    mappings(pool, path);
    grow_and_shrink(path);
    fork_both();
    CHECK(pm < pool.base + pool.size);
    pool_check_file(pool);
    printf("system calls on the pool ok\n");
    return 0;
}
