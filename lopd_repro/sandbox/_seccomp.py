"""A system-call filter: what no confined process may ask of the kernel, whoever it runs as.

Denied always: namespaces, mounts, tracing and limits of other processes, kernel modules and
keys, opening files by handle, io_uring (it makes sockets past any filter). Denied on request:
all sockets, signals to others, changes of modes and times, shared System V objects. A denied
call fails with EPERM (ENOSYS where libc then takes another way), so that programs see an
ordinary error. Socket pairs, which go nowhere, are allowed. With a gate, `connect` is answered
by another process (see `_gate`), and no other call can reach an address.

The program is classic BPF: every instruction is (code, jump if true, jump if false, value).
"""

from __future__ import annotations

import ctypes

from lopd_repro.sandbox._kernel import check, libc, machine

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO, _ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000
_SECCOMP_SET_MODE_FILTER = 1
_NEW_LISTENER = 8
_MSG_FASTOPEN = 0x20000000
_AF_INET, _SOCK_STREAM, _IPPROTO_TCP, _TYPE_MASK = 2, 1, 6, 15
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}

# name: number on x86_64, number on aarch64; from 424 on they are the same everywhere.
_ALWAYS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
_ABSENT = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_SHARED_OBJECTS = {
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
_OTHER_PROCESSES = {
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
}
_ATTRIBUTES = {
    "chmod": (90, 0),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, 0),
    "fchown": (93, 55),
    "lchown": (94, 0),
    "fchownat": (260, 54),
    "utime": (132, 0),
    "utimes": (235, 0),
    "futimesat": (261, 0),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
_SERVERS = {
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}
# Calls that can connect by a flag, and which argument holds it.
_FAST_OPEN = {"sendto": (44, 206, 3), "sendmsg": (46, 211, 2), "sendmmsg": (307, 269, 3)}
_CONNECT = (42, 203)
_SOCKET, _CLONE, _PRLIMIT = (41, 198), (56, 220), (302, 261)
_KILL_CALL, _TGKILL = (62, 129), (234, 131)


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("true", ctypes.c_uint8),
        ("false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("code", ctypes.POINTER(_Instruction))]


def supported() -> bool:
    return machine in _ARCHITECTURES


def program(
    families: frozenset[int],
    *,
    own_pid: int | None,
    attributes: bool,
    shared_objects: bool,
    gate: bool = False,
) -> list[tuple[int, int, int, int]]:
    """The filter's instructions.

    `families` are the address families a socket may have. With `own_pid`, signals go to that
    process alone. `attributes` and `shared_objects` allow what they name. With `gate`, TCP
    sockets are allowed whatever `families` says, and `connect` is asked for.
    """
    architecture, column = _ARCHITECTURES[machine]
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    denied = dict(_ALWAYS)
    if own_pid is not None:
        denied |= _OTHER_PROCESSES
    if not attributes:
        denied |= _ATTRIBUTES
    if gate:
        denied |= _SERVERS
    if not shared_objects:
        denied |= _SHARED_OBJECTS
    for table, answer in ((denied, _EPERM), (_ABSENT, _ENOSYS)):
        for numbers in table.values():
            if numbers[column]:
                code += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ERRNO | answer)]

    def by_argument(
        number: int, tests: list[tuple[int, int]], otherwise: int, argument: int = 0
    ) -> None:
        """For one call: the first test (jump code, value) that holds allows or denies it."""
        deny_if_true = otherwise == _ALLOW
        block = [(_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * argument)]
        for jump, value in tests:
            block += [(jump, 0, 1, value)]
            block += [(_RETURN, 0, 0, _ERRNO | _EPERM if deny_if_true else _ALLOW)]
        block += [(_RETURN, 0, 0, otherwise)]
        code.append((_EQUAL, 0, len(block), number))
        code.extend(block)

    deny = _ERRNO | _EPERM
    by_argument(_CLONE[column], [(_ANY_BIT, _NAMESPACE_FLAGS)], _ALLOW)
    by_argument(_PRLIMIT[column], [(_EQUAL, 0)], deny)
    if gate:
        code += _tcp_only(_SOCKET[column])
        code += [(_EQUAL, 0, 1, _CONNECT[column]), (_RETURN, 0, 0, _ASK)]
        for call in _FAST_OPEN.values():
            by_argument(call[column], [(_ANY_BIT, _MSG_FASTOPEN)], _ALLOW, call[2])
    else:
        by_argument(_SOCKET[column], [(_EQUAL, family) for family in sorted(families)], deny)
    if own_pid is not None:
        for numbers in (_KILL_CALL, _TGKILL):
            by_argument(numbers[column], [(_EQUAL, own_pid)], deny)
    code.append((_RETURN, 0, 0, _ALLOW))
    return code


def _tcp_only(number: int) -> list[tuple[int, int, int, int]]:
    """`socket` with (AF_INET, SOCK_STREAM with any flags, 0 or TCP) is allowed, else denied."""
    return [
        (_EQUAL, 0, 10, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 6, _AF_INET),
        (_LOAD, 0, 0, _FIRST_ARGUMENT + 8),
        (_AND, 0, 0, _TYPE_MASK),
        (_EQUAL, 0, 3, _SOCK_STREAM),
        (_LOAD, 0, 0, _FIRST_ARGUMENT + 16),
        (_EQUAL, 2, 0, 0),
        (_EQUAL, 1, 0, _IPPROTO_TCP),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def install(code: list[tuple[int, int, int, int]], *, gate: bool = False) -> int:
    """Lay the filter on this process for good. Needs `no_new_privileges` before.

    Returns the descriptor on which the gate's questions arrive, or 0.
    """
    instructions = (_Instruction * len(code))(*[_Instruction(*line) for line in code])
    filter_program = _Program(len(code), instructions)
    flags = _NEW_LISTENER if gate else 0
    number = _SYS_SECCOMP[machine]
    return check(
        libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(filter_program)),
        "seccomp",
    )
