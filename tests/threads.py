"""What tests do beside themselves: several calls at once, and a small HTTP server."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextlib.contextmanager
def at_once(*calls):
    """Each call runs in a thread of its own; after the block they have ended."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """It logs nothing; a subclass has a ``reply`` to each request."""

    def do_GET(self):
        self.reply()

    def do_POST(self):
        self.reply()

    def do_PUT(self):
        self.reply()

    def log_message(self, *_):
        pass

    def answer(self, status, content, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def http_server(handler):
    """The port of this machine at which ``handler`` answers; what still comes in is not waited for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()
