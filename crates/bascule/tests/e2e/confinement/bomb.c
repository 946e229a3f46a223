// A fork bomb in several forms. It ends by itself, and records that, so that a failed test does not ruin the machine.
// Usage: bomb FORM MAX_LIVE SECONDS [MEMBER], in a folder where it may write. FORM is a name below.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct { int live, births, survived; } *state;
static int max_live;
static time_t end;
static char **arguments;

static void check_time(void) {
    if (time(0) < end) return;
    state->survived = 1;
    _exit(0);
}

// Counts a process before it is created.
static int claim(void) {
    check_time();
    if (__atomic_add_fetch(&state->live, 1, __ATOMIC_SEQ_CST) > max_live) {
        __atomic_sub_fetch(&state->live, 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    __atomic_add_fetch(&state->births, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static void unclaim(void) {
    __atomic_sub_fetch(&state->live, 1, __ATOMIC_SEQ_CST);
    usleep(200);
}

// Makes room for others to be born; a quarter stays.
static void leave_if_crowded(void) {
    if (__atomic_sub_fetch(&state->live, 1, __ATOMIC_SEQ_CST) >= max_live / 4) _exit(0);
    __atomic_add_fetch(&state->live, 1, __ATOMIC_SEQ_CST);
    sched_yield();
}

static void plain(void) {
    for (;;) {
        if (!claim()) leave_if_crowded();
        else if (fork() < 0) unclaim();
    }
}

static void hop(void) {
    for (;;) {
        if (!claim()) { leave_if_crowded(); continue; }
        pid_t child = fork();
        if (child < 0) unclaim();
        if (child) continue;
        setsid();
        child = fork();
        if (child < 0) unclaim();
        if (child) _exit(0);
    }
}

static void stubborn(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (int number = 1; number < 65; number++)
        if (number != SIGCHLD) signal(number, SIG_IGN);
    hop();
}

static void clone_parent(void) {
    for (;;) {
        if (!claim()) leave_if_crowded();
        else if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) < 0) unclaim();
    }
}

static void become_member(void) {
    char *again[] = {arguments[0], arguments[1], arguments[2], arguments[3], "member", 0};
    execv(again[0], again);
    _exit(1);
}

static void with_vfork(void) {
    for (;;) {
        if (!claim()) { leave_if_crowded(); continue; }
        pid_t child = vfork();
        if (child == 0) become_member();
        if (child < 0) unclaim();
    }
}

// Every process executes a successor and exits: a scan that is too slow sees none of them.
static void chain(int is_member) {
    for (int link = 0; !is_member && link < max_live / 2; link++)
        if (fork() == 0) break;
    for (;;) {
        check_time();
        __atomic_add_fetch(&state->births, 1, __ATOMIC_SEQ_CST);
        pid_t child = fork();
        if (child == 0) become_member();
        if (child > 0) _exit(0);
        usleep(200);
    }
}

static void start_threads(void);

// Above the maximum, children exit at once.
static void *fork_from_thread(void *unused) {
    for (;;) {
        int stays = claim();
        if (!stays) __atomic_add_fetch(&state->births, 1, __ATOMIC_SEQ_CST);
        pid_t child = fork();
        if (child < 0 && stays) unclaim();
        if (child == 0 && !stays) _exit(0);
        if (child == 0) start_threads();
    }
    return unused;
}

static void start_threads(void) {
    pthread_t thread;
    for (int number = 0; number < 4; number++) pthread_create(&thread, 0, fork_from_thread, 0);
    fork_from_thread(0);
}

int main(int count, char **values) {
    if (count < 4) return 1;
    arguments = values;
    max_live = atoi(values[2]);
    end = time(0) + atoi(values[3]);
    int is_member = count > 4;
    int file = open("state", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (file < 0 || ftruncate(file, sizeof *state)) return 1;
    state = mmap(0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    // Inherited by all: the lock is free when none is left.
    if (!is_member && flock(open("held", O_CREAT | O_RDWR, 0644), LOCK_SH)) return 1;
    signal(SIGCHLD, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    if (!strcmp(values[1], "plain")) plain();
    if (!strcmp(values[1], "hop")) hop();
    if (!strcmp(values[1], "stubborn")) stubborn();
    if (!strcmp(values[1], "clone_parent")) clone_parent();
    if (!strcmp(values[1], "vfork")) with_vfork();
    if (!strcmp(values[1], "chain")) chain(is_member);
    if (!strcmp(values[1], "threads")) start_threads();
    return 1;
}
