# SPDX-License-Identifier: Apache-2.0
"""Serves a netsketch plugin: go-plugin's handshake, mutual TLS, and the Run stream.

A plugin is an object with these methods. Exceptions become errors of the epoch in the collector's
log; a ConfigError names the key that is wrong.

    describe() -> plugin_pb2.DescribeResponse
    configure(config: dict, network: network_pb2.Network) -> plugin_pb2.ConfigureResponse
    analyze(epoch: Epoch) -> list of Table
"""

import base64
import datetime
import json
import os
import struct
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from netsketch.plugin.v1 import epoch_pb2, plugin_pb2, plugin_pb2_grpc, results_pb2

COOKIE = ("NETSKETCH_PLUGIN", "netsketch.plugin.v1")
MAX_MESSAGE = 4 << 20


class ConfigError(Exception):
    """A wrong configuration: the path of the key, and what is expected."""

    def __init__(self, field, message):
        super().__init__(message)
        self.field, self.message = field, message


class Epoch:
    """What the devices recorded in an epoch.

    cells[device][object] is a memoryview of unsigned integers. missing has the names of devices
    and hosts without data, with the reason.
    """

    def __init__(self, begin):
        self.number, self.start_ns, self.end_ns = begin.epoch, begin.start_unix_ns, begin.end_unix_ns
        self.status, self.missing, self.cells = epoch_pb2.EPOCH_STATUS_UNSPECIFIED, {}, {}
        self._data = {}

    def add(self, chunk):
        key = (chunk.device, chunk.object)
        width = chunk.width_bits // 8
        if chunk.first_cell == 0:
            self._data[key] = (width, bytearray(chunk.total_cells * width))
        at = chunk.first_cell * width
        self._data[key][1][at:at + len(chunk.data)] = chunk.data

    def seal(self, end):
        self.status = end.status
        self.missing = {m.name: m.reason for m in end.missing}
        for (device, name), (width, data) in self._data.items():
            cells = memoryview(data).cast({1: "B", 2: "H", 4: "I", 8: "Q"}[width])
            self.cells.setdefault(device, {})[name] = cells


class Table:
    """Rows of a YANG list: columns by the name of the leaf, keys first in the schema's order."""

    KINDS = {
        "uint": (results_pb2.COLUMN_KIND_UINT64, "<%dQ"),
        "int": (results_pb2.COLUMN_KIND_INT64, "<%dq"),
        "float": (results_pb2.COLUMN_KIND_FLOAT64, "<%dd"),
    }

    def __init__(self, path, replace=True):
        self.path, self.replace, self.keys, self.values = path, replace, {}, {}

    def key(self, name, texts):
        self.keys[name] = self._text(name, texts)

    def text(self, name, texts):
        self.values[name] = self._text(name, texts)

    def number(self, name, kind, numbers):
        code, layout = self.KINDS[kind]
        column = results_pb2.Column(name=name, kind=code, data=struct.pack(layout % len(numbers), *numbers))
        self.values[name] = column

    @staticmethod
    def _text(name, texts):
        raw = [t.encode() for t in texts]
        ends, end = [], 0
        for r in raw:
            end += len(r)
            ends.append(end)
        return results_pb2.Column(name=name, kind=results_pb2.COLUMN_KIND_STRING, data=b"".join(raw),
                                  ends=struct.pack("<%dI" % len(ends), *ends))

    def part(self, epoch):
        rows = len(next(iter(self.keys.values())).ends) // 4
        table = results_pb2.Table(list=self.path, rows=rows, keys=self.keys.values(), values=self.values.values())
        return results_pb2.TablePart(epoch=epoch, table=table, replace=self.replace, last=True)


class _Service(plugin_pb2_grpc.PluginServicer):
    def __init__(self, plugin):
        self.plugin, self.lock = plugin, threading.Lock()

    def Describe(self, request, context):
        answer = self.plugin.describe()
        answer.sdk = "netsketch-python-example/1"
        return answer

    def Configure(self, request, context):
        with self.lock:
            try:
                return self.plugin.configure(json.loads(request.config_json or b"{}"), request.network)
            except ConfigError as e:
                error = plugin_pb2.FieldError(field=e.field, message=e.message)
                return plugin_pb2.ConfigureResponse(errors=[error])

    def Run(self, requests, context):
        epoch = None
        for request in requests:
            kind = request.WhichOneof("message")
            if kind == "begin":
                epoch = Epoch(request.begin)
            elif kind == "device":
                epoch.add(request.device)
            elif kind == "end":
                epoch.seal(request.end)
                yield from self._analyze(epoch)

    def _analyze(self, epoch):
        begin, done = time.monotonic_ns(), results_pb2.EpochDone(epoch=epoch.number)
        try:
            with self.lock:
                tables = self.plugin.analyze(epoch)
            for table in tables:
                done.stats.tables += 1
                part = table.part(epoch.number)
                done.stats.rows += part.table.rows
                yield plugin_pb2.RunResponse(table=part)
        except Exception as e:  # the epoch is lost; the next one may work
            done.error = f"{type(e).__name__}: {e}"
        done.stats.duration_ns = time.monotonic_ns() - begin
        yield plugin_pb2.RunResponse(done=done)

    def Drain(self, request, context):
        return plugin_pb2.DrainResponse()


def _fixed(answer):
    """A method that answers every call with the same bytes."""
    return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


def _certificate():
    """A key and a self-signed certificate for this process, as PEM and DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.utcnow()
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256()))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                            serialization.NoEncryption())
    return pem, certificate.public_bytes(serialization.Encoding.PEM), certificate.public_bytes(
        serialization.Encoding.DER)


def serve(plugin):
    """Runs the plugin until the collector stops it or exits. It is the last call of a program."""
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        about = plugin.describe()
        print(f"{about.name} {about.version}: {about.summary}\n\nThe collector starts it: put it into the plugin "
              "directory and name it in the collector's\nconfiguration.", file=sys.stderr)
        sys.exit(1)
    options = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=options)
    plugin_pb2_grpc.add_PluginServicer_to_server(_Service(plugin), server)
    stopped = threading.Event()

    def shutdown(request, context):
        stopped.set()
        return b""

    server.add_generic_rpc_handlers((
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": _fixed(b"\x08\x01")}),  # SERVING
        grpc.method_handlers_generic_handler(
            "plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}),
    ))
    directory = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp()
    path = os.path.join(directory, f"plugin-{os.getpid()}")
    key, certificate, der = _certificate()
    client = os.environ["PLUGIN_CLIENT_CERT"].encode()
    credentials = grpc.ssl_server_credentials([(key, certificate)], root_certificates=client,
                                              require_client_auth=True)
    server.add_secure_port("unix:" + path, credentials)
    server.start()
    handshake = base64.b64encode(der).rstrip(b"=").decode()
    print(f"1|1|unix|{path}|grpc|{handshake}", flush=True)
    if os.environ.get("NETSKETCH_PLUGIN_LIFELINE") == "stdin":  # standard input ends with the collector

        def lifeline():
            sys.stdin.buffer.read()
            stopped.set()

        threading.Thread(target=lifeline, daemon=True).start()
    stopped.wait()
    server.stop(grace=1).wait()
