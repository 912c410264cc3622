"""A headless Chromium: what a page shows, what it logs, with a script of the test's in it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

needed = pytest.mark.skipif(BROWSER is None, reason="no chromium on the PATH")


def ask(page: str, script: str, folder: Path, *options: str) -> Any:
    """What `script` leaves in `answer` in the page; what the page logs is a failure.

    The script runs after the page's own; the machine's network is out of reach.
    """
    probe = (
        "<script>let answer = null; try { "
        + script
        + " } catch (error) { answer = {failed: String(error)}; }"
        "document.body.insertAdjacentHTML('beforeend', '<pre id=answer></pre>');"
        "document.getElementById('answer').textContent = JSON.stringify(answer);</script>"
    )
    path = folder / "asked.html"
    path.write_text(page.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            str(BROWSER),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--virtual-time-budget=3000", "--enable-logging=stderr", "--dump-dom"),
            # No name resolves.
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            *options,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    logged = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not logged, logged
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))
