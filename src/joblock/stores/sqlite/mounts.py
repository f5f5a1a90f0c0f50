"""Which file systems a lease file must not be on, and which one a path is on.

SQLite keeps its processes apart with the locks and the shared memory of one machine. Over a network
file system either fails silently, and two machines hold the same lease.
"""

from __future__ import annotations

REMOTE = frozenset(
    {
        "9p",
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.cephfs",
        "fuse.davfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.juicefs",
        "fuse.moosefs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.seaweedfs",
        "fuse.sshfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
    }
)


def type_of(path: str, mounts: str) -> str:
    """The type of the file system an absolute, resolved path is on; empty if unknown.

    ``mounts`` is the text of ``/proc/self/mountinfo``. Of several mounts on one place, the last one
    covers the others.
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        place, separator, source = line.partition(" - ")
        fields = place.split(" ")
        if not separator or len(fields) < _PLACE + 1:
            continue
        mount = _unescaped(fields[_PLACE])
        if _is_below(path, mount) and len(mount) >= longest:
            found, longest = source.split(" ")[0], len(mount)
    return found


_PLACE = 4


def _unescaped(mount: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount = mount.replace(escape, character)
    return mount


def _is_below(path: str, mount: str) -> bool:
    return mount in ("/", path) or path.startswith(mount + "/")
