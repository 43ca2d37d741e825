# SPDX-License-Identifier: BSD-3-Clause
"""The events of a trace as JSON, in the format of Chrome's traces.

Perfetto opens it: https://ui.perfetto.dev. Each operation is an asynchronous span
(``b`` and ``e``) with an id of its own; what it waits for lies within. Wake-ups are
spans (``X``) on the track of their worker. Times are microseconds of
CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from .. import _ext, _version

# umx_trace_kind
_BEGIN, _DETAIL, _END, _WAIT, _GO, _SPAN = range(1, 7)
# The flags of an event.
_IS_PART, _IS_RENDEZVOUS, _IS_LOAN = 1, 2, 4

_CHUNK = 4096  # events
# Processes of several hosts may have the same number: these are added to it.
_PID_STEP = 10_000_000


class Event(NamedTuple):
    """What ``_ext.trace_read()`` gives: a ``umx_trace_event``."""

    time: int
    begin: int
    operation: int
    endpoint: int
    bytes: int
    tag: int
    name: str | None
    worker: int
    status: int
    kind: int
    flags: int


class Info(NamedTuple):
    """What ``_ext.trace_query()`` gives: a ``umx_trace_info``."""

    events: int
    dropped: int
    begin: int
    end: int
    realtime: int


class _Open:
    """An operation that has begun, and not ended."""

    __slots__ = ("args", "begin", "first", "waits")

    def __init__(self, first: Event) -> None:
        self.first = first
        self.begin = first.begin
        self.args: dict[str, Any] = {}
        self.waits: list[list[int]] = []  # begin and end


class Timeline:
    """Makes lines of JSON from events."""

    def __init__(self, pid: int, info: Info) -> None:
        self._pid = pid
        self._info = info
        self._lines: list[tuple[int, str]] = []
        self._open: dict[tuple[int, int], _Open] = {}
        self._number = 0
        self._names: dict[str, str] = {}
        self._workers: set[int] = set()
        self._by_kind: dict[int, Callable[[Event], None]] = {
            _BEGIN: self._begin,
            _DETAIL: self._detail,
            _END: self._end,
            _WAIT: self._wait,
            _GO: self._go,
            _SPAN: self._span,
        }

    def add(self, event: Event) -> None:
        """Take the next event, in their order."""
        self._workers.add(event.worker)
        act = self._by_kind.get(event.kind)
        if act is not None:
            act(event)

    def lines(self) -> Iterator[str]:
        """All events of the file, in the order of their times."""
        for found in list(self._open.values()):
            self._write(found, self._info.end, found.first, {"unfinished": True})
        self._open.clear()
        self._lines.sort(key=lambda pair: pair[0])
        return (line for _, line in self._lines)

    def workers(self) -> list[int]:
        """The numbers of the workers that there are events of."""
        return sorted(self._workers)

    def _begin(self, event: Event) -> None:
        self._open[event.worker, event.operation] = _Open(event)

    def _detail(self, event: Event) -> None:
        found = self._open.get((event.worker, event.operation))
        if found is None:
            return  # its begin has been dropped
        name = event.name or found.first.name or ""
        found.first = found.first._replace(name=name)
        if event.bytes:
            found.args["bytes"] = found.args.get("bytes", 0) + event.bytes
        if event.endpoint:
            found.args["rank"] = event.endpoint - 1
        if name.startswith("shuffle"):
            found.args["partition"] = event.tag
        elif event.endpoint and not name.startswith("comm_"):
            found.args["number"] = event.tag

    def _end(self, event: Event) -> None:
        found = self._open.pop((event.worker, event.operation), None)
        if found is None or found.begin != event.begin:
            found = _Open(event)  # its begin has been dropped, or was before
        args: dict[str, Any] = {}
        if event.bytes:
            args["bytes"] = event.bytes
        if event.tag:
            args["tag"] = event.tag
        if event.status < 0:
            error = _ext.exception_from_status(event.status, "")
            args["error"] = type(error).__name__
        if event.flags & _IS_RENDEZVOUS:
            args["how"] = "rendezvous"
        elif event.flags & _IS_LOAN:
            args["how"] = "loan"
        if event.begin <= self._info.begin:
            args["begun_before"] = True
        self._write(found, event.time, event, args)

    def _wait(self, event: Event) -> None:
        found = self._open.get((event.worker, event.operation))
        if found is not None:
            found.waits.append([event.time, self._info.end])

    def _go(self, event: Event) -> None:
        found = self._open.get((event.worker, event.operation))
        if found is not None and found.waits:
            found.waits[-1][1] = event.time

    def _span(self, event: Event) -> None:
        length = event.time - event.begin
        self._lines.append(
            (
                event.begin,
                f'{{"ph":"X","cat":"loop","name":{self._quoted(event.name)},'
                f'{self._where(event)},"ts":{_us(event.begin)},"dur":{_us(length)}}}',
            )
        )

    def _write(
        self, found: _Open, end: int, event: Event, args: dict[str, Any]
    ) -> None:
        """Write an operation from begin to end."""
        self._number += 1
        what = {"worker": event.worker, **found.args, **args}
        if event.endpoint:
            what["endpoint"] = event.endpoint
        name = self._quoted(event.name or found.first.name)
        part = event.flags & _IS_PART
        rest = (
            f'"cat":"{"part" if part else "operation"}","id":"{self._number:#x}",'
            f"{self._where(event)}"
        )
        self._add("b", rest, name, found.begin, json.dumps(what))
        for wait_begin, wait_end in found.waits:
            self._add("b", rest, '"waits for credit"', wait_begin, "{}")
            self._add("e", rest, '"waits for credit"', min(wait_end, end), "{}")
        self._add("e", rest, name, end, "{}")

    def _add(self, phase: str, rest: str, name: str, time: int, args: str) -> None:
        self._lines.append(
            (
                time,
                f'{{"ph":"{phase}","name":{name},{rest},"ts":{_us(time)},'
                f'"args":{args}}}',
            )
        )

    def _where(self, event: Event) -> str:
        return f'"pid":{self._pid},"tid":{event.worker}'

    def _quoted(self, name: str | None) -> str:
        text = name or "?"
        if text not in self._names:
            self._names[text] = json.dumps(text)
        return self._names[text]


def _us(ns: int) -> str:
    """Microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _read(info: Info) -> Iterator[Event]:
    for first in range(0, info.events, _CHUNK):
        yield from map(Event._make, _ext.trace_read(first, _CHUNK))


