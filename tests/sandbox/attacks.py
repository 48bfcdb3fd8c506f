"""Hostile programs. Each says which capability stops it, how it must end, and what it must not have got.

A program reports what it got away with; `[]` is the answer of one that got nothing. `{name}` in a source is
filled with the baits of the machine that a test lays out: see `conftest.Baits`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

BOUNDED = ("process_limit", "wall_limit", "memory_limit", "cpu_limit", "killed", "failed")
OVER_TIME = ("wall_limit", "cpu_limit")


@dataclass(frozen=True, kw_only=True)
class Attack:
    name: str
    needs: str  # user_namespace, seccomp, memory_bound, process_bound
    source: str
    ends: tuple[str, ...] = ("ok",)
    reports: object = None  # compared with what it reported, when it ends ok
    core: bool = False  # in `make test` too, though it may last until a limit of time

    @property
    def is_core(self) -> bool:
        """In `make test` too: all that end at once, and the worst of the others."""
        return self.core or not set(OVER_TIME) & set(self.ends)


def system_call(name: str, number: int, arguments: str = "", *, refusal: int = errno.ENOSYS) -> Attack:
    """A raw system call must be refused by the filter: in its words, not by what the kernel would have said."""
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
got = libc.syscall({number}{", " + arguments if arguments else ""})
report([got, ctypes.get_errno()])
"""
    return Attack(name=name, needs="seccomp", source=source, reports=[-1, refusal])


