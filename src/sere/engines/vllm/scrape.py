"""Read a running server's ``sere_*`` series from outside: what ``sere doctor --url`` shows."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sere.errors import EngineError

_SAMPLE: Final = re.compile(r"(sere_\w+)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DECODING: Final = ("decode", "mixed")


@dataclass(frozen=True)
class ServerReport:
    """What a server has done since it started, over layer steps with decode rows, first worker.

    Attributes:
        policies: Policy that each worker reported, by ``engine/worker``; several while it is switched.
        layers: Number of re-routed layers.
        steps: Layer steps with decode rows.
        distinct_before: Distinct experts of the router's choice, mean per layer step; NaN without steps.
        distinct_after: Distinct experts after the policy, mean per layer step; NaN without steps.
        rerouted: Share of slots that were re-routed; NaN without steps.
        decode_rows: Decode rows, mean per layer step; NaN without steps.

    """

    policies: dict[str, str]
    layers: int
    steps: int
    distinct_before: float
    distinct_after: float
    rerouted: float
    decode_rows: float


def read_server(url: str, timeout: float = 10.0) -> ServerReport:
    """Ask a server for its metrics.

    Args:
        url: Address of the server, ``http://host:port``.
        timeout: Seconds to wait.

    Raises:
        EngineError: If there is no server, or it does not run the plugin.

    """
    return parse(_metrics(url, timeout), url)


def parse(text: str, url: str = "the server") -> ServerReport:
    """Read the text of a server's ``/metrics``; errors as :func:`read_server`."""
    sums: dict[str, float] = {}
    layers: set[str] = set()
    policies: dict[str, str] = {}
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is None:
            continue
        name, labels, value = found[1], dict(_LABEL.findall(found[2])), float(found[3])
        if name == "sere_policy_info" and value:
            policies[f"{labels['engine']}/{labels['worker']}"] = labels["policy"]
        elif name.endswith("_total") and labels.get("worker") == "0":
            layers.add(labels["layer"])
            if labels["phase"] in _DECODING:
                sums[name] = sums.get(name, 0.0) + value
    if not policies:
        raise EngineError(
            f"{url} publishes no sere_* series. Start it with the sere key in --additional-config and "
            "without --disable-log-stats; the first figures come after VLLM_LOG_STATS_INTERVAL seconds."
        )
    steps = sums.get("sere_steps_total", 0.0)

    def per(name: str, whole: float) -> float:
        return sums.get(f"sere_{name}_total", 0.0) / whole if whole else float("nan")

    return ServerReport(
        policies=policies,
        layers=len(layers),
        steps=int(steps),
        distinct_before=per("experts_before", steps),
        distinct_after=per("experts_after", steps),
        rerouted=per("slots_rerouted", sums.get("sere_slots_total", 0.0)),
        decode_rows=per("decode_rows", steps),
    )


def _metrics(url: str, timeout: float) -> str:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    if parts.scheme not in kinds or not parts.hostname:
        raise EngineError(f"{url!r} is no address of a server. Write http://host:port.")
    try:
        connection = kinds[parts.scheme](parts.hostname, parts.port, timeout=timeout)
        connection.request("GET", f"{parts.path.rstrip('/')}/metrics")
        answer = connection.getresponse()
        text = str(answer.read(), "utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise EngineError(f"no answer from {url}: {error}. Check the address and that it is up.") from error
    if answer.status != http.HTTPStatus.OK:
        raise EngineError(f"{url}/metrics answered {answer.status} {answer.reason}. Is it a vLLM server?")
    return text
