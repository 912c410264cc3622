// Sliders: the curves computed anew; choosers of variants.
(() => {
  const COUNT = 400;
  const places = (low, high, kinks) => {
    const found = Array.from({ length: COUNT + 1 }, (_, k) => low + (high - low) * k / COUNT);
    for (const at of kinks) found.push(at - 1e-7, at, at + 1e-7);
    return found.filter((x) => x >= low && x <= high).sort((a, b) => a - b);
  };
  // Where a guard changes its sign, by halving; touching zeros are kinks too.
  const zeros = (guard, low, high, p) => {
    const g = (x) => guard(x, p)[0];
    const found = [];
    const step = (high - low) / 199;
    for (let k = 0; k < 199; k++) {
      let a = low + k * step, b = a + step;
      if (g(a) === 0) { found.push(a); continue; }
      if (!(g(a) * g(b) < 0)) continue;
      for (let n = 0; n < 60; n++) { const m = (a + b) / 2; if (g(a) * g(m) <= 0) b = m; else a = m; }
      found.push((a + b) / 2);
    }
    return found;
  };
  const draw = (svg, column, kinks) => {
    const [xl, xh] = svg.dataset.x.split(" ").map(Number), [yl, yh] = svg.dataset.y.split(" ").map(Number);
    const [left, right, bottom, top] = svg.dataset.box.split(" ").map(Number);
    const across = (x) => left + (x - xl) / (xh - xl) * (right - left);
    const down = (y) => bottom + (y - yl) / (yh - yl) * (top - bottom);
    let text = "", pen = false, before = NaN;
    for (const [x, y] of column) {
      const isKink = kinks.some((at) => Math.abs(x - at) < 1e-9);
      if (!Number.isFinite(y)) { pen = false; continue; }
      if (isKink && Math.abs(y - before) > 1e-4) { pen = false; before = NaN; continue; }
      const held = Math.max(yl - (yh - yl), Math.min(yh + (yh - yl), y));
      text += `${pen ? "L" : "M"}${across(x).toFixed(1)} ${down(held).toFixed(1)}`;
      pen = true;
      before = y;
    }
    const line = svg.querySelector(".line"), ghost = svg.querySelector(".ghost");
    if (!ghost.getAttribute("d")) ghost.setAttribute("d", line.getAttribute("d"));
    line.setAttribute("d", text);
    svg.querySelector(".marks").innerHTML = kinks.map((at) =>
      `<line class="mark" x1="${across(at)}" x2="${across(at)}" y1="${top}" y2="${bottom}"/>`).join("");
  };
  const evaluate = ({ f, guards }, low, high, p) => {
    const kinks = guards.flatMap((guard) => zeros(guard, low, high, p));
    const rows = places(low, high, kinks).map((x) => [x, f(x, p)]);
    return [kinks, rows];
  };
  document.querySelectorAll(".plots").forEach((block) => {
    const scripts = SCRIPTS[Number(block.dataset.variant)];
    const sliders = [...block.querySelectorAll("input[type=range]")];
    if (!scripts.every(Boolean) || !sliders.length) return;
    const update = () => {
      const p = sliders.map((slider) => Number(slider.value));
      sliders.forEach((slider) => {
        slider.closest("label").querySelector("output").textContent =
          String(Number(Number(slider.value).toPrecision(4))).replace("-", "\u2212");
      });
      block.querySelectorAll(".curves").forEach((curves, j) => {
        const figures = [...curves.querySelectorAll("svg.curve")];
        const [low, high] = figures[0].dataset.x.split(" ").map(Number);
        const [kinks, rows] = evaluate(scripts[j], low, high, p);
        figures.forEach((svg, k) => draw(svg, rows.map(([x, row]) => [x, row[k]]), kinks));
      });
    };
    sliders.forEach((slider) => slider.addEventListener("input", update));
    block.querySelector(".reset").addEventListener("click", () => {
      sliders.forEach((slider) => { slider.value = slider.dataset.start; });
      update();
    });
    block.querySelector(".sliders").hidden = false;
  });
  // Paper does not scroll: what is wider than it becomes smaller.
  const PAPER = 660;
  const wide = [...document.querySelectorAll("math")];
  window.addEventListener("beforeprint", () => wide.forEach((each) => {
    each.style.zoom = Math.min(1, PAPER / each.getBoundingClientRect().width);
  }));
  window.addEventListener("afterprint", () => wide.forEach((each) => { each.style.zoom = ""; }));
  const chooser = document.querySelector(".chooser");
  if (chooser) {
    const choose = () => {
      const chosen = chooser.querySelector("input:checked").value;
      document.querySelectorAll(".variant").forEach((each) => { each.hidden = each.dataset.variant !== chosen; });
    };
    chooser.hidden = false;
    chooser.addEventListener("change", choose);
    choose();
  }
})();
