"use strict";
// Draws the page's charts and tables from the JSON of #data. It makes elements and sets texts; it never parses HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const views = new Map();

  const make = (name, text = "", attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  const shown = (value) => {
    if (value === null || value === undefined) return "-";
    if (typeof value !== "number") return String(value);
    const digits = Math.abs(value) >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 };
    return value.toLocaleString("en-US", digits);
  };

  const isNumeric = (values) => values.some((each) => typeof each === "number");
  const LONG = 39; // A commit has 40 letters, and must fit a phone.

  // A table's head and body. `values` are arrays in the order of the columns.
  const fillTable = (table, columns, values, head) => {
    const numeric = columns.map((_, i) => isNumeric(values.map((row) => row[i])));
    const body = make("tbody");
    for (const row of values) {
      const line = make("tr");
      row.forEach((value, i) => {
        const cell = make("td", shown(value));
        if (numeric[i]) cell.className = "number";
        else if (typeof value === "string" && value.length > LONG) cell.className = "long";
        line.append(cell);
      });
      body.append(line);
    }
    const top = make("thead");
    top.append(head(numeric));
    table.replaceChildren(top, body);
  };

  const plainHead = (columns) => (numeric) => {
    const line = make("tr");
    columns.forEach((column, i) => {
      const cell = make("th", column.header, { scope: "col" });
      if (numeric[i]) cell.className = "number";
      line.append(cell);
    });
    return line;
  };

  // Tooltips: Vega gives an object of texts, shown as lines.
  const tip = make("div", "", { id: "tip", hidden: "" });
  document.body.append(tip);
  const showTip = (_, event, __, value) => {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = Object.entries(value).map(([key, text]) => `${key}: ${shown(text)}`).join("\n");
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
  };

  // A legend names only what the chosen rows have.
  const withUsedColours = (spec, rows) => {
    const copy = structuredClone(spec);
    for (const layer of copy.layer) {
      const colour = layer.encoding.color;
      if (!colour?.scale?.domain ) continue;
      const used = new Set(rows.map((row) => row[colour.field]));
      const pairs = colour.scale.domain.map((name, i) => [name, colour.scale.range[i]]).filter(([name]) => used.has(name));
      colour.scale = { domain: pairs.map(([name]) => name), range: pairs.map(([, value]) => value) };
    }
    return copy;
  };

  // On a phone, axis labels get half of the width. A legend has as many columns as fit.
  const fittingConfig = (width, spec) => {
    const config = structuredClone(data.config);
    const isPhone = width < 600;
    if (isPhone) config.axis.labelFontSize = 11;
    if (isPhone) config.axis.labelLimit = width * 0.57;
    const names = spec.layer.flatMap((layer) => layer.encoding.color?.scale?.domain ?? []);
    const longest = Math.max(1, ...names.map((name) => name.length));
    const fitting = Math.floor((width * (isPhone ? 0.55 : 0.8)) / (longest * 7 + 24));
    config.legend.columns = Math.max(1, Math.min(config.legend.columns, fitting));
    return config;
  };

  const drawChart = async (place, spec, rows) => {
    const whole = { ...withUsedColours(spec, rows), data: { values: rows } };
    const config = fittingConfig(place.clientWidth, whole);
    place.replaceChildren();
    const compiled = vegaLite.compile(whole, { config, logger: vega.logger(vega.Error) }).spec;
    const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
      expr: vega.expressionInterpreter,
      renderer: "svg",
      container: place,
      tooltip: showTip,
      logLevel: vega.Error,
    });
    views.get(place)?.finalize();
    views.set(place, view);
    await view.runAsync();
    // The chart is one image with a label; its marks are no images of their own.
    place.querySelector("svg").setAttribute("aria-hidden", "true");
  };

  const drawPanel = async (figure, index) => {
    const panel = data.panels[figure.dataset.panel];
    const set = panel.sets[index];
    const table = make("table");
    fillTable(
      table,
      panel.columns,
      set.rows.map((row) => panel.columns.map((column) => row[column.field] ?? null)),
      plainHead(panel.columns),
    );
    figure.querySelector(".table").replaceChildren(table);
    if (panel.spec) await drawChart(figure.querySelector(".chart"), panel.spec, set.rows);
    letScroll(figure.querySelector(".table"));
  };

  // A table that is wider than the page scrolls sideways, also by keyboard. A region needs a name.
  const letScroll = (table) => {
    const isWider = table.scrollWidth > table.clientWidth;
    const title = table.closest("figure").querySelector("h3, summary").textContent;
    for (const [key, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": title })) {
      if (isWider) table.setAttribute(key, value);
      else table.removeAttribute(key);
    }
  };
  const sizes = new ResizeObserver((changed) => changed.forEach(({ target }) => letScroll(target)));

  const figures = [...document.querySelectorAll("figure[data-panel]")];
  for (const figure of figures) sizes.observe(figure.querySelector(".table"));
  for (const select of document.querySelectorAll("select[data-choice]")) {
    const panel = data.panels[select.closest("figure").dataset.panel];
    panel.sets.forEach((set) => select.append(make("option", set.label, { value: set.key })));
    select.selectedIndex = panel.first;
    select.addEventListener("change", () => choose(panel.choice, select.value));
  }

  // Every panel of the same choice that has the chosen key shows it.
  const choose = (choice, key) => {
    for (const figure of figures) {
      const panel = data.panels[figure.dataset.panel];
      const index = panel.sets.findIndex((set) => set.key === key);
      if (panel.choice !== choice || index < 0) continue;
      const select = figure.querySelector("select");
      if (select) select.value = key;
      drawPanel(figure, index);
    }
  };

  // The table of all cases.
  const raw = document.getElementById("raw");
  const STEP = 100;
  const state = { rows: data.table.rows, sorted: -1, ascending: true, visible: STEP };

  const compare = (i, sign) => (a, b) => {
    const [x, y] = [a[i], b[i]];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };

  const selectRows = () => {
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => {
      const text = row.join("\t").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    state.rows = words.length ? data.table.rows.filter(matches) : [...data.table.rows];
    if (state.sorted >= 0) state.rows.sort(compare(state.sorted, state.ascending ? 1 : -1));
    showRows();
  };

  const sortBy = (i) => {
    state.ascending = state.sorted === i ? !state.ascending : true;
    state.sorted = i;
    selectRows();
    raw.querySelectorAll("th button")[i].focus();
  };

  const sortingHead = (numeric) => {
    const line = make("tr");
    data.table.columns.forEach((column, i) => {
      const order = state.sorted === i ? (state.ascending ? "ascending" : "descending") : "none";
      const cell = make("th", "", { scope: "col", "aria-sort": order });
      if (numeric[i]) cell.className = "number";
      const button = make("button", column.header, { type: "button" });
      button.addEventListener("click", () => sortBy(i));
      cell.append(button);
      line.append(cell);
    });
    return line;
  };

  const showRows = () => {
    const table = make("table");
    fillTable(table, data.table.columns, state.rows.slice(0, state.visible), sortingHead);
    raw.replaceChildren(table);
    const visible = Math.min(state.visible, state.rows.length);
    document.getElementById("count").textContent =
      `${visible} of ${state.rows.length} matching rows shown, ${data.table.rows.length} in all`;
    document.getElementById("more").hidden = visible === state.rows.length;
  };

  // A text that a spreadsheet would run as a formula gets an apostrophe.
  const csvCell = (value) => {
    if (value === null) return "";
    const text = typeof value === "string" && /^[=+\-@\t]/.test(value) ? `'${value}` : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };

  const csv = () => {
    const lines = [data.table.columns.map((column) => column.header), ...state.rows];
    return lines.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
  };

  const copy = async () => {
    const text = csv();
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    document.getElementById("status").textContent = `${state.rows.length} rows copied as CSV`;
  };

  if (raw) {
    document.getElementById("filter").addEventListener("input", () => {
      state.visible = STEP;
      selectRows();
    });
    document.getElementById("copy").addEventListener("click", copy);
    document.getElementById("more").addEventListener("click", () => {
      state.visible += STEP;
      showRows();
    });
    showRows();
  }

  // Charts are drawn in their order; the browser paints between them.
  const drawAll = async () => {
    for (const figure of figures) {
      try {
        await drawPanel(figure, data.panels[figure.dataset.panel].first);
      } catch (error) {
        figure.querySelector(".chart").textContent = "This chart could not be drawn; its table is below.";
        console.error(figure.id, error);
      }
      document.documentElement.dataset.drawn = String(1 + Number(document.documentElement.dataset.drawn ?? 0));
      await new Promise((resolve) => setTimeout(resolve));
    }
    document.documentElement.dataset.done = "yes";
  };
  drawAll();
})();
