"""Addresses of a cluster."""

from __future__ import annotations

import ssl

import pytest

from palaver.config.brokers import user_of
from palaver.config.clusters import ClusterUrl, cluster_of, is_cluster
from palaver.config.roles import _places
from palaver.config.server_lists import HostPort
from palaver.config.settings import Settings

SECRET = "s3cret"
ONE = (HostPort("a", 6379),)
BROKER = "redis://broker/0"


@pytest.mark.parametrize(
    ("url", "read"),
    [
        (
            "redis+cluster://a:1,b,10.0.0.3:3",
            ClusterUrl((HostPort("a", 1), HostPort("b", 6379), HostPort("10.0.0.3", 3))),
        ),
        ("redis+cluster://a/", ClusterUrl(ONE)),
        ("redis+cluster://a,a:6379/0", ClusterUrl(ONE)),
        ("redis+cluster://[::1]:7,[fe80::2]/0", ClusterUrl((HostPort("::1", 7), HostPort("fe80::2", 6379)))),
        ("redis+cluster://palaver-api:p%40%2F%3A@a/0", ClusterUrl(ONE, "palaver-api", "p@/:")),
        ("redis+cluster://:p@a/0", ClusterUrl(ONE, None, "p")),
        ("redis+cluster://u:p@w@a/0", ClusterUrl(ONE, "u", "p@w")),
        (
            "redis+cluster://a?address_remap=10.0.0.1:1=nat:7001,[::2]:2=nat:7002",
            ClusterUrl(
                ONE,
                remapped=(
                    (HostPort("10.0.0.1", 1), HostPort("nat", 7001)),
                    (HostPort("::2", 2), HostPort("nat", 7002)),
                ),
            ),
        ),
        ("rediss+cluster://a/0", ClusterUrl(ONE, tls=(("ssl_cert_reqs", ssl.CERT_REQUIRED),))),
        (
            "rediss+cluster://a?ssl_ca_certs=/own%20ca.pem&ssl_check_hostname=false&ssl_cert_reqs=none",
            ClusterUrl(
                ONE,
                tls=(("ssl_cert_reqs", ssl.CERT_NONE), ("ssl_ca_certs", "/own ca.pem"), ("ssl_check_hostname", False)),
            ),
        ),
    ],
)
def test_an_address_is_read(url: str, read: ClusterUrl) -> None:
    assert is_cluster(url)
    assert cluster_of(url) == read
    assert _places(url) == read.places, "a role waits at its start until one of them answers"
    here = Settings(redis_url=url, broker_url=BROKER)
    assert (here.clustered, here.one_server) == (True, False)
    assert here.shards >= 64, "masters share them"


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("://s3cret@a/0", "a login is written user:password@"),
        ("://s3cret:@a/0", "a login is written user:password@"),
        ("://:s3cret/x@a/0", "/ is %2F"),
        ("://:s3cret?x@a/0", "/ is %2F"),
        ("://:s3cret#x@a/0", "written %23"),
        ("://", "the name or the IP address of each server"),
        (":///0", "the name or the IP address of each server"),
        ("://a,,b/0", "the name or the IP address of each server"),
        ("://a b/0", "the name or the IP address of each server"),
        ("://a:s3cret/0", "a number from 1 to 65535"),
        ("://a:0", "a number from 1 to 65535"),
        ("://a:65536", "a number from 1 to 65535"),
        ("://a:" + "9" * 5000, "a number from 1 to 65535"),
        ("://::1/0", "stands in brackets"),
        ("://[s3cret]:1/0", "stands in brackets"),
        ("://a/1", "the database 0 and no other"),
        ("://a/0/s3cret", "the database 0 and no other"),
        ("://a/0?s3cret", "it takes address_remap"),
        ("://a/0?password=s3cret", "it takes address_remap"),
        ("://a/0?address_remap=a:1=b:1&address_remap=a:1=b:1", "each option once"),
        ("://a/0?address_remap=s3cret", "address_remap is KNOWN:PORT=REACHED:PORT"),
        ("://a/0?address_remap=a:1=b:s3cret", "a number from 1 to 65535"),
        ("://a/0?ssl_ca_certs=s3cret", "rediss\\+cluster:// only"),
        ("://" + ",".join(f"h{number}" for number in range(65)), "names 65 servers, and 64 are the most"),
        ("://" + "h," * 5000 + "h", "at most 8192 characters"),
        ("://a/0?" + "&".join(f"ssl_{number}=1" for number in range(99)), "Max number of fields"),
    ],
)
def test_one_that_is_wrong_is_told_without_a_word_of_it(rest: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        cluster_of(f"redis+cluster{rest}")
    assert SECRET not in str(refused.value)


def test_its_password_is_not_shown_with_it() -> None:
    url = f"redis+cluster://palaver-worker:{SECRET}%40@a,b/0"
    assert SECRET not in repr(cluster_of(url))
    assert user_of(url) == "palaver-worker"
    assert Settings(redis_url=url, broker_url=BROKER).secrets == (f"{SECRET}@",)


def test_deliveries_need_a_broker_beside_it() -> None:
    with pytest.raises(ValueError, match="kombu has no transport for the cluster of PALAVER_REDIS_URL: name one Redis"):
        Settings(redis_url="redis+cluster://a")
