"""The system calls of a sandbox: a seccomp filter written as classic BPF, for x86-64.

An allow-list: what is not named answers ENOSYS, as on a kernel that has never heard of it, so that a C library
falls back instead of failing. `clone3` must: its flags lie in memory, which a filter cannot read, and the
library then takes `clone`, whose flags can be checked.
"""

from __future__ import annotations

import errno
import struct

AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x40000000

# name -> number, arch/x86/entry/syscalls/syscall_64.tbl
ALLOWED: dict[str, int] = {
    # files and descriptors
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "pipe": 22, "select": 23, "dup": 32,
    "dup2": 33, "sendfile": 40, "flock": 73, "fsync": 74, "fdatasync": 75, "truncate": 76,
    "ftruncate": 77, "getdents": 78, "getcwd": 79, "chdir": 80, "fchdir": 81, "rename": 82, "mkdir": 83,
    "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "readlink": 89, "chmod": 90, "fchmod": 91,
    "umask": 95, "utime": 132, "statfs": 137, "fstatfs": 138, "readahead": 187, "getxattr": 191, "lgetxattr": 192,
    "fgetxattr": 193, "listxattr": 194, "llistxattr": 195, "flistxattr": 196, "getdents64": 217, "fadvise64": 221,
    "epoll_create": 213, "epoll_wait": 232, "epoll_ctl": 233, "utimes": 235, "openat": 257, "mkdirat": 258,
    "futimesat": 261, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266,
    "readlinkat": 267, "fchmodat": 268, "faccessat": 269, "pselect6": 270, "ppoll": 271, "sync_file_range": 277,
    "utimensat": 280, "epoll_pwait": 281, "signalfd": 282, "timerfd_create": 283, "eventfd": 284, "fallocate": 285,
    "timerfd_settime": 286, "timerfd_gettime": 287, "signalfd4": 289, "eventfd2": 290, "epoll_create1": 291,
    "dup3": 292, "pipe2": 293, "preadv": 295, "pwritev": 296, "renameat2": 316, "copy_file_range": 326,
    "preadv2": 327, "pwritev2": 328, "statx": 332, "close_range": 436, "openat2": 437, "faccessat2": 439,
    "epoll_pwait2": 441,
    # memory
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "mremap": 25, "msync": 26, "madvise": 28,
    # processes, threads, signals
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "pause": 34, "nanosleep": 35,
    "getitimer": 36, "alarm": 37, "setitimer": 38, "getpid": 39, "fork": 57, "vfork": 58, "execve": 59, "exit": 60,
    "wait4": 61, "kill": 62, "uname": 63, "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100,
    "setpgid": 109, "getppid": 110, "getpgrp": 111, "getpgid": 121, "getsid": 124, "capget": 125,
    "rt_sigpending": 127, "rt_sigtimedwait": 128, "rt_sigqueueinfo": 129, "rt_sigsuspend": 130, "sigaltstack": 131,
    "getpriority": 140, "sched_getparam": 143, "sched_getscheduler": 145,
    "sched_get_priority_max": 146, "sched_get_priority_min": 147, "arch_prctl": 158, "setrlimit": 160,
    "gettid": 186, "tkill": 200, "futex": 202, "sched_getaffinity": 204,
    "set_tid_address": 218, "restart_syscall": 219, "timer_create": 222, "timer_settime": 223,
    "timer_gettime": 224, "timer_getoverrun": 225, "timer_delete": 226, "exit_group": 231, "tgkill": 234,
    "waitid": 247, "set_robust_list": 273, "get_robust_list": 274, "getcpu": 309, "execveat": 322,
    "membarrier": 324, "rseq": 334, "pidfd_send_signal": 424, "pidfd_open": 434,
    # who and when
    "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getgroups": 115, "getresuid": 118,
    "getresgid": 120, "gettimeofday": 96, "time": 201, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "getrandom": 318,
    # sockets, once there is one: see `socket` below
    "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "shutdown": 48,
    "bind": 49, "listen": 50, "getsockname": 51, "getpeername": 52, "setsockopt": 54, "getsockopt": 55,
    "accept4": 288, "recvmmsg": 299, "sendmmsg": 307,
}  # fmt: skip

