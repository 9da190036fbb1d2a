// Runs a program as a container does: with a seccomp profile like the usual one, under which some calls fail with EPERM.
// build: dynamic
// args: /bin/true
//
//   container PROGRAM ARGS…
//
// What the profile of the common container engines leaves to an ordinary process is the rule here, too: `personality` may only
// ask and choose what is the default anyway, no namespaces, no mounts, no `pidfd_getfd`, no `kcmp`, no `userfaultfd`, no `bpf`.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RET(value) BPF_STMT(BPF_RET | BPF_K, value)
#define DENY RET(SECCOMP_RET_ERRNO | EPERM)
// If the value is `n`, the next instruction counts; else it is passed over.
#define IF(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1)
#define DENIED(n) IF(n), DENY

int main(int argc, char **argv)
{
    struct sock_filter filter[] = {
        LOAD(nr),
        DENIED(438), // pidfd_getfd
        DENIED(SYS_kcmp),
        DENIED(SYS_userfaultfd),
        DENIED(SYS_bpf),
        DENIED(SYS_perf_event_open),
        DENIED(SYS_unshare),
        DENIED(SYS_setns),
        DENIED(SYS_mount),
        DENIED(SYS_umount2),
        DENIED(SYS_pivot_root),
        DENIED(SYS_open_by_handle_at),
        DENIED(425), // io_uring_setup
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 0, 4),
        LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        DENY,
        RET(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("container");
        return 99;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 99;
}
