"""What the children of a nursery do in its tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    (what,) = arguments
    told = {"process": os.getpid(), "folder": os.getcwd(), "variables": dict(os.environ)}
    print(json.dumps(told), flush=True)
    if what == "echo":
        print(input(), flush=True)
    elif what == "fail":
        raise ValueError("as it was told")
    elif what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "compile":
        print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
