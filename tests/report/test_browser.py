"""The page in a real browser: it fits a phone, can be read in both themes, and loads nothing."""

import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")

PROBE = """
<script>
addEventListener("load", () => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const worst = { ratio: 99, where: "" };
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || element.closest("script")) continue;
    const style = getComputedStyle(element);
    const ink = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) Object.assign(worst, { ratio, where: element.outerHTML.slice(0, 200) });
  }
  parent.postMessage(JSON.stringify({
    inner: innerWidth, scroll: document.documentElement.scrollWidth, worst,
    fetched: performance.getEntriesByType("resource").filter(e => !e.name.startsWith("data:")).length,
    ground: getComputedStyle(document.body).backgroundColor,
    smallest: Math.min(...[...document.querySelectorAll("svg text")]
      .map(t => t.getBoundingClientRect().height).filter(height => height)),
    focusable: document.querySelectorAll("a[href], summary, [tabindex='0']").length,
  }), "*");
});
</script>
"""
FRAME = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><body><pre id="probe"></pre>
<script>addEventListener("message", e => { document.getElementById("probe").textContent = e.data; });</script>
<iframe width="WIDTH" height="900" style="border: 0" src="report.html"></iframe>
"""
"""A window is never narrower than 500 pixels; a frame can be as narrow as a phone."""


def browse(folder, *arguments):
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={folder / 'profile'}",
            "--virtual-time-budget=3000",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def probe(page, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(page.replace("</body>", PROBE + "</body>"))

    def look(width, dark):
        theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        frame = folder / f"{width}.html"
        frame.write_text(FRAME.replace("WIDTH", str(width)))
        dom = browse(folder, "--window-size=1400,900", theme, "--dump-dom", frame.as_uri())
        found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)[1]
        for name, sign in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            found = found.replace(name, sign)
        return json.loads(found)

    return look


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200], ids=["phone", "desktop"])
def test_it_fits_and_can_be_read(probe, width, dark):
    seen = probe(width, dark)
    assert seen["inner"] == width
    assert seen["scroll"] <= width, "the page scrolls sideways"
    assert seen["worst"]["ratio"] >= 4.5, seen["worst"]["where"]
    assert seen["fetched"] == 0
    assert seen["smallest"] >= 7
    assert seen["focusable"] > 20
    assert seen["ground"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_it_prints(page, tmp_path):
    (tmp_path / "report.html").write_text(page)
    out = tmp_path / "report.pdf"
    browse(tmp_path, f"--print-to-pdf={out}", (tmp_path / "report.html").as_uri())
    data = out.read_bytes()
    assert data.startswith(b"%PDF")
    assert 5 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 40
