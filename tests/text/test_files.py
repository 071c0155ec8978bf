import os

from dpbench.text.files import replace_bytes


def test_a_file_is_on_disk_before_it_takes_the_place_of_another(tmp_path, monkeypatch):
    """Else a machine that loses its power may have an empty file under the name."""
    path, synced = tmp_path / "a.jsonl", []
    path.write_bytes(b"old")
    fsync = os.fsync

    def noting(fd):
        synced.append((os.fstat(fd).st_size, path.read_bytes()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    replace_bytes(path, b"newer")
    assert synced == [(len(b"newer"), b"old")]
    assert path.read_bytes() == b"newer"
