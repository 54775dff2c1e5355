"""The pages for people, and that a browser needs nothing but the coordinator to show them."""

from __future__ import annotations

import re

import httpx
import pytest

from api.testing import FakeFacade


def links_of(page: httpx.Response) -> list[str]:
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    return re.findall(r'(?:href|src)="([^"]+)"', page.text)


def test_the_first_page_links_what_can_be_looked_at(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a")
    links = links_of(http.get("/"))
    assert {"/docs", "/v1/jobs", "/v1/window", "/healthz", "/metrics"} <= set(links)
    for link in links:
        assert http.get(link).status_code in (200, 503), link


def test_every_call_without_a_parameter_is_linked(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    plain = [path for path, methods in paths.items() if "get" in methods and "{" not in path]
    assert set(plain) <= set(links_of(http.get("/")))


def test_the_documentation_comes_from_here_alone(http: httpx.Client) -> None:
    page = http.get("/docs")
    links = links_of(page)
    assert links and all(link.startswith("/docs-assets/") for link in links)
    assert "//" not in page.text.replace("<!--", "")
    assert "/openapi.json" in page.text
    for link in links:
        assert len(http.get(link).content) > 1000, link


@pytest.mark.parametrize("path", ["/docs-assets/", "/docs-assets/none.js", "/docs-assets/../core.py"])
def test_no_other_file_is_served(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"