# Numbers of the kernel's headers, by hand: what no sandbox of ours may ever call. Some are attacks of their own below.
DOORS = {
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


def opens(name: str, paths: str) -> Attack:
    """None of the files may be read, none of the folders listed."""
    source = f"""
import glob, os
got = []
for path in {paths}:
    try:
        got.append(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(100).hex())
    except OSError:
        pass
report(got)
"""
    return Attack(name=name, needs="user_namespace", source=source, reports=[])


ATTACKS: tuple[Attack, ...] = (
    # processes
    Attack(
        name="fork_bomb",
        needs="process_bound",
        source="import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        ends=BOUNDED,
        core=True,
    ),
    Attack(
        name="daemons_that_leave_their_session",
        needs="user_namespace",
        source="""
import os, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(20):
                try: os.close(fd)
                except OSError: pass
            time.sleep(600)
        os._exit(0)
""",
        ends=("ok",),
    ),
    Attack(
        name="a_grandchild_holds_its_output_and_writes_on",
        needs="user_namespace",
        source="""
import os, time
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(1, b"x")
        time.sleep(0.01)
""",
        ends=("ok",),
    ),
    Attack(
        name="forks_on_while_it_is_killed",
        needs="process_bound",
        source="""
import os
def fork():
    try:
        return os.fork()
    except OSError:  # the bound: its own children may reach it first
        return None
for _ in range(4):
    if fork() == 0:
        while True:
            if fork():
                os._exit(0)
""",
        ends=("ok",),
    ),
    Attack(
        name="many_processes_that_each_stay_below_the_bound_of_time",
        needs="process_bound",
        source="""
import os, time
while True:
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        while time.process_time() < 0.4: pass
        os._exit(0)
    if payload is None and os.times().elapsed % 1 > 0.5:
        try: os.waitpid(-1, os.WNOHANG)
        except ChildProcessError: pass
""",
        ends=(*OVER_TIME, "failed", "process_limit"),
        core=True,
    ),
    Attack(
        name="thread_bomb",
        needs="process_bound",
        source="import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        ends=BOUNDED,
    ),
    Attack(
        name="ignores_every_signal",
        needs="user_namespace",
        source="""
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
        ends=OVER_TIME,
    ),
    Attack(
        name="closes_its_files_and_sleeps",
        needs="user_namespace",
        source="import os, time\nos.closerange(0, 64)\ntime.sleep(600)",
        ends=OVER_TIME,
    ),
    Attack(
        name="stops_itself",
        needs="user_namespace",
        source="import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        ends=OVER_TIME,
    ),
    Attack(name="a_number_too_large", needs="user_namespace", source="9**9**9", ends=(*OVER_TIME, "memory_limit")),
    Attack(
        name="catastrophic_pattern",
        needs="user_namespace",
        source="import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')",
        ends=OVER_TIME,
    ),
    Attack(
        name="recursion_without_end",
        needs="user_namespace",
        source="import sys\nsys.setrecursionlimit(10**9)\nf = lambda x: f(x) + 1\nf(0)",
        ends=("killed", "failed", "memory_limit"),
    ),
    Attack(
        name="kills_all_that_it_can_see",
        needs="user_namespace",
        source="""
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL, signal.SIGHUP):
    os.kill(1, number)
try: os.kill(-1, signal.SIGKILL)
except OSError: pass
for pid in range(2, 300):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
report("alive")
""",
        reports="alive",
    ),
    # memory and disk
    Attack(
        name="memory_bomb",
        needs="memory_bound",
        source="kept = []\nwhile True: kept.append(b'x' * 10_000_000)",
        ends=("memory_limit",),
    ),
    Attack(
        name="memory_in_many_children",
        needs="memory_bound",
        source="""
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = b"x" * (60 * 1024**2)
        time.sleep(50)
        os._exit(0)
time.sleep(50)
""",
        ends=("memory_limit",),
    ),
    Attack(
        # What lies in them is no process's page.
        name="memory_in_the_buffers_of_sockets",
        needs="memory_bound",
        source="""
import os, socket, time
def fill():
    pairs = []
    try:
        while True:
            pairs.append(socket.socketpair())
            for end in pairs[-1]:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10**8)
                end.setblocking(False)
                try:
                    while True: end.send(b"x" * 4096)
                except BlockingIOError: pass
    except OSError:
        time.sleep(600)
for _ in range(14):
    if os.fork() == 0:
        fill()
time.sleep(600)
""",
        ends=("memory_limit",),
    ),
    Attack(
        name="sockets_in_flight",
        needs="memory_bound",
        source="""
import socket, time
carrier, other = socket.socketpair()
sent = 0
try:
    while sent < 100_000:
        one, two = socket.socketpair()
        one.setblocking(False)
        try:
            while True: one.send(b"x" * 4096)
        except BlockingIOError: pass
        socket.send_fds(carrier, [b"x"], [two.fileno()])
        one.close(); two.close()
        sent += 1
except OSError:
    pass
report(sent < 2000)
""",
        ends=("ok", "memory_limit", *OVER_TIME),
        reports=True,
        core=True,
    ),
    Attack(
        name="larger_pipes",
        needs="seccomp",
        source="""
import fcntl, os
out, into = os.pipe()
try:
    report(fcntl.fcntl(out, 1031, 1024**2))
except PermissionError:
    report([])
""",
        reports=[],
    ),
    Attack(
        name="fills_the_scratch_folder",
        needs="user_namespace",
        source="""
total = 0
try:
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file:
            for _ in range(8):
                total += file.write(b"x" * 1024**2)
                file.flush()
except OSError:
    pass
report(total <= 33 * 1024**2)
""",
        reports=True,
    ),
    Attack(
        name="writes_outside_the_scratch_folder",
        needs="user_namespace",
        source="""
import os
got = []
for folder in ("/", "/dev", "/usr", "/usr/lib", "/python", "/python/lib", "/run", "/etc", "/guest.pyc"):
    for act in (lambda: open(folder + "/planted", "w"), lambda: os.mkdir(folder + "/made"),
                lambda: open(folder, "r+b")):
        try:
            act()
            got.append(folder)
        except OSError:
            pass
report(got)
""",
        reports=[],
    ),
    Attack(
        name="writes_one_huge_file",
        needs="user_namespace",
        source="""
got = 0
try:
    with open("/tmp/huge", "wb") as file:
        file.truncate(10**12)
        got = 1
except OSError:
    pass
report(got)
""",
        reports=0,
    ),
    Attack(
        name="files_without_number",
        needs="memory_bound",
        source="n = 0\nwhile True:\n    n += 1\n    open(f'/tmp/{n}', 'w').close()",
        ends=("output_limit", "memory_limit", *OVER_TIME),
    ),
    Attack(
        name="folders_that_cannot_be_emptied",
        needs="user_namespace",
        source="""
import os
os.makedirs("/tmp/a/b")
os.chmod("/tmp/a", 0)
for _ in range(1500):
    try:
        os.mkdir("/tmp/d"); os.chdir("/tmp/d")
    except OSError:
        os.mkdir("d"); os.chdir("d")
""",
        ends=("ok", "failed"),
    ),
    Attack(name="floods_standard_output", needs="user_namespace", source="while True: print('x' * 1000)",
           ends=("output_limit",)),
    Attack(name="floods_standard_error", needs="user_namespace",
           source="import sys\nwhile True: print('x' * 1000, file=sys.stderr)",
           ends=("output_limit",)),
    Attack(name="reports_without_end", needs="user_namespace", source="while True: report('x' * 1000)",
           ends=("output_limit",)),
    # network
    Attack(
        name="connects_to_the_host",
        needs="seccomp",
        source="""
import socket
got = []
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET6, ("::1", {port}))):
    try:
        with socket.socket(family) as s:
            s.settimeout(1)
            s.connect(address)
            s.sendall(b"out")
            got.append(str(address))
    except OSError:
        pass
