# SPDX-License-Identifier: Apache-2.0
"""Sends a file over TCP from h1 to h2 and compares OmniMon's results with what happened.

netns.sh starts it. What happened is known from the switch's own counters of packets that its queues
dropped, which OmniMon does not read.
"""

import collections
import json
import os
import subprocess
import sys
import time

SIZE = 16 << 20  # bytes
LINKS = {"h1-sw": "h1-s1:1", "h2-sw": "h2-s1:2"}  # by interface of the switch
SERVER = """
import socket
listener = socket.create_server(("10.0.2.1", 8000))
print("ready", flush=True)
connection, _ = listener.accept()
n = 0
while data := connection.recv(65536):
    n += len(data)
print(n)
"""
CLIENT = f"""
import socket
with socket.create_connection(("10.0.2.1", 8000)) as connection:
    connection.sendall(bytes({SIZE}))
"""


def query(path, address="10.255.0.1:9339"):
    """Returns the rows of all lists below a path, by list: keys and values in one dictionary."""
    command = [os.environ["BIN"] + "/netsketch", "query", path, "--json", "--plaintext"]
    out = subprocess.run(command + ["--address", address], capture_output=True, text=True)
    if out.returncode:
        return {}
    return {part["list"]: [row["keys"] | row["values"] for row in part["rows"]]
            for part in json.loads(out.stdout)}


def dropped():
    """Returns the packets that the switch's queues dropped, and those that a port lost on arrival.

    A busy machine loses packets on arrival because the switch does not get the processor in time.
    """
    counters = query("/interfaces/interface/state/counters", "10.255.0.1:9559")
    happened = collections.Counter()
    for row in counters["/interfaces/interface"]:
        happened["s1"] += int(row["counters/out-discards"])
        happened[LINKS[row["name"]]] += int(row["counters/in-discards"])
    return happened


def program(host, code):
    return subprocess.Popen(["ip", "netns", "exec", "nsk-" + host, sys.executable, "-c", code],
                            stdout=subprocess.PIPE, text=True)


def main():
    epochs, flows, losses, alerts = {}, {}, {}, set()

    def poll():
        """Keeps the rows of epochs that are new; lists are replaced one by one."""
        lists = query("/omnimon")
        for row in lists.get("", []):  # containers, which have the whole path in the names of leaves
            row = {name.removeprefix("omnimon/summary/state/"): value for name, value in row.items()}
            epochs[row["epoch"]] = row
        for row in lists.get("/omnimon/flows/flow", []):
            if row["source"] == "h1":
                flows[row["epoch"]] = row
        for row in lists.get("/omnimon/losses/loss", []):
            losses[row["epoch"], row["flow"], row["element"]] = row
        for row in lists.get("/omnimon/alerts/alert", []):
            if row["active"]:
                alerts.add(f"{row['kind']} {row['subject']}")
        return max(epochs, default=0)

    before, first = dropped(), poll()
    server = program("h2", SERVER)
    try:
        server.stdout.readline()
        client = program("h1", CLIENT)
        try:
            while client.poll() is None or server.poll() is None:
                poll()
                time.sleep(0.2)
        finally:
            client.kill()
        received = int(server.stdout.read())
    finally:
        server.kill()
    last = poll() + 2  # the epoch of the end, and that of its delivery
    limit = time.monotonic() + 60
    while poll() < last:
        if time.monotonic() > limit:
            sys.exit(f"epoch {last} did not arrive within 60 s")
        time.sleep(0.2)

    by_element = collections.Counter()
    for row in losses.values():
        by_element[row["element"]] += row["lost-low"]
    print(f"h2 received {received} bytes")
    for number, row in sorted(flows.items()):
        print(f"epoch {number}: {row['flow']} path {row['path']}: {row['packets']} packets sent, "
              f"{row['lost-packets']} lost")
    print("losses by element:", dict(by_element), "alerts:", sorted(alerts))
    happened = dropped() - before
    print("packets that the switch dropped:", dict(happened))

    wrong = []

    def expect(what, condition):
        if not condition:
            wrong.append(what)

    expect("all bytes arrived", received == SIZE)
    missed = [n for n in range(first + 1, last + 1) if n not in epochs]
    expect(f"all epochs were read: {missed}", not missed)
    inexact = [row.get("problem") for n, row in epochs.items() if not row["exact"]]
    expect(f"all epochs are exact: {inexact}", not inexact)
    expect("the path of the flow is s1", {row["path"] for row in flows.values()} == {"s1"})
    expect("some packets were dropped", happened["s1"] > 0)
    expect("each switch and link lost what was dropped there", by_element == happened)
    expect("each loss is determined", all(row["determined"] for row in losses.values()))
    expect("the losses of the flow are those of its path",
           sum(row["lost-packets"] for row in flows.values()) == happened["s1"] + happened["h1-s1:1"])
    expect("alerts name what lost packets, and nothing else",
           {a for a in alerts if "lossy" in a or "dead" in a} ==
           {f"{'switch' if element == 's1' else 'link'}-lossy {element}" for element in happened})
    for what in wrong:
        print("WRONG:", what)
    print("FAILED" if wrong else "PASSED")
    sys.exit(bool(wrong))


main()
