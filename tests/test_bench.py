"""`autofn bench`: what it counts, compares, writes and refuses; never how fast anything is."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path

import click.testing
import pytest
import torch

from autofn.bench import measure as measuring
from autofn.bench import subjects
from autofn.bench.measure import CpuClock, Statement, interleaved
from autofn.bench.memory import saved_bytes, saved_for_backward
from autofn.bench.records import (
    Report,
    Result,
    Saved,
    Setting,
    Time,
    from_json,
    geometric_mean,
    power_of_two,
    to_json,
)
from autofn.bench.run import Options, measure
from autofn.bench.sketch import FUNCTIONS, WRITTEN, Sketch, sketch
from autofn.bench.tables import grid, grids, markdown
from autofn.cli import cli
from autofn.load import load_file

ROOT = Path(__file__).resolve().parent.parent
QUICK = Options(compile=False, seconds=1e-3)

pytestmark = pytest.mark.usefixtures("pytorch_path")


def sketched(name: str) -> Sketch:
    return sketch(load_file(ROOT / "formulas" / f"{name}.py")[0].definition)


def subject(name: str) -> subjects.Subject:
    return subjects.load(sketched(name), str(ROOT / "generated" / name))


def call(*arguments: str) -> click.testing.Result:
    result = click.testing.CliRunner().invoke(cli, ["bench", *arguments])
    assert "Traceback" not in result.output
    return result


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds of single calls."""
    monkeypatch.setattr(measuring, "SAMPLE", 1e-9)
    monkeypatch.setattr(measuring, "ROUNDS", (3, 3))


def made(name: str = "mish", costly: bool = True, mode="forward+backward", **micros: float):
    """A result with these medians, in microseconds."""
    times = tuple(
        Time(contender, "some form", 1e-6 * t, 0.9e-6 * t, 1.1e-6 * t, 9, 1)
        for contender, t in micros.items()
    )
    return Result(name, Setting(1 << 20), mode, (1 << 20,), 20 << 20, costly, times)


# --- ratios ----------------------------------------------------------------------------------


def test_the_rival_is_the_fastest_of_eager_native_and_compile():
    result = made(generated=100, eager=900, native=300, compile=400, limit=50)
    assert result.rival.contender == "native"
    assert result.speedup == pytest.approx(3)
    assert result.over_limit == pytest.approx(2)
    assert result.bandwidth == pytest.approx((20 << 20) / 100e-6)
    assert result.time("generated").spread == pytest.approx(0.1)


def test_what_is_missing_has_no_ratio():
    result = made(generated=100, limit=50)
    assert result.rival is None
    assert result.speedup is None
    assert made(eager=100).over_limit is None


def test_geometric_mean_is_over_what_is_known():
    assert geometric_mean([2.0, None, 8.0]) == pytest.approx(4)
    assert geometric_mean([None]) is None


def test_sizes_are_shown_as_powers():
    assert [power_of_two(n) for n in (64, 4096, 1 << 20, 10**6)] == [
        "64",
        "4096",
        "2^20",
        "1000000",
    ]


# --- bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("mish", 2, 3),  # x, out; grad, x, grad of x
        ("exp", 2, 3),  # the output is saved in place of the input
        ("swiglu", 3, 5),
        ("quadratic_terms", 6, 8),
        ("scaled_bias", 3, 3),  # nothing is saved
    ],
)
def test_bytes_that_must_move(name, forward, backward):
    data = subjects.data_for(sketched(name), Setting(4096))
    assert subjects.moved(sketched(name), data) == (4096 * 4 * forward, 4096 * 4 * backward)


def test_parameters_move_too():
    drawn = sketched("dyt")
    data = subjects.data_for(drawn, Setting(4096, "bfloat16"))
    assert data.shape == (64, 64)
    parameters = 2 * (1 + 64 + 64)
    # Saved are x, alpha and gamma.
    assert subjects.moved(drawn, data) == (
        2 * 2 * 4096 + parameters,
        3 * 2 * 4096 + parameters + 2 * (1 + 64),
    )


