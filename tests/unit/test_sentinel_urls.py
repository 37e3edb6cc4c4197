"""Addresses of a Redis that Sentinels know."""

from __future__ import annotations

import json
import ssl

import pytest

from palaver.config.brokers import is_redis, kombu_url, tls_options, user_of
from palaver.config.sentinels import LIKE, MOST, Sentinels, by_sentinels, sentinels_of
from palaver.config.server_lists import HostPort, Login
from palaver.config.settings import Settings
from palaver.delivery.deliveries import transport_options

SECRET = "s3cret"
THREE = (HostPort("a", 1), HostPort("b", 26379), HostPort("10.0.0.3", 3))


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("redis+sentinel://a:1,b,10.0.0.3:3/orders", Sentinels(THREE, "orders")),
        ("redis+sentinel://a:1,b,10.0.0.3:3/orders/", Sentinels(THREE, "orders")),
        ("redis+sentinel://a:1,b,10.0.0.3:3/orders/15", Sentinels(THREE, "orders", 15)),
        ("redis+sentinel://a:1,a:1/m.y_m-1/0", Sentinels((HostPort("a", 1),), "m.y_m-1")),
        (
            "redis+sentinel://[::1]:7,[fe80::2]/m/0",
            Sentinels((HostPort("::1", 7), HostPort("fe80::2", 26379)), "m"),
        ),
        (
            "redis+sentinel://palaver-api:p%40%2F%3A@a/m/0",
            Sentinels((HostPort("a", 26379),), "m", 0, Login("palaver-api", "p@/:")),
        ),
        ("redis+sentinel://:p@a/m/0", Sentinels((HostPort("a", 26379),), "m", 0, Login(None, "p"))),
        ("redis+sentinel://u:p@w@a/m/0", Sentinels((HostPort("a", 26379),), "m", 0, Login("u", "p@w"))),
        (
            "redis+sentinel://a/m/0?sentinel_username=watch%20me&sentinel_password=%26%3D",
            Sentinels((HostPort("a", 26379),), "m", 0, None, Login("watch me", "&=")),
        ),
        (
            "redis+sentinel://a/m?sentinel_password=p",
            Sentinels((HostPort("a", 26379),), "m", 0, None, Login(None, "p")),
        ),
        (
            "rediss+sentinel://a/m",
            Sentinels((HostPort("a", 26379),), "m", tls=(("ssl_cert_reqs", ssl.CERT_REQUIRED),)),
        ),
        (
            "rediss+sentinel://a/m?ssl_ca_certs=/own%20ca.pem&ssl_check_hostname=false&ssl_cert_reqs=none",
            Sentinels(
                (HostPort("a", 26379),),
                "m",
                tls=(("ssl_cert_reqs", ssl.CERT_NONE), ("ssl_ca_certs", "/own ca.pem"), ("ssl_check_hostname", False)),
            ),
        ),
    ],
)
def test_an_address_is_read(url: str, read: Sentinels) -> None:
    assert by_sentinels(url)
    assert sentinels_of(url) == read
    assert Settings(redis_url=url, broker_url=url).one_server


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("://s3cret@a/m", "a login is written user:password@"),
        ("://s3cret:@a/m", "a login is written user:password@"),
        ("://:s3cret/x@a/m", "/ is %2F"),
        ("://:s3cret?x@a/m", "/ is %2F"),
        ("://:s3cret#x@a/m", "written %23"),
        ("://", "the name or the IP address of each Sentinel"),
        (":///m/0", "the name or the IP address of each Sentinel"),
        ("://a,/m/0", "the name or the IP address of each Sentinel"),
        ("://a,,b/m/0", "the name or the IP address of each Sentinel"),
        ("://a b/m/0", "the name or the IP address of each Sentinel"),
        ("://a%41/m/0", "the name or the IP address of each Sentinel"),
        ("://" + "a" * 254 + "/m/0", "the name or the IP address of each Sentinel"),
        ("://a:s3cret/m/0", "a number from 1 to 65535"),
        ("://a:0/m/0", "a number from 1 to 65535"),
        ("://a:65536/m/0", "a number from 1 to 65535"),
        ("://a:" + "9" * 5000 + "/m/0", "a number from 1 to 65535"),
        ("://a:²/m/0", "a number from 1 to 65535"),
        ("://a:-1/m/0", "a number from 1 to 65535"),
        ("://::1/m/0", "stands in brackets"),
        ("://[::1/m/0", "stands in brackets"),
        ("://[::1]26379/m/0", "stands in brackets"),
        ("://[s3cret]:1/m/0", "stands in brackets"),
        ("://a", "the name of the service"),
        ("://a/", "the name of the service"),
        ("://a//0", "the name of the service"),
        ("://a/s3cret!/0", "the name of a service has letters"),
        ("://a/" + "m" * 129, "the name of a service has letters"),
        ("://a/m/s3cret", "the number of a database"),
        ("://a/m/0/0", "the number of a database"),
        ("://a/m/-1", "the number of a database"),
        ("://a/m/65536", "the number of a database"),
        ("://a/m/" + "1" * 5000, "the number of a database"),
        ("://a/m/0?s3cret", "it takes sentinel_username, sentinel_password"),
        ("://a/m/0?password=s3cret", "it takes sentinel_username, sentinel_password"),
        ("://a/m/0?sentinel_password=s3cret&db=1", "it takes sentinel_username, sentinel_password"),
        ("://a/m/0?sentinel_password=s3cret&sentinel_password=s3cret", "each option once"),
        ("://a/m/0?sentinel_username=s3cret", "has a sentinel_password"),
        ("://a/m/0?sentinel_username=s3cret&sentinel_password=", "has a sentinel_password"),
        ("://a/m/0?sentinel_password=", "has a sentinel_password"),
        ("://a/m/0?ssl_ca_certs=s3cret", "rediss\\+sentinel:// only"),
        ("://" + ",".join(f"h{number}" for number in range(MOST + 1)) + "/m", f"{MOST} are the most"),
        ("://" + ",".join(f"h{number}" for number in range(1000)) + "/m", "names 1000 Sentinels"),
        ("://" + "h," * 5000 + "h/m", "at most 8192 characters"),
        ("://a/m/0?" + "&".join(f"ssl_{number}=1" for number in range(99)), "Max number of fields"),
    ],
)
def test_one_that_is_wrong_is_told_without_a_word_of_it(rest: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        sentinels_of(f"redis+sentinel{rest}")
    assert SECRET not in str(refused.value)


def test_a_wrong_option_of_tls_is_told() -> None:
    with pytest.raises(ValueError, match="ssl_cert_reqs` is none, optional or required"):
        sentinels_of("rediss+sentinel://a/m?ssl_cert_reqs=maybe")


def test_passwords_are_not_shown_with_it() -> None:
    url = f"redis+sentinel://u:{SECRET}@a/m?sentinel_password={SECRET}2"
    assert SECRET not in repr(sentinels_of(url))
    shown = json.dumps(transport_options(url), default=str)
    assert SECRET not in repr(transport_options(url))
    assert json.loads(shown)["sentinels"] == "a:26379", "a worker tells whoever asks"
    assert Settings(redis_url=url).secrets == (SECRET, f"{SECRET}2")


def test_a_broker_is_named_to_kombu_by_its_first_sentinel() -> None:
    url = "rediss+sentinel://palaver-worker:p%40w@a:1,b:2/orders/3?ssl_ca_certs=/ca.pem"
    assert is_redis(url)
    assert user_of(url) == "palaver-worker"
    assert kombu_url(url) == "redis-sentinel://palaver-worker:p%40w@a:1/3"
    assert kombu_url("redis+sentinel://[::1]/m") == "redis-sentinel://[::1]:26379/0"
    assert kombu_url(f"redis+sentinel://:p@{LIKE.partition('://')[2]}") == "redis-sentinel://:p@HOST:26379/0"
    assert transport_options(url)["sentinels"].sentinels == sentinels_of(url)
    assert tls_options(url) == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/ca.pem"}
    assert tls_options("redis+sentinel://a/m") == {}
