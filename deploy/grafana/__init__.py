"""The dashboard for Grafana."""
