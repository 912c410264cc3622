"""How a package finds, builds and loads its kernels, and `autofn build`, on packages of one op."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import click.testing
import pytest
import torch

from autofn import build, doctor
from autofn.cli import cli

ROOT = Path(__file__).resolve().parent.parent
COMPILER = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# A compiler that counts what it compiles, and may be slow: $$ is its process.
WRAPPER = """\
#!/bin/sh
for argument in "$@"; do
  if [ "$argument" = -c ]; then
    echo $$ >> "{folder}/compiled"
    if [ -e "{folder}/slow" ]; then sleep 60; fi
  fi
done
exec {compiler} "$@"
"""


class Wrapper:
    """$CXX for a test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.path = folder / "c++"
        self.path.write_text(WRAPPER.format(folder=folder, compiler=COMPILER))
        self.path.chmod(0o755)

    @property
    def compiled(self) -> list[int]:
        """The processes of all compilations."""
        log = self.folder / "compiled"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def slow(self, yes: bool) -> None:
        (self.folder / "slow").touch() if yes else (self.folder / "slow").unlink()

    def wait(self, count: int) -> None:
        """Until so many compilations run, and whoever started them knows of the last one."""
        until(lambda: len(self.compiled) == count)
        time.sleep(0.5)

    def alive(self) -> list[int]:
        return [process for process in self.compiled if _sleeps(process)]


def _sleeps(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wrapper]:
    made = Wrapper(tmp_path / "compiler")
    monkeypatch.setenv("CXX", str(made.path))
    yield made
    for process in made.alive():
        os.killpg(process, signal.SIGKILL)  # with its sleep


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing else set."""
    for name in ("AUTOFN_BACKEND", "AUTOFN_DEBUG", "CXX", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A package of one op, in a namespace of its own: the process keeps what it has loaded."""
    return doctor.write_trial(tmp_path / "package", request.node.name)


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package's runtime, which has not warned of anything yet."""
    runtime = build.module(folder, "_runtime")
    monkeypatch.setattr(runtime, "_WARNED", set())
    return runtime


def twice(runtime: ModuleType) -> float:
    return runtime.kernels("cpu").twice(torch.zeros(()), 21.0)


def fallback(runtime: ModuleType) -> str:
    """The one warning with which the runtime falls back to PyTorch operations."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert runtime.kernels("cpu") is None
    (only,) = caught
    assert only.category is RuntimeWarning
    text = str(only.message)
    assert text.startswith("autofn: ")
    assert text.endswith("; ops run in PyTorch operations")
    assert "\n" not in text
    return text


def spawn(code: str, package: Path, **environment: str) -> subprocess.Popen[str]:
    """A process with the package's runtime as `runtime`."""
    head = f"import sys; sys.path.insert(0, {str(package.parent)!r})\n"
    head += f"import torch, {package.name}._runtime as runtime\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + dedent(code)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


# --- building and loading ----------------------------------------------------------------------


