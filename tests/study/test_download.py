"""Downloads, against a real server on this machine: bad mirrors, kills, and disks that refuse."""

import gzip
import hashlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from equilibrate.study import download as downloads
from equilibrate.study import mnist
from equilibrate.study.download import DownloadError, PublishedFile, download
from equilibrate.study.mnist import mnist_images

NAME = "train-images-idx3-ubyte.gz"
CONTENT = gzip.compress(struct.pack(">4I", 2051, 1, 28, 28) + bytes(range(196)) * 4)
TAMPERED = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
FILE = PublishedFile(NAME, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), mirrors=())


class Handler(BaseHTTPRequestHandler):
    """A mirror whose folder names its fault."""

    server: "Mirrors"

    def do_GET(self) -> None:
        fault = self.path.split("/")[1]
        self.server.requests.append(self.path)
        if fault == "silent":
            self.server.released.wait()
        elif fault == "missing":
            self.send_error(404)
        elif fault == "nonsense":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
        else:
            self.send_body(fault)

    def send_body(self, fault: str) -> None:
        body = {"tampered": TAMPERED, "longer": CONTENT + b"x", "page": b"<html>Log in</html>"}
        content = body.get(fault, CONTENT)
        self.send_response(200)
        if fault != "longer":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2
        self.wfile.write(content[:half])
        if fault == "stalling":
            self.server.half_sent.set()
            self.server.released.wait()
        elif fault == "dripping":
            self.drip(content[half:])
        elif fault != "truncated":
            self.wfile.write(content[half:])

    def drip(self, content: bytes) -> None:
        for byte in content:
            if self.server.released.wait(0.05):
                return
            self.wfile.write(bytes([byte]))

    def log_message(self, *_: Any) -> None: ...


class Mirrors(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.half_sent, self.released = threading.Event(), threading.Event()

    def handle_error(self, *_: Any) -> None: ...  # clients that hang up belong to the tests

    def url(self, fault: str) -> str:
        if fault == "closed":  # a port that nobody listens on
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                return f"http://127.0.0.1:{free.getsockname()[1]}/"
        return f"http://127.0.0.1:{self.server_port}/{fault}/"

    def file(self, *faults: str) -> PublishedFile:
        return replace(FILE, mirrors=tuple(map(self.url, faults)))


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "_SILENCE", 1.0)
    monkeypatch.setattr(downloads, "_DEADLINE", 2.0)
    with Mirrors() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose cache is empty; the cache folder in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EQUILIBRATE_DATA", raising=False)
    return tmp_path / ".cache" / "equilibrate" / "mnist"


FAULTS = {
    "truncated": rf"refused: its {len(CONTENT) // 2} bytes have SHA-256",
    "tampered": rf"refused: its {len(CONTENT)} bytes .* the published file has {len(CONTENT)}",
    "page": "refused: its 19 bytes have SHA-256",
    "longer": "refused: it sends more than",
    "missing": "HTTP Error 404",
    "nonsense": "this is no HTTP",
    "closed": "refused",
    "silent": "no answer within 1 s",
    "stalling": "no answer within 1 s",
    "dripping": "too slow",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_mirror_is_named_with_its_reason_and_leaves_nothing(
    mirrors: Mirrors, tmp_path: Path, fault: str
) -> None:
    file = mirrors.file(fault)
    with pytest.raises(DownloadError) as caught:
        download(file, tmp_path)
    message = str(caught.value)
    assert re.search(rf"{re.escape(file.mirrors[0] + NAME)}: .*{FAULTS[fault]}", message)
    assert f"(SHA-256 {file.sha256}) and put it into {tmp_path}, or name the folder" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_bad_mirror_the_next_is_tried(
    mirrors: Mirrors, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = download(mirrors.file(fault, "good"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [tmp_path / NAME]
    output = capsys.readouterr()
    assert re.search(FAULTS[fault], output.err)
    assert "100%" in output.err
    assert output.out == ""


def test_without_a_network_all_mirrors_are_named(mirrors: Mirrors, tmp_path: Path) -> None:
    first, second = (mirrors.url("closed") + NAME for _ in range(2))
    file = replace(FILE, mirrors=tuple(url.removesuffix(NAME) for url in (first, second)))
    with pytest.raises(DownloadError, match=rf"(?s){first}: .*refused.*{second}: .*refused"):
        download(file, tmp_path)


def test_mnist_is_downloaded_once_into_the_cache(
    mirrors: Mirrors, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mnist._FILES, "train", mirrors.file("good", "silent"))
    assert mnist_images().shape == (1, 784)
    assert mnist_images().shape == (1, 784)
    assert mirrors.requests == [f"/good/{NAME}"]
    (home / NAME).write_bytes(CONTENT[:-1])  # damaged later: refused, not silently replaced
    with pytest.raises(ValueError, match=rf"{NAME} is damaged"):
        mnist_images()


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_nothing_is_downloaded_where_a_folder_is_named(
    mirrors: Mirrors, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setitem(mnist._FILES, "train", mirrors.file("good"))
    folder = tmp_path / "mine"
    if way == "variable":
        monkeypatch.setenv("EQUILIBRATE_DATA", str(folder))
    with pytest.raises(FileNotFoundError, match=r"mine.*does not exist\. Get"):
        mnist_images(folder if way == "argument" else None)
    assert (mirrors.requests, folder.exists(), home.exists()) == ([], False, False)


CHILD = """
import os, signal, sys
from pathlib import Path
from equilibrate.study import download
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] != "receiving": setattr(os, sys.argv[1], die)
file = download.PublishedFile(sys.argv[2], int(sys.argv[3]), sys.argv[4], (sys.argv[5],))
download.download(file, Path(sys.argv[6]))
"""


@pytest.mark.parametrize("moment", ["receiving", "fsync", "replace"])
def test_a_kill_leaves_no_file_under_the_name(mirrors: Mirrors, home: Path, moment: str) -> None:
    url = mirrors.url("stalling" if moment == "receiving" else "good")
    command = [sys.executable, "-c", CHILD, moment, NAME, str(FILE.size), FILE.sha256, url]
    with subprocess.Popen([*command, str(home)], stderr=subprocess.DEVNULL) as child:
        if moment == "receiving":
            assert mirrors.half_sent.wait(60)
            child.kill()
        assert child.wait(60) == -signal.SIGKILL
    assert not (home / NAME).exists()
    assert download(mirrors.file("good"), home).read_bytes() == CONTENT  # and the next run works


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that this process may read and not write, as root too."""
    with tempfile.TemporaryDirectory() as name:  # tmp_path is one that only its owner can enter
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield Path(name)
        os.seteuid(user)


def test_a_read_only_cache_ends_in_a_clear_message(mirrors: Mirrors, read_only: Path) -> None:
    for folder in (read_only, read_only / "new"):
        with pytest.raises(DownloadError) as caught:
            download(mirrors.file("good"), folder)
        message = (
            f"{NAME} cannot be put into {folder}: Permission denied. Make that folder writable"
        )
        assert message in str(caught.value)
    assert mirrors.requests == []  # found out before the transfer


def test_a_full_disk_ends_in_a_clear_message_and_leaves_nothing(
    mirrors: Mirrors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DownloadError, match="No space left on device"):
        download(mirrors.file("good"), tmp_path)
    assert list(tmp_path.iterdir()) == []
