"""System calls and kernel interfaces that the sandbox must block."""

from __future__ import annotations

import errno

from tests.sandbox.attack_cases.attack import Attack, system_call

# Blocked system calls, with the numbers of the kernel's headers. Some have attacks of their own below.
BLOCKED_CALLS = {
    "shmget": 29, "shmat": 30, "shmctl": 31, "msgget": 68, "semget": 64, "mq_open": 240, "chown": 92, "fchown": 93,
    "lchown": 94, "ptrace": 101, "syslog": 103, "setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114,
    "setgroups": 116, "setresuid": 117, "setresgid": 119, "setfsuid": 122, "capset": 126, "mknod": 133, "uselib": 134,
    "personality": 135, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144, "mlock": 149,
    "mlockall": 151, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "sysctl": 156, "adjtimex": 159,
    "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
    "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
    "delete_module": 176, "quotactl": 179, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "io_setup": 206,
    "clock_settime": 227, "mbind": 237, "set_mempolicy": 238, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "ioprio_set": 251, "inotify_init": 253, "migrate_pages": 256, "mknodat": 259, "fchownat": 260,
    "unshare": 272, "splice": 275, "tee": 276, "vmsplice": 278, "move_pages": 279, "inotify_init1": 294,
    "perf_event_open": 298, "fanotify_init": 300, "fanotify_mark": 301, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "seccomp": 317, "memfd_create": 319,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "pkey_mprotect": 329, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "landlock_create_ruleset": 444, "memfd_secret": 447, "process_mrelease": 448,
    "set_mempolicy_home_node": 450, "cachestat": 451, "mseal": 462,
}  # fmt: skip

ATTACKS: tuple[Attack, ...] = (
    system_call("ptrace", 101, "16, 1, 0, 0"),
    system_call("process_vm_readv", 310, "1, 0, 0, 0, 0, 0"),
    system_call("process_vm_writev", 311, "1, 0, 0, 0, 0, 0"),
    system_call("pidfd_getfd", 438, "3, 0, 0"),
    system_call("new_user_namespace", 272, "0x10000000"),
    system_call("new_mount_namespace_by_clone", 56, "0x00020011, 0, 0, 0, 0", refusal=errno.EPERM),
    system_call("new_user_namespace_by_clone", 56, "0x10000011, 0, 0, 0, 0", refusal=errno.EPERM),
    system_call("clone3", 435, "0, 0"),
    system_call("setns", 308, "3, 0"),
    system_call("mount", 165, "b'none', b'/tmp', b'tmpfs', 0, 0"),
    system_call("umount", 166, "b'/tmp', 2"),
    system_call("new_mount_api", 430, "b'tmpfs', 0"),
    system_call("pivot_root", 155, "b'/tmp', b'/tmp'"),
    system_call("chroot", 161, "b'/tmp'"),
    system_call("bpf", 321, "0, 0, 0"),
    system_call("io_uring", 425, "8, 0"),
    system_call("keyctl", 250, "0, -3, 0"),
    system_call("add_key", 248, "b'user', b'a', b'b', 1, -3"),
    system_call("perf_event_open", 298, "0, 0, -1, -1, 0"),
    system_call("userfaultfd", 323, "1"),
    system_call("kexec_load", 246, "0, 0, 0, 0"),
    system_call("init_module", 175, "0, 0, b''"),
    system_call("open_by_handle_at", 304, "3, 0, 0"),
    system_call("fake_input_to_a_terminal", 16, "0, 0x5412, b'x'", refusal=errno.ENOTTY),
    system_call("ioctl_without_a_name", 16, "1, 0x5452, ctypes.byref(ctypes.c_int(1))", refusal=errno.ENOTTY),
    system_call("reaper_of_its_own", 157, "36, 1, 0, 0, 0", refusal=errno.EINVAL),
    system_call("pair_of_sockets_of_the_network", 53, "2, 1, 0, (ctypes.c_int * 2)()", refusal=errno.EACCES),
    system_call("slows_process_1_down", 141, "0, 1, 19"),
    system_call("pins_process_1_to_a_core", 203, "1, 8, ctypes.byref(ctypes.c_ulong(1))", refusal=errno.EPERM),
    system_call("setuid", 105, "0"),
    system_call("capset", 126, "0, 0"),
    system_call("new_seccomp_filter", 317, "1, 0, 0"),
    system_call("limits_of_process_1", 302, "1, 6, 0, 0", refusal=errno.EPERM),
    system_call("session_of_its_own", 112, refusal=errno.EPERM),
    system_call("personality", 135, "0x0040000"),
    system_call("mknod", 133, "b'/tmp/d', 0o60666, 0x800"),
    system_call("memfd_secret", 447, "0"),
    Attack(
        name="system_calls_of_another_abi",
        needs="seccomp",
        source="import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)",
        ends=("killed",),
    ),
    Attack(
        name="every_blocked_system_call",
        needs="seccomp",
        source=f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
got = []
for name, number in {BLOCKED_CALLS}.items():
    ctypes.set_errno(0)
    if (libc.syscall(number, -1, 0, 0, 0, 0, 0), ctypes.get_errno()) != (-1, 38):
        got.append([name, ctypes.get_errno()])
report(got)
""",
        reports=[],
    ),
    Attack(
        # Numbers mean other calls there: 20, getpid, is an allowed one here. Without that abi it is an invalid opcode.
        name="system_calls_of_32_bits",
        needs="seccomp",
        source="""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
report(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
""",
        ends=("killed",),
    ),
    Attack(
        name="raises_its_own_limits",
        needs="user_namespace",
        source="""
import resource
got = []
for name in ("NPROC", "AS", "CPU", "FSIZE", "NOFILE", "CORE", "MEMLOCK"):
    kind = getattr(resource, "RLIMIT_" + name)
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        got.append(name)
    except (ValueError, OSError):
        pass
report(got)
""",
        reports=[],
    ),
)  # fmt: skip
