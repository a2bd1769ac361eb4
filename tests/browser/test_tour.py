"""The tour as a reader meets it: opened in JupyterLab in Chromium, every cell run, looked at."""

import shutil
from pathlib import Path

import pytest
from chromium import Page, installed
from lab import ROOT, jupyter_lab

TOUR = ROOT / "notebooks" / "00_tour.ipynb"
PICTURE = ROOT / "build" / "tour.png"
WIDTH, HEIGHT = 1180, 1000

OPEN = """(async () => {
  await jupyterapp.restored;
  await jupyterapp.commands.execute('application:set-mode', {mode: 'single-document'});
  const panel = await jupyterapp.commands.execute('docmanager:open', {path: '00_tour.ipynb'});
  await panel.context.ready;
  await panel.sessionContext.ready;
  jupyterapp.shell.activateById(panel.id);
  jupyterapp.shell.collapseLeft();
  window.tour = panel.content;
  return tour.widgets.length;
})()"""
RUN = """(async () => {
  await jupyterapp.commands.execute('notebook:run-all-cells');
  return true;
})()"""
OUTPUTS = """tour.widgets
  .filter(cell => cell.model.type === 'code')
  .map(cell => cell.model.toJSON())
  .map(cell => [cell.source, cell.execution_count, cell.outputs])"""
# Back to the top, and where the last cell then ends.
FULL = """(async () => {
  tour.activeCellIndex = 0;
  const last = tour.widgets[tour.widgets.length - 1].node;
  const scroller = tour.node.querySelector('.jp-WindowedPanel-outer') || tour.node;
  scroller.scrollTop = 0;
  await new Promise(done => setTimeout(done, 300));
  return Math.ceil(last.getBoundingClientRect().bottom);
})()"""
# Pictures wider than the page are cut off or need scrolling.
WIDE = """[...document.querySelectorAll('.jp-OutputArea-output')]
  .filter(node => node.scrollWidth > node.clientWidth + 1).length"""


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.skipif(installed() is None, reason="no Chromium; apt-get install chromium")
def test_every_cell_of_the_tour_runs_in_jupyterlab(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    shutil.copy(TOUR, served)
    with (
        jupyter_lab(served, tmp_path) as address,
        Page(tmp_path / "chromium", WIDTH, HEIGHT) as page,
    ):
        page.resize(HEIGHT)
        page.call("Page.navigate", url=address)
        page.until("typeof jupyterapp === 'object' && !!jupyterapp", 90)
        assert page.evaluate(OPEN, 90) > 10
        page.evaluate(RUN, 540)
        page.until("document.images.length && [...document.images].every(i => i.complete)", 30)
        cells = page.evaluate(OUTPUTS)
        too_wide = page.evaluate(WIDE)
        page.resize(page.evaluate(FULL) + 80)
        page.evaluate("new Promise(done => setTimeout(done, 1000))")
        page.screenshot(PICTURE)
    for source, count, outputs in cells:
        assert count, f"a cell was not run:\n{source}"
        assert not any(o["output_type"] == "error" for o in outputs), source
        assert not any(o.get("name") == "stderr" for o in outputs), (source, outputs)
    assert any("image/png" in o.get("data", {}) for _, _, outputs in cells for o in outputs)
    assert too_wide == 0
