"""The answer of /v1/embedding-tier/stats: every field of every line, and what the sums of lines are."""

from __future__ import annotations

from collections.abc import Iterable

from scripted_nodes import ScriptedNodes, data_index, job_config

from api.schemas import ServerTableLoad, TierLoad, TierStats, TierTotals
from coordinator import views
from coordinator.tier_counters import ROW_COUNTS
from geartrain.wire import messages as wire

LIFE = ("num_admitted", "num_rejected", "num_expired", "num_evicted")
MAX_KEY = 2**64 - 1


def table(
    num_rows: int, life: tuple[int, int, int, int], hottest: Iterable[tuple[int, float]], staged_bytes: int = 0
) -> wire.TableStats:
    p99_ms, growth_ms = num_rows / 10, num_rows / 100
    return wire.TableStats(
        num_rows, 100 * num_rows, 2, 2, 9, 5, 0.5, p99_ms, *life, list(hottest), growth_ms, staged_bytes
    )


def two_servers() -> ScriptedNodes:
    """Table a on both servers, table b on the second one only."""
    nodes = ScriptedNodes(num_servers=2)
    of_s0 = {"a": table(10, (12, 3, 2, 0), [(MAX_KEY, 9.0), (5, 4.0)], 100)}
    of_s1 = {"a": table(30, (31, 5, 1, 7), [(6, 8.0), (7, 1.0)], 20), "b": table(0, (0, 0, 0, 0), [(6, 100.0)], 3)}
    for node, incarnation, tables, staged_bytes in (("s0", 100, of_s0, 107), ("s1", 101, of_s1, 25)):
        nodes.core.member(wire.Heartbeat(node, incarnation, wire.ServerStats(tables, staged_bytes, 2, 3)), 1.0)
    return nodes


def test_lines_are_added_up_per_table_and_in_all() -> None:
    tier = views.tier_view(two_servers().core)
    assert [(line["server"], line["table"]) for line in tier["servers"]] == [("s0", "a"), ("s1", "a"), ("s1", "b")]
    assert [tier["servers"][1][name] for name in LIFE] == [31, 5, 1, 7]
    for load in (tier["tables"]["a"], tier["totals"]):
        assert [load[name] for name in LIFE] == [43, 8, 3, 7]
        assert (load["num_rows"], load["bytes"], load["bytes_per_row"]) == (40, 4000, 100.0)
        assert (load["pull_p50_ms"], load["pull_p99_ms"], load["longest_growth_ms"]) == (0.5, 3.0, 0.3)
    assert tier["tables"]["b"]["bytes_per_row"] == 0.0
    assert tier["totals"]["version"] == 3


def test_staged_bytes_are_of_tables_and_a_queue_is_of_a_server() -> None:
    tier = views.tier_view(two_servers().core)
    assert [line["staged_bytes"] for line in tier["servers"]] == [100, 20, 3]
    assert {name: load["staged_bytes"] for name, load in tier["tables"].items()} == {"a": 120, "b": 3}
    assert (tier["totals"]["staged_bytes"], tier["totals"]["staged_dense_bytes"]) == (123, 7 + 2)
    assert [line["queue_length"] for line in tier["servers"]] == [2, 2, 2]
    assert all("queue_length" not in load for load in tier["tables"].values())
    assert tier["totals"]["queue_length"] == 2 + 2, "two servers with three lines"


def test_the_hottest_keys_of_all_servers_are_merged() -> None:
    tier = views.tier_view(two_servers().core)
    assert tier["servers"][0]["hottest_keys"] == [
        {"key": "ffffffffffffffff", "shows": 9.0},
        {"key": "0000000000000005", "shows": 4.0},
    ]
    assert [one["shows"] for one in tier["tables"]["a"]["hottest_keys"]] == [9.0, 8.0, 4.0, 1.0]
    assert tier["totals"]["hottest_keys"][:2] == [
        {"key": "0000000000000006", "shows": 100.0, "table": "b"},
        {"key": "ffffffffffffffff", "shows": 9.0, "table": "a"},
    ]


