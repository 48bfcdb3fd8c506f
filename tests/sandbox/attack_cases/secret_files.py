"""Attacks that read secrets of the host."""

from __future__ import annotations

from tests.sandbox.attack_cases.attack import Attack, opens

ATTACKS: tuple[Attack, ...] = (
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
)  # fmt: skip
