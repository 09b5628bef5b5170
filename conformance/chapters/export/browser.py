"""Pages of a folder, opened in Chromium without a window; and scripts, run by Node."""
from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

#: With the first ones, Chromium has a WebGPU adapter where there is no GPU.
GPU_FLAGS = ("--enable-unsafe-webgpu", "--enable-features=Vulkan",
             "--use-webgpu-adapter=swiftshader")
FLAGS = ("--headless=new", "--no-sandbox", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
NODE = shutil.which("node") or ""

_PAGE = """<!doctype html><script type="module">
const say = (text) => fetch("/", {method: "POST", body: JSON.stringify(text)});
try {
  const begins = %s;
  await say(begins ? "begun" : "no adapter");
  const main = async () => { %s };
  if (begins) await say(await main());
} catch (error) { await say({error: `${error} ${error.stack}`}); }
</script>"""


class _Answers(http.server.SimpleHTTPRequestHandler):
    """Gives files, and keeps what pages say."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map,
                      ".mjs": "text/javascript"}
    said: list[Any]
    heard: threading.Condition

    def do_POST(self) -> None:
        """A page says something."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self.heard:
            self.said.append(json.loads(text))
            self.heard.notify_all()
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def in_chromium(folder: Path, body: str, seconds: float = 60.0, gpu: bool = True) -> list[Any]:
    """What a page says that runs some JavaScript in a folder: "begun" or "no adapter", and then
    what it returns. Nothing, if the browser does not start in time. Without `gpu` the browser has
    no adapter, and nobody asks for one.
    """
    asked = "await navigator.gpu?.requestAdapter()" if gpu else "true"
    (folder / "index.html").write_text(_PAGE % (asked, body))
    kept: dict[str, Any] = {"said": [], "heard": threading.Condition()}
    handler = type("Answers", (_Answers,), kept)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [CHROMIUM, *FLAGS, *(GPU_FLAGS if gpu else ()), f"--user-data-dir={profile}",
             f"http://127.0.0.1:{server.server_address[1]}/"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            with kept["heard"]:
                kept["heard"].wait_for(
                    lambda: len(kept["said"]) > 1 or "no adapter" in kept["said"], seconds)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            server.shutdown()
            server.server_close()
    found: list[Any] = kept["said"]
    return found


def in_node(folder: Path, body: str) -> Any:
    """What some JavaScript prints as JSON, run in a folder; `file(name)` is a file's content."""
    script = folder / "main.mjs"
    script.write_text('import fs from "fs";\nconst file = (name) => { const all = '
                      'fs.readFileSync(name); return all.buffer.slice(all.byteOffset, '
                      'all.byteOffset + all.length); };\n' + body)
    said = subprocess.run([NODE, script.name], cwd=folder, capture_output=True, text=True,
                          check=False)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)
