"""A project of the user's: `[tool.autofn]`, and what `autofn init` writes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest
import tomlkit

from autofn import initialise, project
from autofn.cli import cli
from autofn.cli.actions import Verify
from autofn.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
FORMULA = "from autofn import formula\n@formula\ndef {name}(x):\n    return 2 * x\n"

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOFN_CACHE_DIR", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    return tmp_path


def call(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, list(arguments))
    assert "Traceback" not in result.output
    return result


def table(text: str) -> None:
    Path("pyproject.toml").write_text(f"[project]\nname = 'mine'\n\n[tool.autofn]\n{text}\n")


# --- the settings ----------------------------------------------------------------------------


def test_settings(here: Path, monkeypatch) -> None:
    table(
        'sources = ["ops", "one.py"]\noutput = "src/mine/ops"\n'
        'architectures = [80, "90"]\nisa = ["x86-64-v3"]\nbudgets = { f = 4, "g" = 2.5 }'
    )
    (here / "ops").mkdir()
    found = project.find()
    assert found == project.Project(
        here, ("ops", "one.py"), "src/mine/ops", ("80", "90"), ("x86-64-v3",), {"f": 4, "g": 2.5}
    )
    monkeypatch.chdir(here / "ops")
    below = project.find()
    assert below is not None
    assert below.sources == (".", os.path.join("..", "one.py"))
    assert below.output == os.path.join("..", "src", "mine", "ops")


def test_defaults_and_none(here: Path) -> None:
    assert project.find() is None
    Path("pyproject.toml").write_text("# no table of autofn in tool\n[project]\nname = 'mine'\n")
    assert project.find() is None
    table("")
    assert project.find() == project.Project(here)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "\noutptu = 'x'",
            6,
            "'outptu' is no setting of [tool.autofn]",
        ),
        ("sources = 'f.py'", 5, "sources = 'f.py' is not a list of files"),
        ("sources = []", 5, "sources = [] is not a list of files"),
        ("sources = ['a', 1]", 5, "sources"),
        ("output = 1", 5, "output = 1 is not a folder"),
        ("output = ''", 5, "output"),
        ("sources = ['f.py']\nisa = 'native'", 6, "isa"),
        ("architectures = [9.0]", 5, "architectures"),
        ("budgets = 4.0", 5, "budgets"),
        ("budgets = { f = 'much' }", 5, "budgets"),
        ("[tool.autofn.budgets]\nf = 1.0\ng = 0.1", 7, "budgets"),
        ("[tool.autofn.budgets]\nf = true", 6, "budgets"),
        ("dtypes = ['float31']", 5, "dtypes = ['float31'] is not a list of dtypes, float64, "),
        ("dtypes = 'float32'", 5, "dtypes = 'float32' is not a list of dtypes"),
        ("tests = 1", 5, "tests = 1 is not true or false"),
        ("[tool.autofn.buget]\nf = 1", 5, "did you mean budgets?"),
        ("sources = [", 5, "pyproject.toml:"),
    ],
)
def test_wrong_settings(text: str, line: int, message: str, here: Path) -> None:
    table(text)
    for command in (["gen"], ["gen", "swish"], ["verify"], ["show"], ["gen", "--watch"]):
        result = call(*command)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "remedy: " in result.stderr
        if message != "pyproject.toml:":
            assert f"error: pyproject.toml:{line}: " in result.stderr
    assert os.listdir(here) == ["pyproject.toml"]


def test_a_package_whose_formula_is_gone_is_named(here: Path) -> None:
    (here / "formulas").mkdir()
    for name in ("f", "g"):
        (here / "formulas" / f"{name}.py").write_text(FORMULA.format(name=name))
    table("")
    assert "no formula" not in call("gen", "--no-verify").stdout
    (here / "formulas" / "g.py").unlink()
    for arguments in (["gen", "--check"], ["gen", "--no-verify"]):
        result = call(*arguments)
        assert result.exit_code == 0
        assert "generated/g: no formula of the project gives it" in result.stdout
        assert "generated/f: no" not in result.stdout
    assert call("gen", "--check", "--quiet").output == ""
    assert "no formula" not in call("gen", "formulas/f.py", "--check").stdout


def test_dtypes_of_the_project(here: Path, monkeypatch) -> None:
    """They say what is verified, which verification counts, and what is certified and measured."""
    from autofn.certificate.model import Certificate, Finding
    from autofn.cli.bench import bench
    from autofn.load import load_file
    from autofn.verify.report import Report, Row
    from autofn.verify.tables import make_job

    asked = here / "asked"

    def verify_package(package, definition, *, dtypes, **_) -> Report:
        asked.write_text(",".join(dtypes))
        return Report("f", (Row("PyTorch", "values", "passed"),))

    findings = tuple(
        Finding("CPU kernel", dtype, "value", "out", 1, 1.0, 1.0, None, 0, None, 0.0)
        for dtype in ("float64", "float32", "bfloat16")
    )
    monkeypatch.setattr("autofn.verify.verify_package", verify_package)
    Path("f.py").write_text(FORMULA.format(name="f"))
    table("sources = ['f.py']\ndtypes = ['bfloat16', 'float32']")
    first = call("gen")
    assert first.stdout.endswith("files written; verified: 1 passed (float32, bfloat16)\n")
    assert asked.read_text() == "float32,bfloat16"
    asked.unlink()
    assert "verified before: 1 passed (float32, bfloat16)" in call("gen").stdout
    assert not asked.exists()
    table("sources = ['f.py']\ndtypes = ['float16']")
    assert "verified: 1 passed (float16)" in call("gen").stdout

    (formula,) = load_file("f.py")
    for level in ("quick", "draft"):
        job = make_job(formula.definition, "", level, ("float32",))
        assert {each.dtype for each in job.tables} == {"float64", "float32"}
    monkeypatch.setattr(
        "autofn.certificate.run.certify", lambda *_: Certificate("f", findings, (), (), ())
    )
    action = Verify("nowhere", "full", True, {}, ("float32", "bfloat16"))
    found = action(formula.definition, lambda *_: None).certificate
    assert {each.dtype for each in found.findings} == {"float32", "bfloat16"}
    (option,) = (each for each in bench.params if each.name == "dtypes")
    assert option.default() == "float16"
    table("")
    assert option.default() == "float32"


def test_another_way_to_write_it(here: Path) -> None:
    Path("pyproject.toml").write_text("tool.autofn = 3\n")
    assert "pyproject.toml:1: tool.autofn is 3, not a table" in call("gen").stderr
    Path("pyproject.toml").write_text("[tool]\nautofn.output = 3\n")
    assert "pyproject.toml:2: output = 3 is not a folder" in call("gen").stderr


def test_commands_without_files(here: Path, monkeypatch) -> None:
    table('sources = ["ops"]\noutput = "out"')
    missing = call("gen")
    assert missing.exit_code == 2
    assert "ops, a source of the project's [tool.autofn], does not exist" in missing.stderr
    wrote = call("new", "gate")
    assert wrote.stdout == f"wrote {os.path.join('ops', 'gate.py')}; next: autofn gen ops/gate.py\n"
    assert call("gen", "--no-verify").exit_code == 0
    assert (here / "out" / "gate" / "__init__.py").is_file()
    assert call("gen", "--check").stdout == "out/gate: up to date\n"
    assert "gate" in call("show").stdout
    monkeypatch.chdir(here / "ops")
    assert call("gen", "--check").exit_code == 0
    path = here / "out" / "gate" / "maths.py"
    path.write_text(path.read_text() + "# by hand\n")
    assert call("gen", "--check").exit_code == 1
    assert call("new", "other").stdout.startswith("wrote other.py")


def test_a_new_formula_beside_those_that_are_listed(here: Path) -> None:
    table('sources = ["gate.py"]')
    assert len(call("new", "gate").stdout.splitlines()) == 1
    _, note = call("new", "other").stdout.splitlines()
    assert note.endswith("add 'other.py' to `sources` in [tool.autofn] of pyproject.toml")
    table('sources = ["."]')
    assert len(call("new", "third").stdout.splitlines()) == 1


def test_a_file_that_is_named_goes_to_the_projects_output(here: Path) -> None:
    table('output = "out"')
    Path("f.py").write_text(FORMULA.format(name="f"))
    assert call("gen", "f.py", "--no-verify").stdout.startswith("out/f: ")
    assert call("gen", "f.py", "--no-verify", "-o", "there").stdout.startswith("there/f: ")


def test_building_what_the_project_says(here: Path, monkeypatch) -> None:
    wanted: list = []
    monkeypatch.setattr(
        "autofn.build.build_all", lambda jobs, **_: (each for each in wanted.append(jobs) or ())
    )
    assert call("build").exit_code == 2
    table('sources = ["f.py"]\narchitectures = ["80"]\nisa = ["x86-64-v2", "x86-64-v3"]')
    Path("f.py").write_text(FORMULA.format(name="f"))
    call("gen", "--no-verify")
    module = sys.modules["autofn.cli.build"]
    monkeypatch.setattr(module, "_instruction_set", lambda mine, wanted: wanted)
    assert call("build").exit_code == 0
    assert [(job.device, job.target) for job in wanted[0]] == [
        ("cpu", "x86-64-v2"),
        ("cpu", "x86-64-v3"),
        ("cuda", "sm_80"),
    ]


def test_budgets_of_the_project(here: Path, monkeypatch) -> None:
    """They hold for formulas that state none."""
    from autofn.load import load_file
    from autofn.verify.report import Report

    class Certificate:
        def beyond(self, budget: float) -> tuple[str, ...]:
            return (f"budget {budget}",)

    monkeypatch.setattr("autofn.verify.verify_package", lambda *_, **__: Report("f", ()))
    monkeypatch.setattr("autofn.certificate.run.certify", lambda *_: Certificate())
    Path("f.py").write_text(
        FORMULA.format(name="f") + "@formula(budget=8)\ndef g(x): return x\n"
        "@formula\ndef h(x): return x\n"
    )
    action = Verify("nowhere", "full", True, {"f": 4.0, "g": 2.0})
    found = [action(each.definition, lambda *_: None).beyond for each in load_file("f.py")]
    assert found == [("budget 4.0",), ("budget 8.0",), ()]


# --- init ------------------------------------------------------------------------------------


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull,
           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    environment = {**os.environ, **who, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["git", *arguments], capture_output=True, text=True, env=environment)


@needs_git
def test_init_in_a_repository_and_a_commit_with_drift(here: Path) -> None:
    git("init", "-q")
    result = call("init")
    assert result.exit_code == 0
    assert project.find() == project.Project(here)
    hook = here / ".git" / "hooks" / "pre-commit"
    assert hook.stat().st_mode & stat.S_IXUSR
    assert (here / ".gitattributes").read_text() == (
        "generated/** linguist-generated=true text eol=lf\n"
    )
    assert "autofn gen --check\n" in (here / ".github/workflows/autofn.yml").read_text()

    call("new", "gate")
    call("gen", "--no-verify")
    git("add", ".")
    good = git("commit", "-m", "good")
    assert good.returncode == 0, good.stderr
    path = here / "generated" / "gate" / "maths.py"
    path.write_text(path.read_text() + "# by hand\n")
    drift = git("commit", "-am", "drift")
    assert drift.returncode == 1
    assert "-# by hand" in drift.stdout + drift.stderr
    assert "generated/gate is not what formulas/gate.py gives: it was edited by hand" in (
        drift.stdout + drift.stderr
    )

    before = {each: each.read_bytes() for each in here.rglob("*") if each.is_file()}
    again = call("init")
    assert again.exit_code == 0
    assert again.stdout.count("already") == 4
    assert {each: each.read_bytes() for each in here.rglob("*") if each.is_file()} == before


def test_init_keeps_what_a_pyproject_says(here: Path) -> None:
    before = b'# A comment.\r\n[project]\r\nname = "mine"  # kept\r\n\r\n[tool.ruff]\r\nlint = {}'
    Path("pyproject.toml").write_bytes(before)
    call("init", "--no-hook", "--no-ci", "--sources", "a b", "--sources", "c.py", "-o", "my ops")
    after = Path("pyproject.toml").read_bytes()
    assert after.startswith(before + b"\r\n\r\n[tool.autofn]\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")
    found = project.find()
    assert found is not None
    assert (found.sources, found.output) == (("a b", "c.py"), "my ops")
    assert Path(".gitattributes").read_text().startswith('"my ops/**" linguist-generated')
    assert not Path(".github").exists()


def test_init_and_what_is_there(here: Path) -> None:
    table('output = "out"')
    Path(".gitattributes").write_text("*.png binary")
    Path(".github/workflows").mkdir(parents=True)
    Path(".github/workflows/autofn.yml").write_text("mine")
    call("init")
    assert "out" in Path("pyproject.toml").read_text()
    assert Path(".gitattributes").read_text().startswith("*.png binary\nout/** ")
    assert Path(".github/workflows/autofn.yml").read_text() == "mine"


@needs_git
def test_init_leaves_a_hook_alone(here: Path) -> None:
    git("init", "-q")
    hook = here / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("mine\n")
    assert "pre-commit: is yours; add the line: autofn gen --check || exit 1" in call("init").stdout
    assert hook.read_text() == "mine\n"


def test_init_outside_of_a_repository(here: Path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    assert "no git repository" in call("init").stdout or shutil.which("git") is None
    assert project.find() is not None


PRE_COMMIT = {
    "indented": "repos:\n  - repo: https://example.org/a\n    rev: v1\n    hooks:\n      - id: a\n",
    "flush": "# mine\nrepos:\n- repo: https://example.org/a\n  rev: v1\n  hooks:\n  - id: a\n",
    "in the middle": "repos:\n- repo: local\n  hooks: []\n\nexclude: x\n# end\n",
    "no line end": "repos:\n  - repo: local\n    hooks: []",
    "Windows": "repos:\r\n  - repo: local\r\n    hooks: []\r\n",
}


@pytest.mark.parametrize("case", PRE_COMMIT)
def test_init_adds_to_pre_commit(case: str, here: Path) -> None:
    yaml = pytest.importorskip("yaml")
    path, before = Path(".pre-commit-config.yaml"), PRE_COMMIT[case]
    path.write_bytes(before.encode())
    old = yaml.safe_load(before)
    assert "added a local hook" in call("init").stdout
    after = path.read_bytes().decode()
    new = yaml.safe_load(after)
    assert new["repos"][:-1] == old["repos"]
    assert new["repos"][-1]["hooks"][0]["entry"] == "autofn gen --check --quiet"
    assert {k: v for k, v in new.items() if k != "repos"} == {
        k: v for k, v in old.items() if k != "repos"
    }
    assert all(line in after for line in before.splitlines())
    assert ("\r\n" in after) == ("\r\n" in before)
    call("init")
    assert path.read_bytes().decode() == after


def test_init_with_pre_commit(here: Path) -> None:
    path = Path(".pre-commit-config.yaml")
    path.write_text("repos: []\n")
    assert "add by hand" in call("init").stdout
    assert path.read_text() == "repos: []\n"
    path.unlink()
    assert "pre-commit install" in call("init", "--pre-commit").stdout
    assert path.read_text().startswith("repos:\n  - repo: local\n    hooks:\n")


def test_the_workflow_installs_what_generates(here: Path, monkeypatch) -> None:
    class Distribution:
        def __init__(self, text: str | None) -> None:
            self.text = text

        def read_text(self, name: str) -> str | None:
            return self.text

    source = '{"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}'
    for text, expected in (
        (source, ("autofn @ git+https://example.org/a.git@abc", True)),
        (None, (f"autofn=={initialise.__version__}", True)),
        ('{"url": "file:///a", "dir_info": {}}', (f"autofn=={initialise.__version__}", False)),
    ):
        with monkeypatch.context() as patch:
            found = Distribution(text)
            patch.setattr(
                "autofn.initialise.metadata.distribution", lambda name, found=found: found
            )
            assert initialise._autofn() == expected
    yaml = pytest.importorskip("yaml")
    initialise.workflow(here)
    steps = yaml.safe_load(Path(initialise.WORKFLOW).read_text())["jobs"]["check"]["steps"]
    assert steps[-1] == {"run": "autofn gen --check"}
    assert "sympy==" in steps[-2]["run"]


def test_init_where_nothing_can_be_written(here: Path, monkeypatch) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    result = call("init")
    assert result.exit_code == 2
    assert "pyproject.toml cannot be written: Permission denied" in result.stderr
    assert not [each for each in os.listdir(here) if each != ".git"]


def test_init_refuses_what_it_does_not_understand(here: Path) -> None:
    Path("pyproject.toml").write_text("[tool\n")
    assert "error: pyproject.toml:1: " in call("init").stderr
    Path("pyproject.toml").write_text("tool = { ruff = { line-length = 100 } }\n")
    assert "add by hand" in call("init").stdout
    assert call("init", "-o", "../out").exit_code == 2
    assert tomlkit.parse(Path("pyproject.toml").read_text())


def test_lines_of_keys() -> None:
    text = 'x = 1\n[tool.autofn]\n"output" = "a"\n[tool.autofn.budgets]\nf = 1\n'
    assert [project.line_of(text, key) for key in ("output", "budgets", "f", "g")] == [3, 4, 5, 2]
    with pytest.raises(UsageError):
        project.table_of("[", Path("pyproject.toml"))


def test_init_finds_formula_files_where_there_is_no_folder_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_bytes(b"x = '\xff'\n")
    assert initialise.sources(tmp_path) == ("formulas",)
    (tmp_path / "bent.py").write_text("from autofn import formula\n\n@formula\ndef bent(x): ...\n")
    assert initialise.sources(tmp_path) == ("bent.py",)
    (tmp_path / "formulas").mkdir()
    assert initialise.sources(tmp_path) == ("formulas",)
