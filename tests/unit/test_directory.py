"""Where llmtrace keeps its things: chosen, refused, found again; and the agent's lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtrace import directory
from llmtrace.config import Config, resolve
from llmtrace.directory import AgentLock, agent_alive, choose, default_path, existing, filesystem, is_network, is_tmpfs
from llmtrace.guard import guard
from tests.conftest import Directories


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /var/tmp of the test's own."""
    found = tmp_path / "var-tmp"
    found.mkdir(mode=0o1777)
    monkeypatch.setattr(directory, "DEFAULT_ROOT", str(found))
    return found


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The warnings of this test alone."""
    before = list(guard.warnings)
    guard.warnings.clear()
    yield guard.warnings
    guard.warnings[:] = before


def config(dirs: Directories, **settings: object) -> Config:
    return resolve({"dir": str(dirs.path), "ring_dir": str(dirs.rings), **settings}, environ={})


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def with_journal(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "journal.1.sqlite").touch()
    return path


def test_llmtrace_dir_is_made_private_with_rings_of_its_own(llmtrace_dirs: Directories, root: Path, said: list[str]) -> None:
    found = choose(config(llmtrace_dirs))
    assert found is not None
    assert found.path == llmtrace_dirs.path
    facts = found.path.stat()
    assert found.rings == llmtrace_dirs.rings / f"llmtrace-{os.getuid()}" / f"{facts.st_dev:x}-{facts.st_ino:x}"
    assert [mode(folder) for folder in (found.path, found.rings, found.rings.parent, found.registry)] == [0o700] * 4
    assert (found.journal, found.lock, found.log) == (found.path / "journal.1.sqlite", found.path / "agent.lock", found.path / "agent.log")
    assert choose(config(llmtrace_dirs)) == found
    assert said == []


def test_two_directories_have_rings_apart_and_one_by_two_names_has_not(llmtrace_dirs: Directories, tmp_path: Path) -> None:
    first = choose(config(llmtrace_dirs))
    other = choose(config(llmtrace_dirs, dir=str(tmp_path / "other")))
    (tmp_path / "link").symlink_to(llmtrace_dirs.path)
    linked = choose(config(llmtrace_dirs, dir=str(tmp_path / "link")))
    assert first is not None
    assert other is not None
    assert linked is not None
    assert first.rings != other.rings
    assert linked.rings == first.rings


def test_without_a_setting_the_default_one_is_used(llmtrace_dirs: Directories, root: Path, said: list[str]) -> None:
    found = choose(config(llmtrace_dirs, dir=""))
    assert found is not None
    assert found.path.parent == root / f"llmtrace-{os.getuid()}"
    assert mode(found.path) == mode(found.path.parent) == 0o700
    assert found.path == default_path(config(llmtrace_dirs, dir=""))
    assert said == []


def test_the_default_name_depends_on_where_data_go(llmtrace_dirs: Directories, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = config(llmtrace_dirs, dir="")
    assert default_path(plain) == default_path(config(llmtrace_dirs, dir="", job="another", ring_bytes=1 << 20))
    names = {default_path(plain)}
    for setting in ("job", "team"):
        monkeypatch.setattr(directory, "BACK_ENDS", (setting,))
        names |= {default_path(config(llmtrace_dirs, dir="", job="a")), default_path(config(llmtrace_dirs, dir="", team="a"))}
    assert len(names) == 5


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs", "fuse.anything", "9p"])
def test_a_network_file_system_is_refused_with_one_warning(
    llmtrace_dirs: Directories, root: Path, said: list[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = filesystem
    monkeypatch.setattr(directory, "filesystem", lambda path: kind if Path(path) == llmtrace_dirs.path else really(path))
    for _ in range(2):
        found = choose(config(llmtrace_dirs))
        assert found is not None
        assert found.path.is_relative_to(root)
    assert not llmtrace_dirs.path.exists()
    assert len(said) == 1
    assert f"network file system ({kind})" in said[0]
    assert str(found.path) in said[0]


def test_local_file_systems_are_not_taken_for_network_ones() -> None:
    assert not any(map(is_network, ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuse.fuse-overlayfs", "fuseblk", "f2fs", "virtiofs", ""]))


@pytest.mark.parametrize("kind", ["file", "below a file", "proc"])
def test_what_cannot_be_a_folder_is_refused_with_one_warning(llmtrace_dirs: Directories, root: Path, said: list[str], kind: str) -> None:
    llmtrace_dirs.path.write_text("a file")
    path = {"file": llmtrace_dirs.path, "below a file": llmtrace_dirs.path / "x", "proc": Path("/proc/llmtrace")}[kind]
    found = choose(config(llmtrace_dirs, dir=str(path)))
    assert found is not None
    assert found.path.is_relative_to(root)
    assert len(said) == 1
    assert said[0].startswith(f"LLMTRACE_DIR={path} ")


def test_a_directory_that_holds_another_users_journal_is_refused(
    llmtrace_dirs: Directories, root: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_journal(llmtrace_dirs.path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert choose(config(llmtrace_dirs)) is None  # the default root, too, is another's then
    assert "holds a journal.1.sqlite of another user" in said[0]
    assert "tracing is off" in said[1]


def test_nothing_usable_is_said_once(llmtrace_dirs: Directories, root: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "DEFAULT_ROOT", "/proc/none")
    assert choose(config(llmtrace_dirs, dir="")) is None
    assert choose(config(llmtrace_dirs, dir="")) is None
    assert len(said) == 1


@pytest.mark.parametrize("trap", ["link", "open to others", "file"])
def test_a_trap_in_place_of_the_default_folder_is_not_stepped_into(llmtrace_dirs: Directories, root: Path, tmp_path: Path, said: list[str], trap: str) -> None:
    spot = root / f"llmtrace-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    set_trap(spot, elsewhere, trap)
    assert choose(config(llmtrace_dirs, dir="")) is None
    assert list(elsewhere.iterdir()) == []
    assert len(said) == 1


@pytest.mark.parametrize("trap", ["link", "open to others", "file"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_trap_in_place_of_the_ring_folder_is_not_stepped_into(llmtrace_dirs: Directories, tmp_path: Path, said: list[str], trap: str, depth: int) -> None:
    llmtrace_dirs.path.mkdir()
    facts = llmtrace_dirs.path.stat()
    spot = llmtrace_dirs.rings / f"llmtrace-{os.getuid()}"
    if depth == 2:
        spot.mkdir(mode=0o700)
        spot /= f"{facts.st_dev:x}-{facts.st_ino:x}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    set_trap(spot, elsewhere, trap)
    found = choose(config(llmtrace_dirs))
    assert found is not None
    assert not found.rings.exists()
    assert found.rings.is_relative_to(found.path)
    assert list(elsewhere.iterdir()) == []
    assert len(said) == 1
    assert "memory files" in said[0]


def set_trap(spot: Path, elsewhere: Path, trap: str) -> None:
    if trap == "link":
        spot.symlink_to(elsewhere)
    elif trap == "file":
        spot.write_text("")
    else:
        spot.mkdir()
        spot.chmod(0o777)


def test_a_folder_of_another_user_is_not_used(llmtrace_dirs: Directories, root: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    for folder in (llmtrace_dirs.path, llmtrace_dirs.rings / f"llmtrace-{uid}", root / f"llmtrace-{uid}", root / f"llmtrace-{uid}" / "a"):
        folder.mkdir(mode=0o700)
    with_journal(root / f"llmtrace-{uid}" / "a")
    private = directory.private_folder
    monkeypatch.setattr(directory, "private_folder", lambda path: path == llmtrace_dirs.path / "rings" or private(path))
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)  # whose files these are is what differs from who we are
    found = choose(config(llmtrace_dirs))
    assert found is not None
    assert not found.rings.exists()
    assert f"belongs to another user ({uid})" in said[0]
    assert choose(config(llmtrace_dirs, dir="")) is None
    assert existing([], config(llmtrace_dirs, dir="")) == []


@pytest.mark.parametrize("ring_dir", ["/nowhere", "/proc", "/etc/hostname"])
def test_where_there_is_no_tmpfs_rings_are_memory_files(llmtrace_dirs: Directories, said: list[str], ring_dir: str) -> None:
    found = choose(config(llmtrace_dirs, ring_dir=ring_dir))
    assert found is not None
    assert not found.rings.exists()
    assert found.registry.is_dir()
    assert len(said) == 1


def test_readers_find_the_directories_that_hold_a_journal(llmtrace_dirs: Directories, root: Path, tmp_path: Path) -> None:
    one, two = with_journal(tmp_path / "one"), with_journal(tmp_path / "two")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert existing([str(one), str(two), str(empty), str(one)], config(llmtrace_dirs)) == [one, two]
    assert existing([], config(llmtrace_dirs, dir=str(one))) == [one]
    assert existing([], config(llmtrace_dirs, dir=str(empty))) == []
    assert existing([], config(llmtrace_dirs)) == []
    assert existing([], config(llmtrace_dirs, dir="")) == []
    ours = [with_journal(root / f"llmtrace-{os.getuid()}" / name) for name in ("a", "b")]
    (root / f"llmtrace-{os.getuid()}" / "link").symlink_to(one)
    assert existing([], config(llmtrace_dirs, dir="")) == ours


def test_readers_follow_writers_from_an_unusable_directory_to_the_default_one(llmtrace_dirs: Directories, root: Path, said: list[str]) -> None:
    llmtrace_dirs.path.write_text("a file")
    chosen = choose(config(llmtrace_dirs))
    assert chosen is not None
    assert existing([], config(llmtrace_dirs)) == []
    with_journal(chosen.path)
    assert existing([], config(llmtrace_dirs)) == [chosen.path]


def test_the_file_system_of_a_path_is_told_also_before_it_exists(tmp_path: Path) -> None:
    assert is_tmpfs(filesystem(Path("/dev/shm/nothing/here")))
    assert filesystem(Path("/proc/self")) == "proc"
    (tmp_path / "link").symlink_to("/dev/shm")
    assert is_tmpfs(filesystem(tmp_path / "link" / "deeper"))


def test_the_longest_and_last_mount_point_counts() -> None:
    mounts = [
        b"1 0 8:1 / / rw - ext4 /dev/a rw\n",
        b"2 1 0:5 / /data rw shared:1 - nfs4 host:/x rw\n",
        b"3 2 0:6 / /data/my\\040jobs rw - xfs /dev/b rw\n",
        b"4 1 0:7 / /data rw - lustre x rw\n",
    ]

    def kind(path: bytes) -> str:
        return directory._covering(mounts, path)

    assert [kind(path) for path in (b"/", b"/database", b"/data", b"/data/x", b"/data/my jobs/1")] == ["ext4", "ext4", "lustre", "lustre", "xfs"]


def test_only_one_agent_has_the_lock_and_asking_takes_nothing(llmtrace_dirs: Directories) -> None:
    found = choose(config(llmtrace_dirs))
    assert found is not None
    first, second = AgentLock(found), AgentLock(found)
    assert not agent_alive(found)
    assert first.acquire()
    assert agent_alive(found)
    assert not second.acquire()
    assert agent_alive(found)
    assert (first.holds(), second.holds()) == (True, False)
    first.release()
    assert not agent_alive(found)
    assert second.acquire()
    second.release()


def test_an_agent_notices_that_its_lock_is_no_longer_at_its_place(llmtrace_dirs: Directories) -> None:
    found = choose(config(llmtrace_dirs))
    assert found is not None
    lock, other = AgentLock(found), AgentLock(found)
    assert lock.acquire()
    found.lock.unlink()
    assert not lock.holds()
    assert other.acquire()
    assert not lock.holds()
    other.release()
    lock.release()


def test_where_it_cannot_be_known_an_agent_is_taken_to_live(llmtrace_dirs: Directories) -> None:
    found = choose(config(llmtrace_dirs))
    assert found is not None
    found.lock.symlink_to(found.lock)  # cannot be opened by anybody
    assert agent_alive(found)


def test_a_rank_that_imports_it_imports_neither_store() -> None:
    heavy = ("sqlite3", "llmtrace.journal", "llmtrace.ring", "subprocess", "tempfile", "shutil", "typer", "importlib.metadata")
    code = f"import sys, llmtrace.directory; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