def test_no_more_hot_keys_are_shown_than_one_server_tells() -> None:
    nodes = ScriptedNodes(num_servers=2)
    for number in range(2):
        hottest = [(2 * key + number, 1.0) for key in range(views.MAX_HOTTEST)]
        stats = wire.ServerStats({"a": table(50, (50, 0, 0, 0), hottest)}, 0, 0, 1)
        nodes.core.member(wire.Heartbeat(f"s{number}", 100 + number, stats), 1.0)
    tier = views.tier_view(nodes.core)
    for load in (tier["tables"]["a"], tier["totals"]):
        assert [int(one["key"], 16) for one in load["hottest_keys"]] == list(range(views.MAX_HOTTEST))


def test_the_answer_has_the_published_shape() -> None:
    for nodes in (two_servers(), ScriptedNodes()):
        tier = views.tier_view(nodes.core)
        TierStats.model_validate(tier, strict=True)
        lines = [*((line, ServerTableLoad) for line in tier["servers"]), (tier["totals"], TierTotals)]
        for load, published in [*lines, *((one, TierLoad) for one in tier["tables"].values())]:
            missing = set(published.model_fields) - set(load)
            assert missing == ({"queue_length"} if published is TierLoad else set())
            assert not set(load) - set(published.model_fields)


def test_the_last_counters_of_a_job_stay_to_be_seen() -> None:
    nodes = ScriptedNodes()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    early = wire.ServerStats({"user": table(1, (1, 0, 0, 0), [])}, 0, 0, 1)
    nodes.message(wire.JobClosed("s0", job, early))
    assert views.tier_view(nodes.core)["servers"] == [], "nobody was asked to close it"
    nodes.never_answer.add("s0")
    nodes.deliver(nodes.core.cancel(job, nodes.now_s))
    nodes.run()
    last = wire.ServerStats({"user": table(9, (9, 0, 0, 0), [])}, 0, 0, 3)
    nodes.message(wire.JobClosed("s0", job, last))
    (line,) = views.tier_view(nodes.core)["servers"]
    assert (line["server"], line["num_rows"], line["pull_rows_per_s"]) == ("s0", 9, 0.0)


class Telling(ScriptedNodes):
    """Servers tell counters while the job runs, and their last ones when it is closed."""

    def _to_node(self, node: str, message: wire.ToNode) -> None:
        if node.startswith("s") and isinstance(message, wire.Apply):
            early = wire.ServerStats({"user": table(1, (1, 0, 0, 0), [])}, 0, 0, message.version)
            self.core.member(wire.Heartbeat(node, 100 + int(node[1:]), early), self.now_s)
        if node.startswith("s") and isinstance(message, wire.CloseJob):
            tables = {
                "user": table(9, (12, 4, 2, 1), []),
                **({"item": table(5, (5, 0, 0, 0), [])} if node == "s1" else {}),
            }
            self._answer(wire.JobClosed(node, message.job, wire.ServerStats(tables, 0, 0, 3)))
        else:
            super()._to_node(node, message)


def test_a_result_has_the_last_counters_of_rows_as_the_stats_have_them() -> None:
    nodes = Telling()
    job = nodes.submit(job_config(), data_index())
    nodes.run()
    record = nodes.core.records[job]
    assert record.result is not None
    rows = record.result["embedding_tier"]
    assert {name: rows["tables"]["user"][name] for name in LIFE} == dict(zip(LIFE, (24, 8, 4, 2), strict=True))
    assert (rows["tables"]["user"]["num_rows"], rows["tables"]["item"]["num_rows"]) == (18, 5)
    tier = views.tier_view(nodes.core)
    for told, shown in [
        (rows["totals"], tier["totals"]),
        *((rows["tables"][name], tier["tables"][name]) for name in ("user", "item")),
    ]:
        assert told == {name: shown[name] for name in ROW_COUNTS}
    assert nodes.saved[job]["result"] == record.result, "an earlier coordinator's jobs are shown with it, too"


def test_a_job_without_a_result_has_no_counters() -> None:
    nodes = Telling()
    job = nodes.submit(job_config(), data_index())
    nodes.run(until=lambda: nodes.core.run is not None and nodes.core.run.view.version >= 3)
    nodes.deliver(nodes.core.cancel(job, nodes.now_s))
    nodes.run()
    assert nodes.core.records[job].result is None
