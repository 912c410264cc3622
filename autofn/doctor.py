"""What this machine has for compiled kernels, and what it lacks.

The answers are those of the runtime that every package has: it is written out with a tiny op, and
asked, built and loaded.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from autofn import build
from autofn.emit.environment import rendered
from autofn.package import MANIFEST, MARKER

Status = Literal["ok", "missing"]

KERNELS = """
namespace autofn { double twice(double x) { return x + x; } }
"""

CPU = """
namespace autofn {
double twice(double x);
double run_on_cpu(double x) { return twice(x); }
}
"""

CUDA = """
namespace autofn {
__global__ void twice(double* x) { *x += *x; }
double run_on_cuda(double x) { return x + x; }
}
"""

HEADER = """
#pragma once

namespace autofn {
extern const char* const kNamespace;
double run_on_cpu(double x);
double run_on_cuda(double x);
}
"""

OPS = """
#include "kernel.h"

extern "C" __attribute__((used, visibility("default"))) const char autofn_sources[] =
    "autofn-sources:" AUTOFN_SOURCES;

const char* const autofn::kNamespace = AUTOFN_NAMESPACE;
"""

BINDING = """
#include <cstring>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "kernel.h"

namespace autofn {
namespace {

// twice(Tensor like, float x) -> float
void boxed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  AtenTensorHandle like;
  double x;
  std::memcpy(&like, &stack[0], sizeof like);
  std::memcpy(&x, &stack[1], sizeof x);
  aoti_torch_delete_tensor_object(like);
#ifdef AUTOFN_CUDA
  x = run_on_cuda(x);
#else
  x = run_on_cpu(x);
#endif
  std::memcpy(&stack[0], &x, sizeof x);
}

struct Registration {
  Registration() {
    TorchLibraryHandle library;
#ifdef AUTOFN_CUDA
    const char* key = "CUDA";
#else
    const char* key = "CPU";
    aoti_torch_library_init_def(kNamespace, __FILE__, __LINE__, &library);
    aoti_torch_library_def(library, "twice(Tensor like, float x) -> float");
#endif
    aoti_torch_library_init_impl(kNamespace, key, __FILE__, __LINE__, &library);
    aoti_torch_library_impl(library, "twice", boxed);
  }
} registration;

}  // namespace
}  // namespace autofn
"""


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis; `remedy` says what to do about what is missing."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings; `ok` is whether CPU kernels can be built, kept and loaded."""

    findings: tuple[Finding, ...]
    ok: bool


def write_trial(folder: Path, name: str = "trial") -> Path:
    """Writes a package of one op, `twice(Tensor like, float x) -> float`, with its runtime."""
    header = f"{MARKER}. DO NOT EDIT."
    sources = {
        "kernel.h": HEADER,
        "ops.cpp": OPS,
        "kernels.cpp": KERNELS,
        "cpu.cpp": CPU,
        "kernels.cu": CUDA,
        "binding.cpp": BINDING,
    }
    files = {
        "__init__.py": "",
        "_runtime.py": rendered("_runtime.py.j2", header=header),
        "_build.py": rendered("_build.py.j2", header=header),
        "_fake.py": rendered("_fake.py.j2", header=header),
        **sources,
        MANIFEST: json.dumps(
            {"format": 1, "name": name, "files": sorted(sources), "kernels": [{"op": "twice"}]}
        ),
    }
    folder.mkdir(parents=True)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def examine() -> Diagnosis:
    """Looks at everything that compiled kernels need, and builds and loads a tiny op."""
    with tempfile.TemporaryDirectory(prefix="autofn-doctor-") as folder:
        trial = write_trial(Path(folder) / "trial")
        tools = build.module(trial, "_build")
        needed = [_checked("cache", _cache, trial), _checked("trial", _trial, trial)]
        others = [
            _torch(),
            _checked("backend", _backend, trial),
            _checked("compiler", _compiler, tools),
            _checked("instruction sets", _instruction_sets, tools),
            _checked("vector math", _vector_math, tools),
            _gpu(),
            _checked("nvcc", _nvcc, tools),
        ]
    return Diagnosis((*others, *needed), all(each.status == "ok" for each in needed))


class _Missing(Exception):
    """Something is not there: what, and the remedy."""

    def __init__(self, detail: str, remedy: str):
        super().__init__(detail)
        self.remedy = remedy


