/* SPDX-License-Identifier: Apache-2.0 */
/* System calls of this thread: a filter of the kernel's makes signals of them. */
#include "syscalls.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "faults/inject.h"

/*
 * The filter lets through what is made at syscalls_made, where the handler makes it. Besides what
 * only a caller can do for itself: leaving the handler, masking signals, ending.
 */
long syscalls_make(long number, long a, long b, long c, long d, long e, long f);
extern const char syscalls_made[];

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl syscalls_make\n"
        "syscalls_make:\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        ".globl syscalls_made\n"
        "syscalls_made:\n"
        "    ret\n");
#define ARCHITECTURE AUDIT_ARCH_X86_64

static void registers_read(const ucontext_t *context, long ret_args[6])
{
    static const int registers[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

    for (int i = 0; i < 6; i++) {
        ret_args[i] = (long)context->uc_mcontext.gregs[registers[i]];
    }
}

static void result_write(ucontext_t *context, long result)
{
    context->uc_mcontext.gregs[REG_RAX] = result;
}
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl syscalls_make\n"
        "syscalls_make:\n"
        "    mov x8, x0\n"
        "    mov x0, x1\n"
        "    mov x1, x2\n"
        "    mov x2, x3\n"
        "    mov x3, x4\n"
        "    mov x4, x5\n"
        "    mov x5, x6\n"
        "    svc #0\n"
        ".globl syscalls_made\n"
        "syscalls_made:\n"
        "    ret\n");
#define ARCHITECTURE AUDIT_ARCH_AARCH64

static void registers_read(const ucontext_t *context, long ret_args[6])
{
    for (int i = 0; i < 6; i++) {
        ret_args[i] = (long)context->uc_mcontext.regs[i];
    }
}

static void result_write(ucontext_t *context, long result)
{
    context->uc_mcontext.regs[0] = (unsigned long)result;
}
#endif

static volatile uint32_t counts[SYSCALLS_MAX];
static volatile bool is_counting;

static void call_make(int signal, siginfo_t *info, void *user)
{
    ucontext_t *context = user;
    long args[6];

    (void)signal;
    if (is_counting && info->si_syscall >= 0 && info->si_syscall < SYSCALLS_MAX) {
        counts[info->si_syscall]++;
    }
    registers_read(context, args);
    result_write(context, syscalls_make(info->si_syscall, args[0], args[1], args[2], args[3],
                                        args[4], args[5]));
}

#define FIELD(name)      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define LET_BY(constant) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (constant), 0, 1), PASS
#define PASS             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static bool filter_set(void)
{
    uint64_t made = (uint64_t)(uintptr_t)syscalls_made;
    struct sock_filter code[] = {
        FIELD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        PASS,
        FIELD(nr),
        LET_BY(SYS_rt_sigreturn),
        LET_BY(SYS_rt_sigprocmask),
        LET_BY(SYS_exit),
        LET_BY(SYS_exit_group),
        LET_BY(SYS_clock_gettime),
        FIELD(instruction_pointer), /* its lower half: both machines have that first */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)made, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(made >> 32), 0, 1),
        PASS,
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool syscalls_trap(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_sigaction = call_make;
    action.sa_flags = SA_SIGINFO;
    /* A sanitizer has signals and system calls of its own. */
    return inject_is_possible(INJECT_MEMORY) && sigaction(SIGSYS, &action, NULL) == 0 &&
           filter_set();
}

void syscalls_start(void)
{
    for (int i = 0; i < SYSCALLS_MAX; i++) {
        counts[i] = 0;
    }
    is_counting = true;
}

void syscalls_stop(void)
{
    is_counting = false;
}

uint32_t syscalls_count(long number)
{
    return counts[number];
}

long syscalls_other(const long *allowed, uint32_t n_allowed)
{
    for (long number = 0; number < SYSCALLS_MAX; number++) {
        bool is_allowed = counts[number] == 0;

        for (uint32_t i = 0; i < n_allowed; i++) {
            is_allowed |= allowed[i] == number;
        }
        if (!is_allowed) {
            return number;
        }
    }
    return -1;
}
