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


@dataclass(frozen=True)
class Totals:
    """Counters since the server's start, over layer steps with decode rows, first worker.

    Attributes:
        policies: Policy that each worker reported, by ``engine/worker``.
        layers: For each re-routed layer by name, counter to sum: ``steps``, ``decode_rows``, ``slots``,
            ``slots_rerouted``, ``experts_before``, ``experts_after``.

    """

    policies: dict[str, str]
    layers: dict[str, dict[str, float]]

    @classmethod
    def parse(cls, text: str, url: str = "the server") -> Totals:
        """Read the text of a server's ``/metrics``.

        Raises:
            EngineError: If the server does not run the plugin.

        """
        layers: dict[str, dict[str, float]] = {}
        policies: dict[str, str] = {}
        for line in text.splitlines():
            found = _SAMPLE.fullmatch(line)
            if found is None:
                continue
            name, labels, value = found[1], dict(_LABEL.findall(found[2])), float(found[3])
            if name == "sere_policy_info" and value:
                policies[f"{labels['engine']}/{labels['worker']}"] = labels["policy"]
            elif name.endswith("_total") and labels.get("worker") == "0":
                sums = layers.setdefault(labels["layer"], {})
                if labels["phase"] in _DECODING:
                    field = name.removeprefix("sere_").removesuffix("_total")
                    sums[field] = sums.get(field, 0.0) + value
        if not policies:
            raise EngineError(
                f"{url} publishes no sere_* series. Start it with the sere key in --additional-config and "
                "without --disable-log-stats; the first figures come after VLLM_LOG_STATS_INTERVAL seconds."
            )
        return cls(policies, layers)

    def every(self) -> dict[str, float]:
        """Sum over layers."""
        sums: dict[str, float] = {}
        for layer in self.layers.values():
            for field, value in layer.items():
                sums[field] = sums.get(field, 0.0) + value
        return sums

    def since(self, before: Totals) -> Totals:
        """Give what was added after ``before`` was read."""
        grown = {
            name: {field: value - before.layers.get(name, {}).get(field, 0.0) for field, value in now.items()}
            for name, now in self.layers.items()
        }
        return Totals(self.policies, grown)


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
    found = Totals.parse(text, url)
    every = found.every()
    steps = every.get("steps", 0.0)

    def per(name: str, whole: float) -> float:
        return every.get(name, 0.0) / whole if whole else float("nan")

    return ServerReport(
        policies=found.policies,
        layers=len(found.layers),
        steps=int(steps),
        distinct_before=per("experts_before", steps),
        distinct_after=per("experts_after", steps),
        rerouted=per("slots_rerouted", every.get("slots", 0.0)),
        decode_rows=per("decode_rows", steps),
    )


def read_totals(url: str, timeout: float = 10.0) -> Totals:
    """Ask a server for its counters as they stand; arguments and errors as :func:`read_server`."""
    return Totals.parse(_metrics(url, timeout), url)


def is_plain(url: str, timeout: float = 10.0) -> bool:
    """Whether the server at ``url`` publishes none of the plugin's series: it runs without it."""
    return "sere_" not in _metrics(url, timeout)


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