def has_events() -> bool:
    """True if anything was recorded until the trace was stopped."""
    return Info._make(_ext.trace_query()).events != 0


def write(file: TextIO, pid: int, name: str) -> None:
    """Write the trace that has been stopped."""
    info = Info._make(_ext.trace_query())
    timeline = Timeline(pid, info)
    for event in _read(info):
        timeline.add(event)
    lines = timeline.lines()
    file.write('{"displayTimeUnit":"ns","otherData":')
    file.write(json.dumps(_metadata(pid, info)))
    file.write(',"traceEvents":[\n')
    file.write(_naming("process_name", pid, 0, f"{name} {pid}"))
    for worker in timeline.workers():
        file.write(",\n")
        file.write(_naming("thread_name", pid, worker, f"worker {worker}"))
    for line in lines:
        file.write(",\n")
        file.write(line)
    file.write("\n]}\n")


def _metadata(pid: int, info: Info) -> dict[str, Any]:
    return {
        "ucp_version": _version.__version__,
        "host": socket.gethostname(),
        "pid": pid,
        "clock": "CLOCK_MONOTONIC",
        "realtime_offset_ns": info.realtime - info.begin,
        "begin_ns": info.begin,
        "end_ns": info.end,
        "dropped_events": info.dropped,
    }


def _naming(what: str, pid: int, tid: int, name: str) -> str:
    """The event that names a process or a thread."""
    return json.dumps(
        {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}},
        separators=(",", ":"),
    )


def _load(path: Path) -> dict[str, Any]:
    """The trace of a file."""
    try:
        trace: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if "host" in trace["otherData"] and "traceEvents" in trace:
            return trace
        reason = "it has no otherData.host, or no traceEvents"
    except (ValueError, KeyError, TypeError) as exc:
        reason = str(exc)
    raise ValueError(f"{path} is no trace of ucp: {reason}")


def join(paths: list[Path], target: Path) -> None:
    """Write the traces of several processes into one file."""
    traces = [_load(path) for path in paths]
    first = traces[0]["otherData"]
    hosts = list(dict.fromkeys(trace["otherData"]["host"] for trace in traces))
    events = []
    for number, trace in enumerate(traces):
        its = trace["otherData"]
        step = hosts.index(its["host"]) * _PID_STEP
        shift = 0.0
        if its["host"] != first["host"]:  # its clock began when it was started
            shift = its["realtime_offset_ns"] - first["realtime_offset_ns"]
        for event in trace["traceEvents"]:
            event["pid"] += step
            if "id" in event:  # of each file: Perfetto knows them by it
                event["id"] = f"{number}:{event['id']}"
            if "ts" in event:
                event["ts"] += shift / 1000
            events.append(event)
    events.sort(key=lambda event: event.get("ts", 0))
    other = {**first, "joined": [trace["otherData"] for trace in traces]}
    target.write_text(
        json.dumps({"displayTimeUnit": "ns", "otherData": other, "traceEvents": events})
    )
