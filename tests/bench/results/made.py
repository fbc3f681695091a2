"""Result files in the forms of the three tools, as short as they can be and still be read."""


def vllm(rate=4.0, tpot=40.0):
    latencies = {
        f"{how}_{name}_ms": value
        for name, value in (("ttft", 3 * tpot), ("tpot", tpot), ("itl", tpot), ("e2el", 60 * tpot))
        for how in ("mean", "median", "p99")
    }
    return {
        "endpoint_type": "vllm",
        "request_rate": str(rate),
        "completed": 20,
        "failed": 1,
        "duration": 5.0,
        "request_throughput": 4.0,
        "output_throughput": 256.0,
        "request_goodput": 3.5,
        "total_input_tokens": 320,
        "total_output_tokens": 1280,
        "max_concurrent_requests": 9,
        **latencies,
    }


def _distribution(value, count=20):
    figures = {"mean": value, "median": value, "max": value, "count": count, "total_sum": value * count}
    return {"successful": {**figures, "percentiles": {"p99": 2 * value}}}


def guidellm_run(rate=4.0, tpot=40.0, strategy=None):
    return {
        "config": {"strategy": strategy or {"type_": "constant", "rate": rate}},
        "scheduler_metrics": {},
        "duration": 5.0,
        "metrics": {
            "request_totals": {"successful": 20, "errored": 1, "incomplete": 2, "total": 23},
            "requests_per_second": _distribution(4.0),
            "output_tokens_per_second": _distribution(256.0),
            "request_concurrency": _distribution(9.0),
            "prompt_token_count": _distribution(16.0),
            "output_token_count": _distribution(64.0),
            "time_to_first_token_ms": _distribution(3 * tpot),
            "inter_token_latency_ms": _distribution(tpot),
            "request_latency": _distribution(2.4),
        },
    }


def guidellm(*runs):
    return {"benchmarks": list(runs or [guidellm_run()])}


def aiperf(rate=4.0, tpot=40.0, unit="ms"):
    def latency(value):
        scale = {"ms": 1.0, "sec": 1e-3}[unit]
        return {"unit": unit, "avg": value * scale, "p50": value * scale, "p99": 2 * value * scale}

    loadgen = {"concurrency": 9} if rate is None else {"request_rate": rate}
    return {
        "schema_version": "1.1",
        "input_config": {
            "warmup": {"request_rate": 99.0},
            "loadgen": {**loadgen, "warmup_request_rate": 99.0},
        },
        "request_throughput": {"unit": "requests/sec", "avg": 4.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 256.0},
        "request_count": {"unit": "requests", "avg": 20.0},
        "error_request_count": {"unit": "requests", "avg": 1.0},
        "benchmark_duration": {"unit": "sec", "avg": 5.0},
        "total_osl": {"unit": "tokens", "avg": 1280.0},
        "time_to_first_token": latency(3 * tpot),
        "inter_token_latency": latency(tpot),
        "request_latency": latency(60 * tpot),
    }
