"""Made-up lines of every form, plausible enough to draw."""

import dataclasses

from spec_jax.core import theory
from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.experiments.choice import Choice
from spec_jax.experiments.record import Record
from spec_jax.experiments.trace import Part, PartTimes, Step, TraceRecord

WHERE = {
    "pair": "tiny",
    "device": "cpu: Example",
    "cpu_threads": 1,
    "versions": {"python": "3.12.1", "jax": "0.12.0"},
    "seed": 0,
    "date": "2026-01-02T00:00:00+00:00",
}
FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
COSTS = {"small": (0.05, 1.1), "base": (0.09, 1.1), "large": (0.17, 1.15)}
ALPHAS = {"small": 0.72, "base": 0.77, "large": 0.81, "bigram": 0.3}


def record(draft="small", task="ende", temperature=0.0, gamma=5, batch=1, **changes):
    """A record that theory and costs agree with."""
    c, verify = COSTS.get(draft, (0.01, 1.1))
    verify *= 1 + 0.06 * (gamma - 4) + 0.12 * (batch - 1)
    alpha = ALPHAS[draft] - 0.13 * temperature - (0.1 if task == "summarize" else 0)
    formula = theory.speedup(alpha, gamma, c, verify)
    bleu = {"bleu": 31.04, "signature": "s"}
    line = Record(
        **WHERE,
        task=task,
        draft="bigram" if draft == "bigram" else "model",
        rule="token",
        temperature=temperature,
        gamma=gamma,
        batch=batch,
        policy=FILTERS,
        dtype="bfloat16",
        plain_dtype="float32",
        num_examples=64,
        inputs_cut=0,
        alpha=alpha,
        alpha_stderr=0.0123,
        alpha_tokens=1000,
        c=c,
        verify_cost=verify,
        tokens_per_run=theory.expected_tokens(alpha, gamma) * 0.95,
        accepted_per_drafted=0.4,
        acceptance_by_position=tuple(0.97 * alpha**i for i in range(1, gamma + 1)),
        tokens_plain=1000,
        tokens_speculative=1000,
        tokens_per_second_plain=600.4,
        tokens_per_second_speculative=600.4 * formula * 0.85,
        speedup=formula * 0.85,
        speedup_formula=formula,
        speedup_of_formula=0.85,
        identical=1.0 if temperature == 0 else None,
        identical_across_dtypes=None,
        differences=(),
        metrics={"plain": bleu, "speculative": bleu},
        compile_seconds=2.0,
        repeats=3,
    )
    return dataclasses.replace(with_name(line, draft), **changes)


def with_name(line, name):
    """A record with the name of its draft, where records have one."""
    known = {field.name for field in dataclasses.fields(line)}
    if "draft_name" in known:
        return dataclasses.replace(line, draft_name=name)
    return dataclasses.replace(line, draft=name)


def alpha(draft="small", task="ende", temperature=0.0, lenience=1.0):
    """A line of `spec-jax alpha`, or with less lenience of `spec-jax lenience`."""
    value = ALPHAS[draft] - 0.13 * temperature - (0.1 if task == "summarize" else 0)
    return AlphaRecord(
        **WHERE,
        task=task,
        draft_name=draft,
        temperature=temperature,
        lenience=lenience,
        policy=FILTERS,
        alpha=value + (1 - value) * (1 - lenience) * 0.5,
        alpha_stderr=0.008,
        tokens=10_000,
        num_examples=400,
        dtype="float32",
    )


def choice(draft="small", task="ende", temperature=0.0):
    """A line of `spec-jax choose-gamma`."""
    c, verify = COSTS[draft]
    value = ALPHAS[draft] - 0.13 * temperature
    gammas = range(1, 9)
    verify_costs = {gamma: verify * (1 + 0.06 * (gamma - 4)) for gamma in gammas}
    speeds = {g: theory.speedup(value, g, c, verify_costs[g]) for g in gammas}
    best = max(speeds, key=speeds.get)
    return Choice(
        **WHERE,
        task=task,
        draft="model",
        draft_name=draft,
        temperature=temperature,
        batch=1,
        policy=FILTERS,
        dtype="bfloat16",
        plain_dtype="float32",
        num_examples=8,
        alpha=value,
        alpha_stderr=0.02,
        alpha_tokens=200,
        draft_costs={gamma: gamma * c for gamma in gammas},
        verify_costs=verify_costs,
        start_plain=1.0,
        start_speculative=1.3,
        tokens_per_run={g: theory.expected_tokens(value, g) for g in gammas},
        formula=speeds,
        speeds=speeds,
        gamma=best,
        speed=speeds[best],
        speed_low=speeds[best] - 0.1,
        speed_high=speeds[best] + 0.1,
        c=c,
    )


def trace(gamma=7, number=1):
    """A line of `spec-jax trace`; gamma 0 is plain decoding."""
    steps = (
        Step(7, (Part("accepted", "Klicken Sie auf die Schaltfläche", 7),
                 Part("bonus", ",", 1))),
        Step(7, (Part("accepted", " um die", 2), Part("rejected", " Daten", 1),
                 Part("correction", " Datei", 1))),
        Step(7, (Part("rejected", " zu", 1), Part("correction", " <b>&", 1))),
        Step(7, (Part("accepted", " zu speichern.", 4),)),
    )  # fmt: skip
    if gamma == 0:
        steps = tuple(Step(0, (Part("target", f" {i}", 1),)) for i in range(16))
    return TraceRecord(
        **WHERE,
        task="ende",
        draft="model" if gamma else "plain",
        rule="token",
        gamma=gamma,
        temperature=0.0,
        dtype="float32",
        number=number,
        source="Click the button to <save> the file.",
        output="Klicken Sie auf die Schaltfläche, um die Datei <b>& zu speichern.",
        tokens=16,
        runs=len(steps),
        steps=steps,
        times=PartTimes(0.004, 0.001 * bool(gamma), 0.0002 * bool(gamma), 0.0026),
        seconds=0.04 if gamma == 0 else 0.02,
        repeats=3,
    )


def every_form():
    """Lines that fill every section of a report."""
    lines = []
    for task in ("ende", "summarize"):
        for t in (0.0, 1.0):
            for draft in ("small", "base", "large"):
                gammas = (1, 3, 5, 7) if draft == "small" else (5,)
                lines += [record(draft, task, t, gamma) for gamma in gammas]
                lines += [alpha(draft, task, x) for x in (t, t + 0.5)]
                lines.append(choice(draft, task, t))
            lines += [record("small", task, t, 3, batch) for batch in (2, 4, 8)]
            lines.append(record("bigram", task, t, 3))
            lines += [alpha("bigram", task, t), alpha("small", task, t, 0.3)]
    lines += [alpha(d, "ende", 1.0, l) for d in ("small", "base") for l in (0.5, 0.1)]
    lines += [trace(gamma) for gamma in (7, 3, 0)]
    return lines


def write(path, lines):
    """A file of lines."""
    path.write_text("".join(line.to_json() + "\n" for line in lines), "utf-8")
    return path
