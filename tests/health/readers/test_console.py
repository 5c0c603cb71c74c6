"""Console logs: what stands around metric lines, what happens to them, and whose they are."""

from __future__ import annotations

import math

import pytest

from sweep.errors import ConfigError
from sweep.health.readers.console import PATIENCE_LINES, read_console
from sweep.health.readers.logged_run import LoggedRun

RAY = "\x1b[36m(TaskRunner pid=77)\x1b[0m "


def runs(text: str) -> list[LoggedRun]:
    return read_console(text.encode().splitlines())


def rows(text: str) -> list[tuple[int, dict[str, float]]]:
    (run,) = runs(text)
    return list(run.table.rows())


def test_a_plain_line_is_read_with_all_its_values() -> None:
    assert rows("step:3 - a/b:0.5 - critic/lr:1e-05 - c:-2") == [(3, {"a/b": 0.5, "critic/lr": 1e-05, "c": -2.0})]


def test_a_line_without_metrics_or_a_mention_of_a_step_is_no_run() -> None:
    for text in ("global_step:12 - x:1", "Saving /ck/global_step:3", "timestep:4 - a:1", ""):
        with pytest.raises(ConfigError, match=r"sweep\.doctor"):
            runs(text)


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("np.float64(0.0479)", 0.0479),
        ("np.int32(2)", 2.0),
        ("numpy.float32(1e-06)", 1e-06),
        ("tensor(0.5)", 0.5),
        ("tensor(0.25, device='cuda:0')", 0.25),
        ("-1.5e-08", -1.5e-08),
        ("inf", math.inf),
        ("-inf", -math.inf),
        (".5", 0.5),
    ],
)
def test_numbers_are_read_however_they_are_printed(printed: str, value: float) -> None:
    assert rows(f"step:1 - a:{printed} - b:1.0") == [(1, {"a": value, "b": 1.0})]


@pytest.mark.parametrize("printed", ["nan", "NaN", "np.float64(nan)"])
def test_nan_is_a_value(printed: str) -> None:
    assert math.isnan(rows(f"step:1 - a:{printed}")[0][1]["a"])


@pytest.mark.parametrize(
    "around",
    [
        RAY + "{}",
        "(TaskRunnerV1 pid=4378, ip=10.0.0.7) {}",
        "[36m(main_task pid=1)[0m {}",
        "2026-01-01 12:00:00,123 INFO {}",
        "Training Progress:   2%|x    | 12/600 [04:10<3:20:00, 20.4s/it]{}",
        "\rTraining Progress:   2%|x    | 12/600\r{}",
        "{}Training Progress:   3%|x    | 13/600 [04:10<3:20:00, 20.4s/it]",
        "{} [repeated 3x across cluster]",
        "{}\x1b[32m [repeated 3x across cluster] (Ray deduplicates logs by default.)\x1b[0m",
    ],
)
def test_what_stands_around_a_line_is_no_part_of_it(around: str) -> None:
    line = "step:12 - a/b:0.5 - c:0.25"
    text = around.format(line)
    assert [list(r.table.rows()) for r in read_console(text.replace("\r", "\n").encode().split(b"\n"))] == [
        [(12, {"a/b": 0.5, "c": 0.25})]
    ]


LONG = (
    "step:7 - actor/grad_norm:0.4125 - critic/score/mean:-0.104 - val-core/x/acc/mean@1:np.float64(0.0479) - lr:1e-06"
)


@pytest.mark.parametrize("cut", range(len("step:7 - a"), len(LONG)))
@pytest.mark.parametrize("prefix", ["", RAY, "(TaskRunner pid=77) "])
def test_a_line_that_was_wrapped_anywhere_is_whole_again(cut: int, prefix: str) -> None:
    assert rows(f"{prefix}{LONG}") == rows(f"{prefix}{LONG[:cut]}\n{prefix}{LONG[cut:]}\n")


@pytest.mark.parametrize("cut", range(len("step:7 - a"), len(LONG)))
def test_wrapping_that_ate_the_spaces_at_the_break_loses_nothing(cut: int) -> None:
    assert rows(LONG) == rows(f"{LONG[:cut].rstrip()}\n{LONG[cut:].lstrip()}\n")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_line_that_was_wrapped_several_times_by_a_terminal_is_whole_again(width: int) -> None:
    text = f"(TaskRunner pid=77) {LONG}"
    wrapped = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    assert rows(wrapped) == rows(LONG)


