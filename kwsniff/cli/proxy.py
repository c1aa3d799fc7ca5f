"""`kwsniff proxy`: between clients and brokers, unchanged both of them."""

from __future__ import annotations

import re
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kwsniff.cli import options as given
from kwsniff.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from kwsniff.proxy.assembly import Recording, Watching
    from kwsniff.proxy.settings import Limits, Settings
    from kwsniff.proxy.tls import Termination

_EPILOG = """\b
Examples:
  kwsniff proxy --listen 127.0.0.1:19092 --upstream broker-1:9092 --log -
  kwsniff proxy --listen :9092 --upstream b1:9092,b2:9092 --advertise proxy.example --metrics :9464
  kwsniff proxy --listen 127.0.0.1:19092 --upstream b1:9092 --rules rules.yaml --record talk.pcapng
  kwsniff ca ./ca
  kwsniff proxy --listen :9093 --upstream b1:9093 --tls-ca ./ca --sni --advertise kafka.example --upstream-tls
\b
Clients connect to the address of --listen; for each broker that an answer names there is another listener, at
the port behind it (plus 1, plus the node id), and answers name that one. With --sni there is one port, and
clients find the brokers as broker-1.HOST, broker-2.HOST, ..., HOST being that of --advertise.
SASL passes through. A GSSAPI ticket is for a host name: advertise the broker's own.
\b
Signals: TERM and INT drain (twice: end at once), HUP reads the rules again.
Exit status: 0 drained, 1 a required plugin failed (the recorder could not record), 2 wrong usage, or an
address that cannot be listened on.
"""

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`500ms`, `10s`, `5m`, `1h`, or seconds. 0: where there may be none."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|m|h|)", str(value).strip())
        if found is None:
            self.fail(f"'{value}' is no duration: write 500ms, 10s, 5m or 1h", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=_EPILOG)
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where clients connect to.")
@click.option(
    "--upstream", "upstreams", required=True, multiple=True, metavar="HOST:PORT[,...]",
    help="Brokers to begin with, tried in this order. The others are found by their answers.",
)  # fmt: skip
@click.option("--advertise", metavar="HOST", help="The host by which clients find this proxy, if another.")
@click.option(
    "--map", "fixed", multiple=True, metavar="NODE=HOST:PORT",
    help="Where a broker is, whatever answers say; its listener is there from the start.",
)  # fmt: skip
@click.option("--port-range", metavar="FIRST-LAST", help="Ports for the brokers, by node id where that fits.")
@click.option("--sni", is_flag=True, help="One TLS port for all brokers, told apart by name.")
@click.option(
    "--narrow/--no-narrow", default=True, show_default=True,
    help="Offer clients only versions that can be read; without it newer ones may tell brokers' addresses.",
)  # fmt: skip
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Clients speak TLS: its certificate, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="And its key, where it is not in the same file.")
@click.option(
    "--tls-ca", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Clients speak TLS: certificates are made on the fly (see kwsniff ca).",
)  # fmt: skip
@click.option(
    "--tls-client-ca", type=_FILE, metavar="FILE", help="Clients need a certificate signed by this."
)
@click.option("--upstream-tls", is_flag=True, help="Brokers speak TLS.")
@click.option("--upstream-ca", type=_FILE, metavar="FILE", help="Who signed theirs; else the system's CAs.")
@click.option("--upstream-no-verify", is_flag=True, help="Do not check the brokers' certificates.")
@click.option("--upstream-cert", type=_FILE, metavar="FILE", help="Our certificate for brokers that ask.")
@click.option("--upstream-key", type=_FILE, metavar="FILE", help="And its key.")
@click.option(
    "--proxy-protocol-in", is_flag=True, help="Connections begin with the PROXY protocol, v1 or v2."
)
@click.option(
    "--proxy-protocol-out", is_flag=True, help="Tell brokers the client's address, PROXY protocol v2."
)
@click.option("--rules", type=_FILE, metavar="FILE", help="Act by these rules; read again when they change.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="PLUGIN", help="A path, or an installed one's name."
)
@click.option("--log", metavar="FILE", help="A JSON line for each exchange; - is standard output.")
@click.option("--records", is_flag=True, help="Lines with the records of Produce and Fetch.")
@click.option("--no-body", is_flag=True, help="Lines without request and response.")
@click.option("--record", metavar="FILE", help="Keep a capture (pcapng); the name may have strftime fields.")
@click.option("--record-size", type=given.Size(), metavar="SIZE", help="Another file at this size.")
@click.option("--record-every", type=Duration(), metavar="TIME", help="Another file after this time.")
@click.option(
    "--record-fsync", type=click.Choice(["none", "interval", "always"]), default="interval",
    show_default=True, help="Onto the disk: when the system likes, once a second, for each frame.",
)  # fmt: skip
@click.option("--record-fail-open", is_flag=True, help="Go on without recording when that fails.")
@click.option("--keep-secrets", is_flag=True, help="Record passwords and tokens, too.")
@click.option("--metrics", metavar="[HOST]:PORT", help="Serve metrics for Prometheus.")
@click.option("--max-connections", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--max-frame", type=given.Size(), metavar="SIZE", default="100M", show_default=True)
@click.option("--connect-timeout", type=Duration(), metavar="TIME", default="10s", show_default=True)
@click.option(
    "--idle-timeout", type=Duration(), metavar="TIME", default="15m", show_default=True, help="0: none."
)
@click.option(
    "--drain", type=Duration(), metavar="TIME", default="10s", show_default=True,
    help="How long requests in flight may still be answered.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No status line.")
def proxy(**options: Any) -> int:
    """Stand between clients and brokers: see, record and change what they say.

    Neither side needs to be changed: clients are given the proxy's address, and every answer that names a
    broker names the proxy instead. What nothing changes is passed on as it came, byte for byte.
    """
    from kwsniff.proxy.assembly import run
    from kwsniff.proxy.console import Console

    settings, watching = _settings(options), _watching(options)
    console = Console(sys.stderr, status=False if options["quiet"] else None)
    try:
        return run(settings, watching, console)
    finally:
        console.close()


def _settings(options: dict[str, Any]) -> Settings:
    from kwsniff.proxy import endpoints
    from kwsniff.proxy.settings import Settings

    fixed = [endpoints.node(text) for text in options["fixed"]]
    if len(dict(fixed)) < len(fixed):
        raise ConfigError("--map has the same node twice")
    listen = endpoints.endpoint(options["listen"], any_host=True, any_port=True)
    _check_host(options["advertise"])
    termination = _termination(options)
    if options["sni"] and termination is None:
        raise ConfigError(
            "--sni tells brokers apart by the names that TLS clients ask for: it needs --tls-ca"
        )
    metrics = options["metrics"]
    return Settings(
        listen=listen,
        upstreams=tuple(found for text in options["upstreams"] for found in endpoints.endpoints(text)),
        fixed=dict(fixed),
        advertise=options["advertise"],
        ports=endpoints.port_range(options["port_range"]) if options["port_range"] else None,
        sni=options["sni"],
        narrow=options["narrow"],
        tls=termination,
        upstream_tls=_origination(options),
        proxy_protocol_in=options["proxy_protocol_in"],
        proxy_protocol_out=options["proxy_protocol_out"],
        limits=_limits(options),
        metrics=endpoints.endpoint(metrics, any_host=True, any_port=True) if metrics else None,
    )


def _check_host(advertised: str | None) -> None:
    """A host name or an address: the port is the listener's."""
    if advertised is None or re.fullmatch(r"[\w.-]+", advertised, re.ASCII):
        return
    try:
        ip_address(advertised)
    except ValueError:
        raise ConfigError(f"--advertise is a host without a port, not '{advertised}'") from None


def _limits(options: dict[str, Any]) -> Limits:
    from kwsniff.proxy.settings import Limits

    return Limits(
        connections=options["max_connections"],
        frame=options["max_frame"],
        connect=options["connect_timeout"],
        idle=options["idle_timeout"] or None,
        drain=options["drain"],
    )


def _termination(options: dict[str, Any]) -> Termination | None:
    from kwsniff.proxy.authority import Authority
    from kwsniff.proxy.tls import MadeCertificates, OwnCertificate

    certificate, folder, client_ca = options["tls_cert"], options["tls_ca"], options["tls_client_ca"]
    if certificate is not None and folder is not None:
        raise ConfigError("--tls-cert and --tls-ca: one certificate, or one made for each name")
    if certificate is not None:
        return OwnCertificate(certificate, options["tls_key"], client_ca)
    if folder is not None:
        return MadeCertificates(Authority(folder), client_ca, options["advertise"])
    for option in ("tls_key", "tls_client_ca"):
        if options[option] is not None:
            raise ConfigError(f"--{option.replace('_', '-')} needs --tls-cert or --tls-ca")
    return None


def _origination(options: dict[str, Any]) -> ssl.SSLContext | None:
    from kwsniff.proxy.tls import origination

    if options["upstream_tls"]:
        return origination(
            options["upstream_ca"],
            verify=not options["upstream_no_verify"],
            certificate=options["upstream_cert"],
            key=options["upstream_key"],
        )
    for option in ("upstream_ca", "upstream_no_verify", "upstream_cert", "upstream_key"):
        if options[option]:
            raise ConfigError(f"--{option.replace('_', '-')} needs --upstream-tls")
    return None


def _watching(options: dict[str, Any]) -> Watching:
    from kwsniff.output.present import Options
    from kwsniff.proxy.assembly import Watching

    return Watching(
        rules=options["rules"],
        plugins=options["plugins"],
        record=_recording(options),
        log=options["log"],
        log_options=Options(options["records"], not options["no_body"]),
    )


def _recording(options: dict[str, Any]) -> Recording | None:
    from kwsniff.output.rotation import NS, Rotation
    from kwsniff.proxy.assembly import Recording

    if options["record"] is None:
        for option in ("record_size", "record_every", "record_fail_open", "keep_secrets"):
            if options[option]:
                raise ConfigError(f"--{option.replace('_', '-')} needs --record")
        return None
    every = options["record_every"]
    return Recording(
        path=options["record"],
        keep_secrets=options["keep_secrets"],
        rotation=Rotation(options["record_size"], None if every is None else int(every * NS)),
        fsync=options["record_fsync"],
        required=not options["record_fail_open"],
    )
