# SPDX-License-Identifier: BSD-3-Clause
# tests: channel/offer
"""docs/design.md lists the ways of messages as the table of the library has them."""

import re

from paths import ROOT

PAGE = (ROOT / "docs/design.md").read_text()
TABLE = (ROOT / "src/channel/offer.c").read_text()

ROW = re.compile(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
OFFER = re.compile(r'\.name\s+= "(\w+)",\s+\.how\s+= "([^"]+)",')


def told() -> list[tuple[str, str, str]]:
    ways = PAGE[PAGE.index("**Ways.**") :]
    rows = ROW.findall(ways[: ways.index("A way has two halves")])
    return [row for row in rows if row[0] != "way"]


def kib(file: str, name: str) -> str:
    text = (ROOT / file).read_text()
    return re.search(rf"{name}\s*= (\d+) \* 1024", text)[1] + " KiB"


def test_the_page_has_each_way_in_the_order_of_the_table():
    assert OFFER.findall(TABLE) == [(name, how) for name, _, how in told()]


def test_the_page_has_the_lengths():
    lengths = {name: which for name, which, _ in told()}
    transfer = "src/ops/transfer.h"
    assert kib(transfer, "UMI_TRANSFER_MIN") in lengths["pieces"]
    assert kib("src/ops/follow.h", "UMI_FOLLOW_MIN") in lengths["follow"]
