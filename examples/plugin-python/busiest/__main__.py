# SPDX-License-Identifier: Apache-2.0
"""The busiest cell of every array that switches measure with: an example of a plugin in Python."""

import os

import serving
from netsketch.plugin.v1 import plugin_pb2

LIST = "/acme-busiest:busiest/arrays/array"
MODULE = os.path.join(os.path.dirname(__file__), "acme-busiest.yang")


class Busiest:
    def __init__(self):
        self.least = 1
        self.signed = set()  # (device, array) with cells in two's complement

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
            lists=[plugin_pb2.ListInfo(path=LIST, summary="one array of one switch")],
        )

    def configure(self, config, network):
        self.least = config.get("least", 1)
        # Only the program knows what its cells mean. It says so in annotations.
        self.signed = {(d.name, o.name) for d in network.devices for o in d.objects
                       if "netsketch_univmon" in o.annotations
                       and o.annotations["netsketch_univmon"].values.get("part") == "counters"}
        return plugin_pb2.ConfigureResponse()  # reads all objects

    def analyze(self, epoch):
        rows = []
        for device, arrays in sorted(epoch.cells.items()):
            for name, cells in sorted(arrays.items()):
                values = cells.tolist()
                if (device, name) in self.signed:
                    values = [min(v, (1 << 32) - v) for v in values]
                most = max(values, default=0)
                if most >= self.least:
                    rows.append((device, name, values.index(most), most))
        table = serving.Table(LIST)
        table.key("node", [r[0] for r in rows])
        table.key("object", [r[1] for r in rows])
        table.number("state/cell", "uint", [r[2] for r in rows])
        table.number("state/count", "uint", [r[3] for r in rows])
        return [table]


serving.serve(Busiest())