report(got)
""",
        reports=[],
    ),
    Attack(
        name="other_families_of_sockets",
        needs="seccomp",
        source="""
import socket
got = []
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK,
               socket.AF_ALG, socket.AF_CAN, 9, 31, 44):
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        try:
            socket.socket(family, kind).close()
            got.append(family)
        except OSError:
            pass
report(got)
""",
        reports=[],
    ),
    Attack(
        name="asks_for_a_name",
        needs="user_namespace",
        source="""
import socket
try:
    report(socket.getaddrinfo("example.org", 80))
except OSError:
    report([])
""",
        reports=[],
    ),
    Attack(
        name="abstract_socket_of_the_host",
        needs="user_namespace",
        source="""
import socket
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\\0{abstract}")
        s.sendall(b"out")
        report("connected")
except OSError:
    report([])
""",
        reports=[],
    ),
    Attack(
        name="named_socket_of_the_host",
        needs="user_namespace",
        source="""
import socket
got = []
for path in ("{socket}", "/var/run/docker.sock", "/run/docker.sock", "/run/dbus/system_bus_socket"):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            got.append(path)
    except OSError:
        pass
report(got)
""",
        reports=[],
    ),
    # secrets
    Attack(
        name="reads_the_environment",
        needs="user_namespace",
        source="""
import os
known = {"HOME", "LANG", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PWD", "PYTHONHASHSEED"}
report(sorted(set(os.environ) - known))
""",
        reports=[],
    ),
    opens("reads_proc", "['/proc', *[f'/proc/{p}/{f}' for p in ('self', 1, 2) for f in "
          "('environ', 'cmdline', 'maps', 'mem', 'mountinfo', 'fd/3')]]"),
    opens("reads_system_files", "['/etc/passwd', '/etc/shadow', '/root', '/home', '/var', '/etc/hostname', "
          "'/etc/ssl', '/usr/bin', '/usr/sbin', '/bin', '/opt', '/mnt', '/srv', '/work']"),
    opens("reads_the_planted_secret", "['{secret}', '{secret}/..']"),
    opens("reads_control_groups_and_devices", "['/sys', '/sys/fs/cgroup', '/dev/mem', '/dev/kmsg', '/dev/sda', "
          "'/dev/vda', '/dev/kvm', '/dev/fuse', '/dev/tty', '/dev/ptmx', '/dev/nvidia0']"),
    Attack(
        name="climbs_out_by_descriptors",
        needs="user_namespace",
        source="""
import os
got = []
for fd in range(256):
    for path in ("..", "../../../etc/shadow", "../proc/1/environ"):
        try:
            os.close(os.open(path, os.O_RDONLY, dir_fd=fd))
            got.append([fd, path])
        except OSError:
            pass
    if fd > 3:
        try:
            os.fstat(fd)
            got.append(fd)
        except OSError:
            pass
report(got)
""",
        reports=[],
    ),
    Attack(
        name="setuid_programs_that_work",
        needs="user_namespace",
        source="""
import os
got = []
for folder, _, names in os.walk("/"):
    for name in names:
        path = os.path.join(folder, name)
        try:
            if os.lstat(path).st_mode & 0o6000 and not os.statvfs(path).f_flag & os.ST_NOSUID:
                got.append(path)
        except OSError:
            pass
report(got)
""",
        reports=[],
    ),
    # the kernel's doors
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
        name="every_door_of_the_kernel",
        needs="seccomp",
        source=f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
got = []
for name, number in {DOORS}.items():
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
