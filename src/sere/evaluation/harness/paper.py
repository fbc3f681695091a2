"""The paper's eight tasks as the harness can run them, with the paper's generation settings.

What the authors ran is in their repository (JL-Cheng/SERE, ``experiments/opencompass``): OpenCompass, whose
prompts the harness does not have. So answers are asked for in the same manner (chat, reasons before the
answer, sampled), and scores are comparable between policies, not with the paper's table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

PAPER: Final = "paper"
GENERATION: Final[Mapping[str, Any]] = {
    "do_sample": True,
    "temperature": 0.7,
    "top_p": 0.8,
    "top_k": 20,
    "repetition_penalty": 1.05,
    "max_gen_toks": 1024,
}
"""The authors' settings for Qwen1.5-MoE, at a batch size of 16."""
_KINDS = ("1dc", "2da", "2dm", "2ds", "3da", "3ds", "4da", "4ds", "5da", "5ds")
ARITHMETIC: Final = 40
"""Examples of each of the ten kinds of arithmetic: 400 in all, Math401 has 401."""
LIMITS: Final[Mapping[str, int]] = {f"arithmetic_{kind}": ARITHMETIC for kind in _KINDS}
"""Most examples of a task."""

_MATH = (
    "algebra",
    "counting_and_prob",
    "geometry",
    "intermediate_algebra",
    "num_theory",
    "prealgebra",
    "precalc",
)
_EXACT = {
    "metric": "exact_match",
    "aggregation": "mean",
    "higher_is_better": True,
    "ignore_case": True,
    "ignore_punctuation": True,
}


def _written(question: str, target: str, answer: str) -> dict[str, Any]:
    """Turn a task of given answers into one of writing, without examples in the prompt.

    Args:
        question: Template of the prompt.
        target: Template of the right answer.
        answer: Regular expression with one group; its last match is what was answered.

    """
    return {
        "output_type": "generate_until",
        "description": "",
        "num_fewshot": 0,
        "doc_to_text": question,
        "doc_to_target": target,
        "doc_to_choice": None,
        "target_delimiter": "",
        "generation_kwargs": {"until": []},
        "metric_list": [dict(_EXACT)],
        "filter_list": [
            {
                "name": "flexible-extract",
                "filter": [
                    {"function": "regex", "regex_pattern": answer, "group_select": -1},
                    {"function": "take_first"},
                ],
            }
        ],
    }


_CMMLU = _written(
    "请回答下面的单项选择题。先一步一步地思考，最后一行只写：答案是X，X为A、B、C、D之一。\n\n"  # noqa: RUF001
    "{{Question.strip()}}\nA. {{A}}\nB. {{B}}\nC. {{C}}\nD. {{D}}\n",
    "{{Answer}}",
    r"答案\W*(?:是|为)?\W*([ABCD])",
)
_BOOLQ = _written(
    "{{passage}}\n\nQuestion: {{question}}?\nThink step by step. End with the line 'The answer is yes.' or "
    "'The answer is no.'\n",
    "{{['no', 'yes'][label]}}",
    r"(?i)answer is\W*(yes|no)\b",
)
_ARITHMETIC = _written("{{context}}", "{{completion.strip()}}", r"(-?\d+)")


def groups(known: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Give the eight tasks as groups for the harness, by the paper's names.

    Args:
        known: Names of the harness's tasks.

    """
    members: dict[str, list[dict[str, Any]]] = {
        "CMMLU": [{"task": name, **_CMMLU} for name in known if name.startswith("cmmlu_")],
        "BoolQ": [{"task": "boolq", **_BOOLQ}],
        "BBH": [{"task": name} for name in known if name.startswith("bbh_cot_fewshot_")],
        "MATH": [{"task": f"minerva_math_{kind}"} for kind in _MATH],
        "GSM8K": [{"task": "gsm8k_cot", "num_fewshot": 4}],
        "arithmetic": [{"task": f"arithmetic_{kind}", **_ARITHMETIC} for kind in _KINDS],
        "HumanEval": [{"task": "humaneval_instruct"}],
        "MBPP": [{"task": "mbpp_instruct"}],
    }
    return {name: {"group": f"paper_{name}", "task": tasks} for name, tasks in members.items()}
