# SPDX-License-Identifier: Apache-2.0
"""The busiest cell of every array that switches measure with, and the packets that UnivMon's program
counted: an example of a plugin in Python."""

import os

import serving
from netsketch.plugin.v1 import plugin_pb2

LIST = "/acme-busiest:busiest/arrays/array"
TOTALS = "/acme-busiest:busiest/totals/total"
MODULE = os.path.join(os.path.dirname(__file__), "acme-busiest.yang")


class Busiest:
    def __init__(self):
        self.least = 1
        self.univmon = {}  # the annotation of UnivMon's registers by (device, array)

    def describe(self):
        return plugin_pb2.DescribeResponse(
            name="busiest",
            version="0.1.0",
            summary="the busiest cell of every array that switches measure with",
            objects=[plugin_pb2.ObjectNeed(name="*", shared=True)],  # it reads along with other plugins
            config_schema="""{
                "type": "object",
                "additionalProperties": false,
                "properties": {"least": {"type": "integer", "minimum": 1,
                    "description": "arrays whose busiest cell is smaller are left out"}}
            }""",
            modules=[plugin_pb2.YangModule(
                name="acme-busiest", text=__loader__.get_data(MODULE).decode())],  # a file of the archive
            lists=[plugin_pb2.ListInfo(path=LIST, summary="one array of one switch"),
                   plugin_pb2.ListInfo(path=TOTALS, summary="one dimension of UnivMon at one switch")],
        )

    def configure(self, config, network):
        self.least = config.get("least", 1)
        # Only the program knows what its cells mean. It says so in annotations (docs/p4.md).
        self.univmon = {(d.name, o.name): dict(o.annotations["netsketch_univmon"].values)
                        for d in network.devices for o in d.objects if "netsketch_univmon" in o.annotations}
        return plugin_pb2.ConfigureResponse()  # reads all objects

    def analyze(self, epoch):
        rows, totals = [], []
        for device, arrays in sorted(epoch.cells.items()):
            for name, cells in sorted(arrays.items()):
                values = cells.tolist()
                layout, step = self.univmon.get((device, name), {}), 1
                if layout.get("part") == "counters":  # in two's complement, then packets by level
                    packets = int(layout["packets"])
                    totals.append((device, layout["key"], sum(values[packets:packets + int(layout["levels"])])))
                    values = [min(v, (1 << 32) - v) for v in values[:packets]]
                elif layout.get("part") == "heavy":  # slots; word 0 is the estimate of a flow's packets
                    step = int(layout["words"])
                most = max(values[::step], default=0)
                if most >= self.least:
                    rows.append((device, name, values[::step].index(most) * step, most))
        table = serving.Table(LIST)
        table.key("node", [r[0] for r in rows])
        table.key("object", [r[1] for r in rows])
        table.number("state/cell", "uint", [r[2] for r in rows])
        table.number("state/count", "uint", [r[3] for r in rows])
        total = serving.Table(TOTALS)
        total.key("node", [r[0] for r in totals])
        total.key("dimension", [r[1] for r in totals])
        total.number("state/packets", "uint", [r[2] for r in totals])
        return [table, total]


serving.serve(Busiest())
