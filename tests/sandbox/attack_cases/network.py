"""Attacks over the network."""

from __future__ import annotations

from tests.sandbox.attack_cases.attack import Attack

ATTACKS: tuple[Attack, ...] = (
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
)  # fmt: skip
