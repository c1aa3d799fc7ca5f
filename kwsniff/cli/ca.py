"""`kwsniff ca`: a local certificate authority for the proxy."""

from __future__ import annotations

from pathlib import Path

import click

from kwsniff.cli.failure import FINE

_EPILOG = """\b
Example:
  kwsniff ca ~/.kwsniff-ca
  kwsniff proxy --listen 127.0.0.1:19093 --upstream broker:9092 --tls-ca ~/.kwsniff-ca
"""


@click.command(epilog=_EPILOG)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", default="kwsniff local CA", show_default=True, help="The subject of its certificate.")
def ca(folder: Path, name: str) -> int:
    """Make a certificate authority, with which the proxy makes certificates for its clients.

    Clients trust it by DIR/ca.pem. Who has DIR/ca.key can pass for any host that they talk to: keep it here,
    and throw both away when the work is done. What is there already is never overwritten.
    """
    from kwsniff.proxy.authority import create

    click.echo(f"{create(folder, name)}: clients are to trust this, such as ssl.ca.location={folder}/ca.pem")
    return FINE