def test_the_limit_copies_half_of_the_bytes():
    drawn = sketched("mish")
    data = subjects.data_for(drawn, Setting(4096))
    names = subjects.limit(drawn, data, "forward+backward").names
    assert names["forward_to"].nbytes == 4096 * 4
    assert names["backward_to"].nbytes == 4096 * 4 * 3 // 2
    only = subjects.limit(drawn, data, "backward")
    assert set(only.names) == {"backward_from", "backward_to"}


@pytest.mark.parametrize("size", [64, 4096, 1 << 20])
@pytest.mark.parametrize("name", ["mish", "dyt", "prelu"])
def test_shapes_have_the_size_and_channels_where_they_belong(name, size):
    operands = sketched(name).operands
    shape = subjects.shape_of(size, operands)
    assert torch.Size(shape).numel() == size
    expected = {"mish": {64: (64,)}, "dyt": {1 << 20: (1024, 1024)}}
    expected["prelu"] = {1 << 20: (16, 64, 32, 32)}
    assert shape == expected[name].get(size, shape)


# --- forms -----------------------------------------------------------------------------------


def test_eager_is_what_was_written_and_what_pytorch_calls_it():
    forms = {form.label: form.text for form in sketched("swish").forms}
    assert "torch.exp" in forms[WRITTEN]
    assert "sigmoid" not in forms[WRITTEN]
    assert "torch.sigmoid" in forms[FUNCTIONS]
    assert [form.label for form in sketched("tanh").forms] == [WRITTEN]


def test_bounds_are_clamps_as_users_write_them():
    text = sketched("hard_swish").forms[0].text
    assert "torch.clamp(x + 3, 0, 6)" in text


def test_a_gradient_of_ones_own_is_what_eager_uses():
    drawn = sketched("ste_sign")
    data = subjects.data_for(drawn, Setting(64))
    contender = next(subjects.eager(drawn))
    (gradient,) = subjects.values(contender, drawn, data, "forward+backward")
    x, grad = data.plain["x"], data.cotangents[0]
    assert torch.equal(gradient, torch.where(x.abs() <= 1, grad, 0))


@pytest.mark.parametrize(
    ("name", "costly"), [("mish", True), ("softsign", True), ("huber", False), ("relu", False)]
)
def test_costly_formulas_have_a_special_function_or_a_division(name, costly):
    assert sketched(name).costly is costly


@pytest.mark.parametrize(
    "name", ["swish", "dyt", "prelu", "quadratic_terms", "threshold", "trunc_exp", "logit"]
)
def test_contenders_agree(name):
    each = subject(name)
    data = subjects.data_for(each.sketch, Setting(4096))
    mode = "forward+backward"
    expected = subjects.values(subjects.generated(each), each.sketch, data, mode)
    rivals = [*subjects.eager(each.sketch), *subjects.native(each.sketch)]
    for rival in rivals:
        found = subjects.values(rival, each.sketch, data, mode)
        assert not subjects.differs(expected, found), rival
    wrong = [tensor + 0.01 * tensor.abs().mean() for tensor in expected]
    assert subjects.differs(expected, wrong)


def test_a_native_operator_that_computes_something_else_is_left_out(monkeypatch, quick):
    monkeypatch.setitem(subjects.OPERATORS, "mish", ("F.silu", torch.nn.functional.silu))
    (result,) = measure(subject("mish"), Setting(8192), Options(False, 1e-3, modes=("forward",)))
    assert dict(result.missing) == {"native": "F.silu: it gives other gradients"}
    assert result.time("native") is None


# --- memory ----------------------------------------------------------------------------------


def test_saved_storages_count_once_and_parameters_not():
    x = torch.randn(100, requires_grad=True)
    weight = torch.randn(100, requires_grad=True)
    assert saved_bytes(lambda: x * weight) == 800
    assert saved_bytes(lambda: x * weight, [weight]) == 400
    assert saved_bytes(lambda: torch.tanh(x * x[:])) == 800  # x and the result
    assert saved_bytes(lambda: x + 1) == 0


def test_saved_for_backward():
    saved = saved_for_backward(subject("mish"), Setting(4096))
    assert saved == Saved("mish", "float32", (("generated", 4.0), ("eager", 16.0), ("native", 4.0)))


# --- timing ----------------------------------------------------------------------------------


