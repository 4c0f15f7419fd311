"""A server of files on loopback, as of Maven, that can break off, and lists its requests."""

import contextlib
import hashlib
import io
import threading
import time
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from harness.runtimes.maven_repository import METADATA, Coordinates

_PIECE = 64 << 10


def make_aar(libraries: Mapping[str, bytes]) -> bytes:
    """An AAR as Android's tools make them: manifest, classes, libraries of several ABIs."""
    content = {
        "AndroidManifest.xml": b"<manifest/>",
        "classes.jar": b"PK\x05\x06" + bytes(18),
        "R.txt": b"",
        "jni/armeabi-v7a/libOther.so": b"32 bits",
        **{f"jni/arm64-v8a/{name}": data for name, data in libraries.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return buffer.getvalue()


class MavenServer:
    """Serves `files`; `cuts` says after how many bytes which answers break off, once each.

    An answer breaks off after `stall_s`; `reason` is said of what is refused; `login` is the header
    that it wants to see. With an `etag` a rest is served to whoever has the part before it, or to
    anyone who asks (`obliging`). A piece of 64 KB comes every `pace_s`; `claimed` is the length
    that is told, none if it is 0. `pages` are sent first instead.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.status: dict[str, int] = {}
        self.reason: str | None = None
        self.login: str | None = None
        self.stall_s = self.pace_s = 0.0
        self.etag = ""
        self.obliging = False
        self.claimed: int | None = None
        self.ranges: list[str] = []
        self.pages: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with contextlib.suppress(ConnectionError):
                    outer._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/maven2"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def add(self, artifact: Coordinates, aar: bytes, *, sums: bool = True) -> str:
        """Takes an artifact in, with its checksum and the list of versions; its AAR's name."""
        self.files[artifact.aar()] = aar
        if sums:
            self.files[f"{artifact.aar()}.sha1"] = hashlib.sha1(aar).hexdigest().encode()
        folder = artifact.folder
        versions = {name.split("/")[-2] for name in self.files if name.endswith(".aar")}
        listed = "".join(f"<version>{version}</version>" for version in sorted(versions))
        self.files[f"{folder}/{METADATA}"] = (
            f"<metadata><versioning><versions>{listed}</versions></versioning></metadata>".encode()
        )
        return artifact.aar()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.removeprefix("/maven2/")
        self.requests.append(name)
        content = self.files.get(name)
        status = self.status.get(name, 200 if content is not None else 404)
        if self.login is not None and request.headers.get("Authorization") != self.login:
            status = 401
        if content is None or status >= 400:
            # as bytes in UTF-8: http.server wants Latin-1
            reason = None if self.reason is None else self.reason.encode().decode("latin-1")
            request.send_response(status, reason)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        self.ranges.append(span := request.headers.get("Range", ""))
        page = self.pages.pop() if self.pages else b""
        knows = self.obliging or (self.etag and request.headers.get("If-Range") == self.etag)
        start = int(span[6:-1]) if span and knows and not page else 0
        content = (page or content)[start:]
        length = len(content) if self.claimed is None else self.claimed
        headers = {
            "Content-Type": "text/html",  # pip wants it of an index
            "Content-Range": start and f"bytes {start}-{start + len(content) - 1}/*",
            "Content-Length": str(length),
            "ETag": "" if page else self.etag,
        }
        request.send_response(200 if not start else 206 if content else 416)
        for header, value in headers.items():
            if value and (header != "Content-Length" or self.claimed != 0):
                request.send_header(header, value)
        request.end_headers()
        cuts = self.cuts.get(name) or [len(content)]
        body = content[: cuts.pop(0)]
        for position in range(0, len(body), _PIECE):
            request.wfile.write(body[position : position + _PIECE])
            time.sleep(self.pace_s)
        if len(body) < length or self.claimed == 0:
            time.sleep(self.stall_s)
            request.close_connection = True
