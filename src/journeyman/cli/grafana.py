"""`journeyman alerts grafana`: a dashboard for what `/metrics` tells."""

import click

from journeyman.core.errors import MissingExtra

_PANELS = (
    ("Alerts that fire", 'sum by (rule) (journeyman_alerts{state="firing"})', "short"),
    ("Requests a second", "sum by (status) (rate(journeyman_gateway_requests_total[5m]))", "reqps"),
    (
        "Share that fails",
        'sum(rate(journeyman_gateway_requests_total{status=~"5.."}[5m])) / sum(rate(journeyman_gateway_requests_total[5m]))',
        "percentunit",
    ),
    (
        "95th percentile of a request",
        "histogram_quantile(0.95, sum by (le) (rate(journeyman_gateway_request_seconds_bucket[5m])))",
        "s",
    ),
    ("Share of new sessions on candidates", "journeyman_release_share", "percentunit"),
    ("Difference to production, at least", 'journeyman_release_effect{bound="low"}', "percentunit"),
    ("Waiting to be stored", "journeyman_intake_waiting + journeyman_intake_spilled", "short"),
    ("CPU of the gateway", "rate(process_cpu_seconds_total[5m])", "short"),
    ("Memory of the gateway", "process_resident_memory_bytes", "bytes"),
)


@click.command("grafana")
@click.option("--title", default="Journeyman", show_default=True, metavar="TEXT", help="Of the dashboard.")
def command(title: str) -> None:
    """Print a dashboard of Grafana for what /metrics tells.

    It asks for the Prometheus that scrapes the gateway, when it is imported.

    \b
    Example:
      journeyman alerts grafana > dashboard.json
    """
    try:
        from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import DataSourceRef
    except ModuleNotFoundError as error:
        raise MissingExtra(f"the dashboard needs {error.name}: pip install 'journeyman[grafana]'") from error

    source = DataSourceRef(type_val="prometheus", uid="${source}")
    made = (
        dashboard.Dashboard(title)
        .uid("journeyman")
        .tags(["journeyman"])
        .refresh("30s")
        .time("now-6h", "now")
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    )
    for name, query, unit in _PANELS:
        asked = prometheus.Dataquery().expr(query).legend_format("__auto").ref_id("A")
        made = made.with_panel(
            timeseries.Panel()
            .title(name)
            .unit(unit)
            .min(0 if "Difference" not in name else -1)
            .datasource(source)
            .with_target(asked)
        )
    click.echo(JSONEncoder(sort_keys=True, indent=2).encode(made.build()))