def _checked(name: str, check: Callable[[Any], str], subject: object) -> Finding:
    """What a check says. An error of the runtime ends with its remedy."""
    try:
        return Finding(name, "ok", check(subject))
    except _Missing as missing:
        return Finding(name, "missing", str(missing), missing.remedy)
    except Exception as error:
        return Finding(name, "missing", str(error).partition("\n")[0])


# --- the checks ----------------------------------------------------------------------------


def _torch() -> Finding:
    import torch

    build = torch.version.cuda or torch.version.hip
    kind = f"built for {'CUDA' if torch.version.cuda else 'ROCm'} {build}" if build else "CPU build"
    return Finding(
        "torch", "ok", f"{torch.__version__}, {kind}, Python {platform.python_version()}"
    )


def _backend(trial: Path) -> str:
    build.module(trial, "_runtime")
    return {
        "": "kernels where they can be had",
        "torch": "AUTOFN_BACKEND=torch: PyTorch operations, never kernels",
        "native": "AUTOFN_BACKEND=native: kernels, or an error",
    }[os.environ.get("AUTOFN_BACKEND", "")]


def _compiler(tools: ModuleType) -> str:
    chosen = tools.compiler()
    others = [name for name in ("g++", "c++", "clang++") if shutil.which(name)]
    also = [name for name in others if shutil.which(name) != chosen[0]]
    return f"{' '.join(chosen)}: {_version(tools, chosen)}" + (
        f" (also {', '.join(also)})" if also else ""
    )


def _version(tools: ModuleType, command: list[str]) -> str:
    """The line of a compiler's `--version` that has the version."""
    lines: list[str] = [line.strip() for line in tools.version(command).splitlines()]
    return next((line for line in reversed(lines) if "release" in line), (lines or ["?"])[0])


def _instruction_sets(tools: ModuleType) -> str:
    found = tools.instruction_sets()
    if not found:
        raise _Missing(
            f"none of those that libraries are built for ahead of time: {platform.machine()}",
            "none is needed: libraries are built on first use",
        )
    return ", ".join(found)


def _vector_math(tools: ModuleType) -> str:
    library, version = platform.libc_ver()
    try:
        ctypes.CDLL("libmvec.so.1")
    except OSError:
        raise _Missing(
            f"no libmvec ({library} {version})".replace(" )", ")"),
            "glibc 2.22 or newer on x86-64 or 2.38 on aarch64 has it; kernels do without, slower",
        ) from None
    return f"{library} {version} with libmvec"


def _gpu() -> Finding:
    import torch

    if torch.version.cuda is None:
        remedy = "for a GPU: https://pytorch.org/get-started lists builds of PyTorch for CUDA"
        return Finding("GPU", "missing", "this PyTorch is not built for CUDA", remedy)
    if not torch.cuda.is_available():
        return Finding(
            "GPU", "missing", "PyTorch sees none", "nvidia-smi shows whether one is there"
        )
    found = []
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        found.append(f"{torch.cuda.get_device_name(index)} (sm_{major}{minor})")
    return Finding("GPU", "ok", ", ".join(found))


def _nvcc(tools: ModuleType) -> str:
    path = tools.nvcc()
    return f"{path}: {_version(tools, [path])}"


def _cache(trial: Path) -> str:
    root: Path = build.module(trial, "_runtime").cache()
    info = root.stat()
    libraries = list(root.glob("*/*.so"))
    failures = list(root.glob("*/failed.txt"))
    size = sum(path.stat().st_size for path in libraries)
    text = (
        f"{root}, mode {stat.S_IMODE(info.st_mode):04o}, of {_user(info.st_uid)}: "
        f"{len(libraries)} libraries, {size / 2**20:.1f} MiB"
    )
    return text + (f"; {len(failures)} failed builds, see failed.txt there" if failures else "")


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _trial(trial: Path) -> str:
    import torch

    runtime = build.module(trial, "_runtime")
    begun = time.perf_counter()
    library = runtime.build("cpu", "native", trial / "trial.so")
    built = time.perf_counter()
    if not runtime.registered("cpu"):  # by an earlier diagnosis of this process
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    loaded = time.perf_counter()
    op = getattr(torch.ops, runtime.namespace()).twice
    if op(torch.zeros(()), 21.0) != 42.0:
        raise _Missing("a trial op computes nonsense", "please report it")
    return f"an op built in {built - begun:.1f} s, loaded in {1e3 * (loaded - built):.0f} ms"