def test_noise_between_the_pieces_of_a_line_is_passed_over() -> None:
    noise = "(WorkerDict pid=9) [rank-1]: Saving model to /ck/global_step_7/actor/m_1.pt\nTraining Progress: 2%|x\n"
    assert rows(f"{RAY}{LONG[:40]}\n{noise}{RAY}{LONG[40:]}") == rows(LONG)


def test_a_piece_that_comes_too_late_is_not_waited_for() -> None:
    noise = "(WorkerDict pid=9) busy\n" * (PATIENCE_LINES + 1)
    (run,) = runs(f"{RAY}{LONG[:40]}\n{noise}{RAY}{LONG[40:]}")
    assert len(run.table.columns) < 4 and run.notes


@pytest.mark.parametrize("noise", ["Done.", "INFO done - all good", "12", "a b - c:1", "loss - value - other"])
def test_other_lines_never_become_part_of_a_whole_line(noise: str) -> None:
    assert rows(f"step:1 - a:0.5 - b:1.5\n\n{noise}\nstep:2 - a:0.5 - b:1.5") == [
        (1, {"a": 0.5, "b": 1.5}),
        (2, {"a": 0.5, "b": 1.5}),
    ]


def test_a_line_that_is_cut_off_keeps_its_other_values_and_says_so() -> None:
    (run,) = runs("step:1 - a:0.5 - critic/scor")
    assert list(run.table.rows()) == [(1, {"a": 0.5})]
    assert "cut off" in run.notes[0]


def test_a_zero_with_three_decimals_is_marked_as_rounded_and_a_true_zero_is_not() -> None:
    (run,) = runs("step:1 - lr:0.000 - x:0.0 - y:0 - z:0.001\nstep:2 - lr:0.000 - x:0.0 - y:0 - z:0.000")
    assert run.table.low_precision == {"lr", "z"}


def test_processes_that_log_at_the_same_time_are_runs_of_their_own() -> None:
    text = "".join(f"(A pid=1) step:{n} - a:{n}.5\n(B pid=2) step:{n} - a:{-n}.5\n" for n in range(1, 6))
    found = runs(text)
    assert [run.label for run in found] == ["A pid=1", "B pid=2"]
    assert [m["a"] for _, m in found[1].table.rows()] == [-1.5, -2.5, -3.5, -4.5, -5.5]


def test_a_process_that_goes_on_where_another_ended_is_the_same_run_resumed() -> None:
    first = "".join(f"(A pid=1) step:{n} - a:1.0\n" for n in range(1, 11))
    second = "".join(f"(A pid=2) step:{n} - a:2.0\n" for n in range(8, 13))
    (run,) = runs(first + second)
    assert [(s, m["a"]) for s, m in run.table.rows()] == [(n, 1.0) for n in range(1, 8)] + [
        (n, 2.0) for n in range(8, 13)
    ]
    assert "resumed at step 8" in run.notes[0]


def test_a_log_with_two_runs_one_after_the_other_gives_two() -> None:
    one = "".join(f"step:{n} - a:{n}.0\n" for n in range(1, 6))
    assert [len(run.table) for run in runs(one + one)] == [5, 5]


def test_final_metrics_of_the_last_step_join_its_row() -> None:
    assert rows("step:9 - a:1.0\nstep:10 - a:2.0\nstep:10 - val/x:0.5") == [
        (9, {"a": 1.0}),
        (10, {"a": 2.0, "val/x": 0.5}),
    ]


def test_rows_with_and_without_validation_alternate_without_loss() -> None:
    lines = [
        f"step:{n} - a:{n}.25 - b:np.int32({n})" + (f" - val-core/x:{n}.5" if n % 5 == 0 else "") for n in range(1, 60)
    ]
    expected = [
        (n, {"a": n + 0.25, "b": float(n), **({"val-core/x": n + 0.5} if n % 5 == 0 else {})}) for n in range(1, 60)
    ]
    assert rows("\n".join(lines)) == expected


def test_old_names_with_brackets_are_names() -> None:
    assert rows("step:1 - actor/lr(1e-4):0.010 - critic/kl:0.002")[0][1] == {"actor/lr(1e-4)": 0.01, "critic/kl": 0.002}


def test_a_metric_named_twice_in_a_line_keeps_its_last_value() -> None:
    assert rows("step:1 - a:1.0 - b:2.0 - a:3.0\nstep:2 - a:1.0 - b:2.0 - a:4.0")[1] == (2, {"a": 4.0, "b": 2.0})