def test_contenders_take_turns():
    log: list[str] = []

    def sample(name: str, seconds: float):
        def run(calls: int) -> float:
            log.append(name)
            return calls * seconds

        return run

    looks = {"a": 1e-3, "b": 1e-2, "c": 2.0}
    samples = {name: sample(name, seconds) for name, seconds in looks.items()}
    series = interleaved(samples, looks, budget=0.0, single=["a"])
    rounds = [log[i : i + 3] for i in range(0, len(log), 3)]
    assert len(rounds) == measuring.ROUNDS[0]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert {name: each.calls for name, each in series.items()} == {"a": 1, "b": 1, "c": 1}
    assert series["b"].quartiles == pytest.approx((1e-2,) * 3)


def test_short_calls_are_repeated_within_a_sample():
    series = interleaved({"a": lambda calls: calls * 1e-6}, {"a": 1e-6}, budget=1.0)["a"]
    assert series.calls == pytest.approx(measuring.SAMPLE / 1e-6, abs=1)
    assert len(series.seconds) == measuring.ROUNDS[1]
    assert series.quartiles[1] == pytest.approx(1e-6)


def test_a_sample_warms_up_and_a_backward_pass_gets_a_graph_of_its_own():
    log: list[str] = []
    names = {"log": log}
    CpuClock().sample(Statement("log.append('call')", "log.append('setup')", names))(2)
    assert log == ["setup", "call", "call", "call"]
    log.clear()
    CpuClock().sample(Statement("log.append('call')", "log.append('setup')", names, False))(1)
    assert log == ["setup", "call"]


def test_modes_ask_for_what_they_say():
    each = subject("mish")
    data = subjects.data_for(each.sketch, Setting(64))
    mine = subjects.generated(each)
    found = {
        mode: subjects.statement(mine, each.sketch, data, mode)
        for mode in ("forward", "plain", "no_grad", "forward+backward", "backward")
    }
    assert found["plain"].text == found["forward"].text == "f(a0)"
    assert not found["plain"].names["a0"].requires_grad
    assert found["no_grad"].text == "with no_grad():\n    f(a0)"
    assert "f(a0)" in found["forward+backward"].text
    assert found["backward"].setup == "y = f(a0)"
    assert "f(a0)" not in found["backward"].text
    assert not found["backward"].repeatable
    assert found["backward"].names["a0"].requires_grad


def test_measured_in_every_mode(quick):
    results = measure(subject("dyt"), Setting(8192, "bfloat16"), QUICK)
    assert [result.mode for result in results] == ["forward", "forward+backward"]
    for result in results:
        assert {time.contender for time in result.times} == {"generated", "eager", "limit"}
        assert result.moved > 0
        assert result.speedup
    small = measure(subject("mish"), Setting(64), QUICK)
    assert [result.mode for result in small] == ["no_grad", "plain", "forward+backward"]
    assert {time.contender for time in small[0].times} == {
        "generated",
        "eager",
        "native",
        "F.silu",
    }


# --- what is written -------------------------------------------------------------------------


REPORT = Report(
    (("torch", "2.13"),),
    (
        made(generated=100, eager=900, native=300, limit=50),
        made("relu", False, generated=60, eager=60, limit=50),
    ),
    (Saved("mish", "float32", (("generated", 4.0), ("eager", 16.0))),),
)


def test_json_holds_times_and_ratios_and_is_read_back():
    text = to_json(REPORT)
    content = json.loads(text)
    assert set(content) == {"format", "environment", "results", "memory"}
    first = content["results"][0]
    assert first["rival"] == "native"
    assert first["rival_over_generated"] == pytest.approx(3)
    assert first["generated_over_limit"] == pytest.approx(2)
    assert set(first["seconds"]["generated"]) == {
        "form", "median", "low", "high", "rounds", "calls",
    }  # fmt: skip
    assert from_json(text) == REPORT
    with pytest.raises(ValueError, match="format 2"):
        from_json(json.dumps({"format": 2}))


def test_a_report_is_renewed_by_another():
    newer = Report((("torch", "3"),), (made(generated=10, eager=900),))
    merged = REPORT.merged(newer)
    assert [result.name for result in merged.results] == ["mish", "relu"]
    assert merged.results[0].time("generated").median == pytest.approx(10e-6)
    assert merged.environment == newer.environment
    assert merged.memory == REPORT.memory