@needs_compiler
def test_kernels_are_built_once_and_loaded(
    package: Path, cache: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    assert twice(runtime) == 42.0
    assert len(wrapper.compiled) == 4
    op = getattr(torch.ops, runtime.namespace()).twice.default
    assert runtime.kernels("cpu").twice is op._op
    (library,) = cache.glob("*/*.so")
    assert library.parent.name.startswith(f"{runtime.namespace()}-")
    assert library.name == "cpu.so"
    assert f"autofn-sources:{runtime.sources()}".encode() in library.read_bytes()
    assert str(ROOT).encode() not in library.read_bytes()
    assert {path.name for path in library.parent.iterdir()} == {"cpu.so", "lock"}
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@needs_compiler
def test_two_copies_of_a_package_in_one_process(
    package: Path, cache: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each with a library of its own: to register the namespace again would end the process.
    first = loaded(package, monkeypatch)
    assert twice(first) == 42.0
    (library,) = cache.glob("*/*.so")
    second = loaded(Path(shutil.copytree(package, package.parent / "copy")), monkeypatch)
    (package.parent / "copy" / "lib").mkdir()
    for target in second._build.instruction_sets():
        name = f"{second.namespace()}.cpu-{target}.so"
        shutil.copy(library, package.parent / "copy" / "lib" / name)
    assert second is not first
    assert second.namespace() == first.namespace()
    assert twice(second) == 42.0
    assert len(wrapper.compiled) == 4


@needs_compiler
def test_eight_processes_build_once(package: Path, cache: Path, wrapper: Wrapper) -> None:
    code = """
        import os
        def first_use():
            assert runtime.kernels("cpu").twice(torch.zeros(()), 21.0) == 42.0
        children = []
        for _ in range(8):
            child = os.fork()
            if not child:
                try:
                    first_use()
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    """
    finished(spawn(code, package))
    assert len(wrapper.compiled) == 4
    assert len(list(cache.glob("*/*.so"))) == 1


@needs_compiler
def test_a_fork_waits_for_another_threads_build(package: Path, wrapper: Wrapper) -> None:
    code = """
        import os, threading, time
        thread = threading.Thread(target=runtime.kernels, args=("cpu",))
        thread.start()
        while not os.path.exists(os.environ["CXX"].replace("c++", "compiled")):
            time.sleep(0.001)
        child = os.fork()
        if not child:
            os._exit(int(runtime.kernels("cpu").twice(torch.zeros(()), 21.0)))
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert finished(spawn(code, package)) == "42\n"
    assert len(wrapper.compiled) == 4


def test_the_namespace_is_ascii_and_follows_the_sources(tmp_path: Path) -> None:
    first = doctor.write_trial(tmp_path / "first", "β-2")
    second = doctor.write_trial(tmp_path / "second", "β-2")
    (second / "kernels.cpp").write_text("// other")
    names = [build.module(each, "_runtime").namespace() for each in (first, second)]
    assert all(name.startswith("u03b2u002d2_") and name.isascii() for name in names)
    assert names[0] != names[1]
    assert len(names[0].rpartition("_")[2]) == 10


@needs_compiler
def test_flags_that_the_compiler_does_not_know_are_left_out(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    unknown = "-mprefer-vector-width=512 | -march=native | -lmvec"
    text = f'#!/bin/sh\nfor a in "$@"; do case "$a" in {unknown}) exit 1;; esac; done\n'
    plain.write_text(f'{text}exec {COMPILER} "$@"\n')
    plain.chmod(0o755)
    monkeypatch.setenv("CXX", str(plain))
    assert twice(loaded(package, monkeypatch)) == 42.0


@needs_compiler
def test_a_library_that_does_not_load_is_named(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    monkeypatch.setattr(runtime, "build", lambda device, target, out: out.write_bytes(b"") and out)
    monkeypatch.setattr(runtime, "registered", lambda device: False)
    monkeypatch.setattr(runtime, "_cached", lambda device: package / "kernels.cpp")
    text = fallback(runtime)
    assert "kernels.cpp does not load, remove it" in text


def test_nothing_is_built_for_the_pytorch_backend(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFN_BACKEND", "torch")
    runtime = loaded(package, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runtime.kernels("cpu") is None
        assert runtime.kernels("cuda") is None
    assert not cache.exists()


def test_a_backend_that_there_is_not(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFN_BACKEND", "fast")
    with pytest.raises(RuntimeError, match="AUTOFN_BACKEND=fast: it is torch, native, or empty"):
        build.module(package, "_runtime")


# --- what can go wrong -------------------------------------------------------------------------


def test_without_a_compiler(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(package))
    assert "there is no C++ compiler: install g++ or clang++" in fallback(
        loaded(package, monkeypatch)
    )


def test_a_named_compiler_that_is_not_there(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++-of-nobody -m64")
    assert "CXX=c++-of-nobody -m64 is not found" in fallback(loaded(package, monkeypatch))


@pytest.mark.parametrize("why", ["no compiler", "no GPU", "no sources"])
def test_the_native_backend_raises(
    package: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setenv("AUTOFN_BACKEND", "native")
    runtime = loaded(package, monkeypatch)
    device = "cpu"
    if why == "no compiler":
        monkeypatch.setenv("PATH", str(package))
    elif why == "no GPU":
        monkeypatch.setattr(torch.version, "cuda", None)
        device = "cuda"
    else:
        (package / "manifest.json").unlink()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^AUTOFN_BACKEND=native: \S"):
            runtime.kernels(device)


@needs_compiler
def test_a_failed_build_warns_once_and_is_not_tried_again(
    package: Path, cache: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (package / "cpu.cpp").read_text()
    (package / "cpu.cpp").write_text("#error this cannot work\n")
    text = fallback(loaded(package, monkeypatch))
    assert "this cannot work" in text
    (failed,) = cache.glob("*/failed.txt")
    assert str(failed) in text
    assert f"{wrapper.path} -std=c++17" in failed.read_text()
    assert not list(cache.glob("*/build-*"))
    assert not list(cache.glob("*/*.so"))

    tries = len(wrapper.compiled)
    again = loaded(Path(shutil.copytree(package, package.parent / "again")), monkeypatch)
    assert fallback(again) == text
    assert len(wrapper.compiled) == tries

    failed.unlink()
    assert fallback(loaded(Path(shutil.copytree(package, package.parent / "more")), monkeypatch))
    assert len(wrapper.compiled) > tries

    mended = Path(shutil.copytree(package, package.parent / "mended"))
    (mended / "cpu.cpp").write_text(good)
    assert twice(loaded(mended, monkeypatch)) == 42.0


@needs_compiler
def test_a_compiler_that_takes_too_long_ends_with_its_children(
    package: Path, cache: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper.slow(True)
    runtime = loaded(package, monkeypatch)
    monkeypatch.setattr(runtime._build, "TIMEOUT", 1)
    assert "took more than 1 s" in fallback(runtime)
    assert wrapper.compiled
    until(lambda: not wrapper.alive())
    assert len(list(cache.glob("*/failed.txt"))) == 1


@needs_compiler
def test_ctrl_c_while_building(package: Path, cache: Path, wrapper: Wrapper) -> None:
    wrapper.slow(True)
    process = spawn('runtime.kernels("cpu")', package)
    wrapper.wait(4)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in output
    until(lambda: not wrapper.alive())
    assert [path.name for path in cache.glob("*/*")] == ["lock"]


@needs_compiler
def test_a_killed_builder_leaves_no_half_library(
    package: Path, cache: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper.slow(True)
    process = spawn('runtime.kernels("cpu")', package)
    wrapper.wait(4)
    process.kill()
    process.communicate()
    assert len(list(cache.glob("*/build-*"))) == 1
    wrapper.slow(False)
    assert twice(loaded(package, monkeypatch)) == 42.0
    left = [path.name for path in cache.glob("*/*") if path.parent.name != "objects"]
    assert sorted(left) == ["cpu.so", "lock"]


# --- the cache ---------------------------------------------------------------------------------


def test_a_cache_that_others_may_write_to_is_refused(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    assert runtime.cache() == cache
    for mode in (0o770, 0o702):
        cache.chmod(mode)
        with pytest.raises(RuntimeError, match=f"chmod go-w {cache}"):
            runtime.cache()
    link = cache.parent / "link"
    link.symlink_to(cache)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(link))
    with pytest.raises(RuntimeError, match="other users may write"):
        runtime.cache()
    cache.chmod(0o755)
    assert runtime.cache() == link


def test_a_cache_of_another_user_is_refused(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    runtime.cache()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RuntimeError, match="another user's: set AUTOFN_CACHE_DIR"):
        runtime.cache()


def test_a_cache_that_cannot_be_made(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = loaded(package, monkeypatch)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(package / "kernels.cpp" / "inside"))
    with pytest.raises(RuntimeError, match=r"no cache: .*; set AUTOFN_CACHE_DIR"):
        runtime.cache()


def test_where_the_cache_is(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = loaded(package, monkeypatch)
    monkeypatch.delenv("AUTOFN_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert runtime.cache() == tmp_path / "home/.cache/autofn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert runtime.cache() == tmp_path / "xdg/autofn"


# --- libraries beside the package --------------------------------------------------------------


@needs_compiler
def test_a_prebuilt_library_needs_no_compiler(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    if not runtime._build.instruction_sets():
        pytest.skip("nothing is built ahead of time for this CPU")
    built = build.build(build.Job(package, "cpu", runtime._build.instruction_sets()[-1]))
    assert not built.failure
    monkeypatch.setenv("CXX", "c++-of-nobody")
    assert twice(runtime) == 42.0
    assert not cache.exists()


@needs_compiler
def test_a_prebuilt_library_of_other_sources_is_not_loaded(
    package: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    target = (runtime._build.instruction_sets() or [pytest.skip("no ahead-of-time builds")])[0]
    stale = package / "lib" / f"{runtime.namespace()}.cpu-{target}.so"
    stale.parent.mkdir()
    stale.write_bytes(b"autofn-sources:0000")
    with pytest.warns(RuntimeWarning, match=rf"{stale} is of other sources: remove it") as caught:
        assert twice(runtime) == 42.0
    assert len(caught) == 1
    assert len(list(cache.glob("*/cpu.so"))) == 1


def test_the_best_prebuilt_library_that_runs_is_chosen(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = loaded(package, monkeypatch)
    sets = ["x86-64-v3", "x86-64-v2", "x86-64"]
    monkeypatch.setattr(runtime._build, "instruction_sets", lambda: sets)
    monkeypatch.setattr(runtime._build, "architectures", lambda: "sm_90")
    marker = f"\0autofn-sources:{runtime.sources()}\0".encode()
    (package / "lib").mkdir()
    assert runtime._prebuilt("cpu") is None
    for tag in ("cpu-x86-64", "cpu-x86-64-v2", "cpu-x86-64-v4", "cuda-sm_80", "cuda-sm_90"):
        (package / "lib" / f"{runtime.namespace()}.{tag}.so").write_bytes(marker)
    assert runtime._prebuilt("cpu").name.endswith(".cpu-x86-64-v2.so")
    assert runtime._prebuilt("cuda").name.endswith(".cuda-sm_90.so")


@pytest.mark.parametrize(
    ("added", "best"),
    [("", "x86-64"), ("v2", "x86-64-v2"), ("v2 v3", "x86-64-v3"), ("v2 v4", "x86-64-v2")],
)
def test_instruction_sets(
    package: Path, monkeypatch: pytest.MonkeyPatch, added: str, best: str
) -> None:
    tools = build.module(package, "_build")
    flags = " ".join(tools._LEVELS[f"x86-64-{level}"] for level in added.split())
    monkeypatch.setattr(tools, "cpu_flags", lambda: flags)
    monkeypatch.setattr(tools.platform, "machine", lambda: "x86_64")
    assert tools.instruction_sets()[0] == best
    assert tools.instruction_sets()[-1] == "x86-64"
    monkeypatch.setattr(tools.platform, "machine", lambda: "arm64")
    assert tools.instruction_sets() == ["aarch64"]


# --- CUDA --------------------------------------------------------------------------------------


def test_where_nvcc_is(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = build.module(package, "_build")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_TORCH", tmp_path / "site/torch")
    found = []
    for place in ("site/nvidia/cu13/bin", ".", "home/bin"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "nvcc").touch(mode=0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
        found.append(os.path.relpath(tools.nvcc(), tmp_path))
    assert found == ["site/nvidia/cu13/bin/nvcc", "nvcc", "home/bin/nvcc"]


@pytest.mark.parametrize(("version", "wheels"), [("13.0", True), ("12.8", False)])
def test_without_nvcc(
    package: Path, monkeypatch: pytest.MonkeyPatch, version: str, wheels: bool
) -> None:
    tools = build.module(package, "_build")
    monkeypatch.setattr(tools.shutil, "which", lambda place: None)
    monkeypatch.setattr(torch.version, "cuda", version)
    with pytest.raises(RuntimeError, match=f"install the CUDA {version} toolkit") as raised:
        tools.nvcc()
    assert ('pip install "nvidia-cuda-nvcc==13.0.*"' in str(raised.value)) == wheels


@needs_compiler
def test_a_library_of_cuda(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = loaded(package, monkeypatch)
    try:
        runtime._build.nvcc()
    except RuntimeError as missing:
        pytest.skip(str(missing))
    built = build.build(build.Job(package, "cuda", "sm_90"))
    assert not built.failure, built.output
    assert built.path.name == f"{runtime.namespace()}.cuda-sm_90.so"
    library = built.path.read_bytes()
    assert f"autofn-sources:{runtime.sources()}".encode() in library
    # By name, to be found in the process: this machine's libtorch may have none.
    assert b"\0libtorch_cuda.so\0" in library


# --- autofn build ------------------------------------------------------------------------------


def call(*arguments: object) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, [str(each) for each in arguments])
    assert "Traceback" not in result.output
    return result


@needs_compiler
def test_build_writes_libraries_and_a_table(
    tmp_path: Path, wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        doctor.write_trial(tmp_path / "ops" / name, name)
    (tmp_path / "ops" / "notes.txt").touch()
    (tmp_path / "ops" / "notes").mkdir()
    older = tmp_path / "ops/one/lib/one_0000000000.cpu-x86-64.so"
    kept = tmp_path / "ops/one/lib/mine.cpu-x86-64.so"
    older.parent.mkdir()
    older.write_bytes(b"autofn-sources:0000")
    kept.write_bytes(b"something else")
    machine = build.module(tmp_path / "ops/one", "_build").instruction_sets()
    if "x86-64" not in machine:
        pytest.skip("not an x86-64 CPU")
    # Compilers run in the package's folder.
    monkeypatch.chdir(tmp_path)
    result = call("build", "ops", "--isa", "native,x86-64", "-j", 2)
    assert result.exit_code == 0, result.output
    libraries = sorted(path.name for path in tmp_path.glob("ops/*/lib/*.so"))
    assert len(libraries) == 5 if machine[0] != "x86-64" else 3
    assert not older.exists()
    assert kept.exists()
    assert "4 built" in result.output
    lines = [line.split() for line in result.output.splitlines() if ".so" in line]
    assert all(size.isdigit() and unit == "KiB" for _, size, unit, _ in lines)
    assert not list(tmp_path.glob("ops/*/lib/build-*"))


@needs_compiler
def test_build_says_what_failed_and_builds_the_others(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        doctor.write_trial(tmp_path / name, name)
    (tmp_path / "bad" / "kernels.cpp").write_text("#error it is broken\n")
    result = call("build", tmp_path)
    assert result.exit_code == 1
    assert "error: bad cpu-" in result.output
    assert "it is broken" in result.output
    assert "AUTOFN_DEBUG=1" in result.output
    assert "1 built, 1 failed" in result.output


def test_build_without_a_compiler(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(package))
    result = call("build", package)
    assert result.exit_code == 1
    assert "there is no C++ compiler" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a package or a folder of packages"),
        (["nowhere"], "nowhere is no folder"),
        (["empty"], "holds no generated package"),
        (["old"], "has no kernels"),
        (["broken"], "cannot be used"),
        (["package", "--isa", "x86-64-v9"], "is none of native"),
        (["package", "--cuda-arch", "hopper"], "write 90 for sm_90"),
        (["package", "--isa", ""], "nothing to build"),
        (["package", "-j", "0"], "invalid value"),
    ],
)
def test_build_refuses(
    package: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(package.parent)
    Path("empty").mkdir()
    Path("old").mkdir()
    Path("old/manifest.json").write_text("{}")
    shutil.copytree(package, "broken")
    Path("broken/manifest.json").write_text("not JSON")
    result = call("build", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not list(package.glob("lib/*"))


@needs_compiler
def test_ctrl_c_while_building_ahead_of_time(tmp_path: Path, wrapper: Wrapper) -> None:
    for name in ("one", "two", "three"):
        doctor.write_trial(tmp_path / "ops" / name, name)
    wrapper.slow(True)
    process = subprocess.Popen(
        [sys.executable, "-m", "autofn", "build", str(tmp_path / "ops"), "-j", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wrapper.wait(8)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert "Traceback" not in output
    until(lambda: not wrapper.alive())
    assert not list(tmp_path.glob("ops/*/lib/*"))


@needs_compiler
def test_what_all_packages_share_is_compiled_once(tmp_path: Path, wrapper: Wrapper) -> None:
    for name in ("one", "two"):
        package = doctor.write_trial(tmp_path / name, name)
        first, rest = f"// of {name}\n", (package / "cpu.cpp").read_text()
        (package / "cpu.cpp").write_text(first + rest)
        assert twice(build.runtime(package)) == 42.0
    assert len(wrapper.compiled) == 4 + 2  # kernels.cpp and ops.cpp are a package's own
    other = doctor.write_trial(tmp_path / "other", "other")
    (other / "kernel.h").write_text("\n// another\n" + (other / "kernel.h").read_text())
    assert twice(build.runtime(other)) == 42.0
    assert len(wrapper.compiled) == 6 + 4


@needs_compiler
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_long_kernels_are_inlined(tmp_path: Path) -> None:
    """A loop around a call is not vectorised: this kernel took five times as long."""
    folder = Path(__file__).resolve().parent.parent / "generated" / "quaternion_product"
    made = tmp_path / "kernels.o"
    flags = ["-std=c++17", "-O2", "-c", str(folder / "kernels.cpp"), "-o", str(made)]
    subprocess.run([str(COMPILER), *flags], check=True)
    names = subprocess.run(["nm", "-C", made], check=True, capture_output=True, text=True).stdout
    assert "quaternion_product_forward_block<float, float>" in names
    assert "quaternion_product_forward<" not in names