# Allowed by their arguments only.
IOCTL, CLONE, PRCTL, SOCKET, SOCKETPAIR, PRLIMIT64, SCHED_SETAFFINITY = 16, 56, 157, 41, 53, 302, 203
FCNTL, SETSID = 72, 112
F_SETPIPE_SZ = 1031
AF_UNIX = 1
CLONE_NEW_ANY = (
    0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x80
)
TERMINAL_QUESTIONS = (
    0x5401,
    0x5413,
    0x540F,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
)  # none of them writes: no TIOCSTI
PRCTLS = (1, 2, 3, 4, 15, 16, 38, 39)  # death signal, dumpable, name, no_new_privs (read and set)

# classic BPF
LOAD, EQUAL, AT_LEAST, ANY_BIT, GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, ARGUMENT_0 = 0, 4, 16
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000


def _refuse(number: int) -> int:
    return 0x00050000 | number


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument_is_one_of(values: tuple[int, ...], otherwise: int) -> list[bytes]:
    """Look at the low half of argument 0: the kernel's own type of it is 32 bits wide."""
    checks = [_instruction(EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [
        _instruction(LOAD, ARGUMENT_0), *checks, _instruction(GIVE, _refuse(otherwise)), _instruction(GIVE, ALLOW),
    ]  # fmt: skip


def _second_argument_is_one_of(values: tuple[int, ...], otherwise: int) -> list[bytes]:
    block = _argument_is_one_of(values, otherwise)
    return [_instruction(LOAD, ARGUMENT_0 + 8), *block[1:]]


def _no_new_namespace() -> list[bytes]:
    return [
        _instruction(LOAD, ARGUMENT_0),
        _instruction(ANY_BIT, CLONE_NEW_ANY & ~0x80, 0, 1),  # 0x80 is part of the exit signal here
        _instruction(GIVE, _refuse(errno.EPERM)),
        _instruction(GIVE, ALLOW),
    ]


def _no_larger_pipe() -> list[bytes]:
    """A pipe of 64 KiB is what a supervisor counts for one, where no control group does."""
    return [
        _instruction(LOAD, ARGUMENT_0 + 8),
        _instruction(EQUAL, F_SETPIPE_SZ, 0, 1),
        _instruction(GIVE, _refuse(errno.EPERM)),
        _instruction(GIVE, ALLOW),
    ]


def program() -> bytes:
    """The filter, as bubblewrap's --seccomp reads it: an array of struct sock_filter."""
    conditional: dict[int, list[bytes]] = {
        SOCKET: _argument_is_one_of((AF_UNIX,), errno.EACCES),
        SOCKETPAIR: _argument_is_one_of((AF_UNIX,), errno.EACCES),
        CLONE: _no_new_namespace(),
        IOCTL: _second_argument_is_one_of(TERMINAL_QUESTIONS, errno.ENOTTY),
        PRCTL: _argument_is_one_of(PRCTLS, errno.EINVAL),
        FCNTL: _no_larger_pipe(),
        # The kernel deals time out by session where no control group bounds the cores: a program keeps to its one.
        SETSID: [_instruction(GIVE, _refuse(errno.EPERM))],
        # Of itself only: what slows process 1 down slows every test that it forks later.
        PRLIMIT64: _argument_is_one_of((0,), errno.EPERM),
        SCHED_SETAFFINITY: _argument_is_one_of((0,), errno.EPERM),
    }
    code = [
        _instruction(LOAD, ARCH),
        _instruction(EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        _instruction(GIVE, KILL_PROCESS),
        _instruction(LOAD, NR),
        _instruction(AT_LEAST, X32_BIT, 0, 1),
        _instruction(GIVE, KILL_PROCESS),
    ]
    for number, block in conditional.items():
        code += [_instruction(EQUAL, number, 0, len(block)), *block]
    for first, last in _ranges(sorted(ALLOWED.values())):
        # nr >= first and not nr >= last + 1
        code += [
            _instruction(AT_LEAST, first, 0, 2),
            _instruction(AT_LEAST, last + 1, 1, 0),
            _instruction(GIVE, ALLOW),
        ]
    code.append(_instruction(GIVE, _refuse(errno.ENOSYS)))
    return b"".join(code)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