def test_tables():
    times, memory = grids(REPORT)
    setting = "2^20 elements, float32, 1 thread"
    assert times.title == f"forward+backward: {setting}, microseconds per call"
    head = dict(zip(times.head, times.rows[0], strict=True))
    assert head["formula"] == "mish"
    assert head["native"] == "300 ±10%"
    assert head["rival/generated"] == "3.00x"
    assert head["generated/limit"] == "2.00x"
    means = {row[0]: row[-2:] for row in times.rows[2:]}
    assert means == {
        "geometric mean": ("1.73x", "1.55x"),
        "of the costly ones": ("3.00x", "2.00x"),
    }
    assert memory.rows == (("mish", "float32", "4.0", "16.0", "", "4.0x"),)
    assert "| mish | 100 ±10% | 900 ±10% | 300 ±10% |" in markdown(times)


def test_a_gpus_table_has_the_bandwidth():
    import dataclasses

    setting = Setting(1 << 26, device="cuda")
    result = dataclasses.replace(REPORT.results[0], setting=setting)
    shown = grid(setting, "backward", [result])
    head = dict(zip(shown.head, shown.rows[0], strict=True))
    assert head["of copy"] == "50%"
    assert head["GB/s"] == f"{(20 << 20) / 100e-6 / 1e9:.0f}"


def test_bars_name_who_misses_them(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from bars import bars_table, cpu_bars

    bars = {bar.text: bar for bar in cpu_bars(REPORT)}
    rival = bars["float32, 2^20, one thread: each at least 0.95 of the rival's speed"]
    assert rival.met
    assert rival.measured == "1.00 (relu)"
    slow = Report((), (made(generated=1000, eager=900, limit=100),))
    bars = cpu_bars(slow)
    assert [bar.met for bar in bars] == [False] * 4
    assert bars[0].misses == ("mish 0.90",)
    assert bars[3].misses == ("mish 10.00",)
    assert "| no | mish 0.90 |" in bars_table(bars)


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    from autofn.bench.plot import plot

    plot(REPORT, tmp_path / "times.png")
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")


# --- the command -----------------------------------------------------------------------------


def test_the_command_prints_tables_and_writes_json(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(ROOT)
    file = tmp_path / "bench.json"
    result = call(
        "generated/relu", "mish", "--size", "2^13,64", "--no-compile", "--seconds", "0.001",
        "--fresh-memory", "--json", str(file),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "forward+backward: 2^13 elements, float32, 1 thread" in result.output
    assert "generated/F.silu" in result.output
    assert "kept between forward and backward" in result.output
    report = from_json(file.read_text())
    assert {each.name for each in report.results} == {"relu", "mish"}
    assert {each.setting.size for each in report.results} == {64, 8192}
    assert dict(report.environment)["freed memory"] == "left to malloc"


def test_an_expression_is_generated_for_the_purpose(tmp_path, monkeypatch, quick):
    monkeypatch.chdir(tmp_path)
    result = call(
        "--expr", "x*coth(y)", "--name", "odd", "--size", "8192", "--no-compile",
        "--fresh-memory", "--seconds", "0.001",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "odd" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mishh"], "did you mean mish?"),
        (["mish", "--size", "many"], "'many' is no number"),
        (["mish", "--dtype", "int8"], "'int8' is no dtype here"),
        (["mish", "-o", "nowhere"], "does not exist"),
        (["mish", "--json", "no/such/folder/x.json"], "is no folder"),
        ([], "name a formula"),
    ],
)
def test_what_cannot_be_measured_is_said(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = call("mish", "--device", "cuda")
    assert result.exit_code == 2
    assert "no CUDA GPU" in result.output


def test_another_formulas_package_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mish.py").write_text(
        "from autofn import formula\n\n@formula\ndef mish(x):\n    return 2 * x\n"
    )
    result = call("mish.py", "-o", str(ROOT / "generated"))
    assert result.exit_code == 2
    assert "generated from another formula" in result.output


def test_a_missing_matplotlib_is_said_before_anything_is_measured(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *arguments, **more)

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.chdir(ROOT)
    result = call("mish", "--plot", "x.png")
    assert result.exit_code == 2
    assert "pip install 'autofn[bench]'" in result.output
    assert "forward" not in result.output
