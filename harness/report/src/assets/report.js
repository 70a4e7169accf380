"use strict";
// The page of one run. All data comes from the JSON in #data and is shown as text only: nothing here makes markup from
// strings, and the one place that makes links checks where they lead.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { statuses, columns, cases, requirements, sentences, texts, units, findings, scenarios } = data;
  const byId = (id) => document.getElementById(id);
  const NO_AREA = "other";
  const CARDS = 20;

  // ---- making elements -------------------------------------------------------------------------------------------

  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "on") element.addEventListener("click", value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) element.append(child);
    }
    return element;
  };
  const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const format = new Intl.NumberFormat("en-US");
  const grouped = (number) => (number < 1000 ? String(number) : format.format(number));
  const counted = (number, noun, several = `${noun}s`) => `${grouped(number)} ${number === 1 ? noun : several}`;
  const lasting = (ms) =>
    ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60000)} min ${Math.floor((ms % 60000) / 1000)} s`;
  const mark = (status, text) =>
    make("span", { class: `mark s-${statuses[status].key}` }, `${statuses[status].symbol} ${text}`);
  const badge = (evidence) => make("span", { class: `badge e-${evidence}` }, evidence);
  const say = (text) => { byId("said").textContent = text; };

  /** A link to the web, or none. */
  const webLink = (url) =>
    /^https?:\/\//.test(url) ? make("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, url) : url;
  /** A link to a file of the run: relative, so no scheme can hide in it. */
  const fileLink = (path, name = path) => {
    if (path.startsWith("/") || path.includes("\\")) return name;
    const parts = path.split("/").map((part) => encodeURIComponent(part));
    return make("a", { href: "./" + parts.join("/") }, name);
  };

  // ---- rows: areas, requirements, cases --------------------------------------------------------------------------

  const width = columns.length;
  const depth = statuses.length;
  const newCounts = () => new Float64Array(width * depth);
  const areaOf = (requirement) => requirement.replace(/-[^-]*$/, "") || requirement;
  const collator = new Intl.Collator("en", { numeric: true });
  const byName = (a, b) => collator.compare(a, b);

  /** Rows by key; a key says what the row holds, so that a link to it stays good. */
  const rows = new Map();
  const rowOf = (kind, key, name, parent) => {
    let row = rows.get(key);
    if (!row) {
      row = { kind, key, name, parent, title: "", counts: newCounts(), units: [], children: new Set() };
      rows.set(key, row);
      if (parent) parent.children.add(row);
    }
    return row;
  };
  const all = rowOf("all", "all", "all checks", null);
  for (const unit of units) {
    const into = new Set([all]);
    const covers = unit.covers.length ? unit.covers.map((index) => requirements[index]) : [null];
    for (const requirement of covers) {
      const name = requirement === null ? NO_AREA : areaOf(requirement);
      const area = rowOf("area", `area:${name}`, name, all);
      const id = requirement === null ? "no requirement" : requirement;
      const row = rowOf("requirement", `req:${id}`, id, area);
      row.title = sentences[requirements.indexOf(requirement)] || "";
      const one = cases[unit.case];
      const leaf = rowOf("case", `req:${id}|${one.id}`, one.id, row);
      leaf.title = one.title;
      for (const each of [area, row, leaf]) into.add(each);
    }
    for (const row of into) {
      row.units.push(unit);
      for (const cell of unit.cells) {
        for (const [status, count] of cell.counts) row.counts[cell.column * depth + status] += count;
      }
    }
  }
  const childrenOf = (row) => (row.inOrder ||= [...row.children].sort((a, b) => byName(a.name, b.name)));
  const countsOf = (row, column) => row.counts.subarray(column * depth, (column + 1) * depth);
  const totalOf = (row) => {
    if (!row.total) {
      row.total = new Float64Array(depth);
      for (let index = 0; index < row.counts.length; index += 1) row.total[index % depth] += row.counts[index];
    }
    return row.total;
  };
  const failing = (counts) => counts.some((count, status) => count > 0 && statuses[status].failing);
  const countsText = (counts) => {
    const parts = [];
    for (let status = 0; status < depth; status += 1) {
      if (counts[status] > 0) parts.push(`${grouped(counts[status])} ${statuses[status].word}`);
    }
    return parts.join(", ");
  };

  // ---- what is shown ---------------------------------------------------------------------------------------------

  const open = new Set();
  const shown = new Set();
  /** Places of the columns that are shown, in order; and the one that rows are ordered by, or none. */
  let columnsShown = columns.map((_, index) => index);
  let sortedBy = null;
  /** The worse, the first: how bad a row is in the column that rows are ordered by. */
  const badness = (row) => {
    const counts = sortedBy === "all" ? totalOf(row) : countsOf(row, sortedBy);
    return Array.from(counts, (count, status) => (statuses[status].failing ? count : 0)).reduce((sum, count) => sum + count, 0);
  };
  const ordered = (list) => (sortedBy === null ? list : [...list].sort((a, b) => badness(b) - badness(a)));
  let words = [];
  let selected = null;

  const areas = childrenOf(all);
  for (const area of areas) {
    if (requirements.length <= 60 || failing(totalOf(area))) open.add(area.key);
  }

  const passesVerdicts = (counts) => {
    if (!shown.size) return true;
    for (const status of shown) if (counts[status] > 0) return true;
    return false;
  };
  /** Texts of findings by case, so that a filter finds what a failure says. */
  const said = new Map();
  for (const finding of findings) {
    const text = [finding.id, finding.kind, finding.lines[0] ? finding.lines[0][1] : ""].join(" ").toLowerCase();
    for (const requirement of finding.covers.length ? finding.covers.map((index) => requirements[index]) : ["no requirement"]) {
      const key = `req:${requirement}|${cases[finding.case].id}`;
      said.set(key, (said.get(key) || "") + " " + text);
    }
  }
  const textOf = (row) => {
    if (row.text === undefined) {
      row.text = [row.name, row.parent && row.kind === "case" ? row.parent.name : "", row.title, said.get(row.key) || ""].join(" ").toLowerCase();
    }
    return row.text;
  };
  const matches = (row) => words.every((word) => textOf(row).includes(word));

  const visible = () => {
    const list = [];
    for (const area of ordered(areas)) {
      if (!passesVerdicts(totalOf(area))) continue;
      const areaHit = !words.length || matches(area);
      const inside = [];
      for (const row of ordered(childrenOf(area))) {
        if (!passesVerdicts(totalOf(row))) continue;
        const hits = ordered(childrenOf(row)).filter((leaf) => passesVerdicts(totalOf(leaf)) && (!words.length || matches(leaf)));
        const hit = areaHit || matches(row);
        if (!hit && !hits.length) continue;
        inside.push(row);
        const leaves = hit && !hits.length ? ordered(childrenOf(row)) : hits;
        if (open.has(row.key) || (words.length && !hit)) inside.push(...leaves);
      }
      if (!inside.length) continue;
      list.push(area);
      if (open.has(area.key) || words.length) list.push(...inside);
    }
    return list;
  };

  // ---- the matrix ------------------------------------------------------------------------------------------------

  const groupsBy = (key) => {
    const groups = [];
    columnsShown.forEach((index) => {
      const column = columns[index];
      const last = groups[groups.length - 1];
      if (last && last.key === key(column)) last.span += 1;
      else groups.push({ key: key(column), first: column, at: index, span: 1 });
    });
    return groups;
  };
  let platforms = [];
  let backends = [];
  let groupStarts = new Set();
  const groupColumns = () => {
    platforms = groupsBy((column) => column.platform);
    backends = groupsBy((column) => JSON.stringify([column.platform, column.backend, column.driver, column.launcher, column.evidence, column.torch]));
    groupStarts = new Set([...platforms, ...backends].map((group) => group.at));
  };
  groupColumns();

  const head = () =>
    make("thead", {},
      make("tr", {}, make("th", { class: "name", rowspan: 3, scope: "col" }, "requirement", make("br"), "and case"),
        platforms.map((group) => make("th", { class: "group", colspan: group.span, scope: "colgroup" }, make("div", { class: "stay" }, make("b", {}, group.first.platform))))),
      make("tr", {}, backends.map((group) => {
        const one = group.first;
        return make("th", { class: "group", colspan: group.span, scope: "colgroup" },
          make("div", { class: "stay" }, make("b", {}, one.backend), make("span", {}, badge(one.evidence)),
            make("span", {}, `torch ${one.torch || "unknown"}`),
            make("span", {}, one.launcher === "local" ? one.driver : `${one.driver}, ${one.launcher}`)));
      })),
      make("tr", {}, columnsShown.map((index) => {
        const column = columns[index];
        const isSorted = sortedBy === index;
        return make("th", { class: groupStarts.has(index) ? "group" : "", scope: "col", "aria-sort": isSorted ? "descending" : null },
          make("button", {
            type: "button", class: "by", "data-sort": index, title: `${column.name}: rows with failures in this column first`,
            "aria-label": `ws ${column.size}, ${column.name}: ${isSorted ? "rows are ordered by its failures" : "order rows by its failures"}`,
          }, `ws ${column.size}`, isSorted && make("span", { "aria-hidden": "true" }, " ▾")));
      })));

  const cellOf = (row, index) => {
    const counts = countsOf(row, index);
    const place = groupStarts.has(index) ? "group" : "";
    let worst = -1;
    for (let status = 0; status < depth && worst < 0; status += 1) {
      if (counts[status] > 0 && (!shown.size || shown.has(status))) worst = status;
    }
    if (worst < 0) {
      const any = counts.some((count) => count > 0);
      return make("td", { class: place }, make("span", { class: "none", "aria-label": any ? "hidden by the filter" : "no checks" }, any ? "·" : ""));
    }
    // Refusals are no passes, yet where both are as they must be the passes are what a reader looks for.
    const withRefusals = statuses[worst].key === "refused" && counts[depth - 1] > 0 && !shown.size;
    if (withRefusals) worst = depth - 1;
    const { key, symbol } = statuses[worst];
    // Beside what is wrong, what is right: a cell with one failure of a hundred is another than one that fails as a whole.
    const right = worst !== depth - 1 && !shown.size ? counts[depth - 1] : 0;
    const column = columns[index];
    const isOpen = selected && selected.row === row.key && selected.column === index;
    const text = `${symbol} ${grouped(counts[worst])}${withRefusals ? " ∅" : ""}`;
    const label = `${text}${right > 0 ? ` ✓ ${grouped(right)}` : ""}, ${row.name}, ${column.name}, ${column.evidence}: ${countsText(counts)}`;
    return make("td", { class: place },
      make("button", {
        type: "button", class: `cell s-${key}`, tabindex: -1, title: label, "aria-label": label,
        "aria-expanded": isOpen ? "true" : "false", "data-row": row.key, "data-column": index,
      }, text, right > 0 && make("span", { class: "right" }, ` ✓ ${grouped(right)}`)));
  };

  const nameOf = (row) => {
    const cell = (child) => make("th", { class: "name", scope: "row" }, child);
    if (row.kind === "all") return cell(make("div", { class: "row" }, make("span", { class: "fold" }), row.name));
    if (row.kind === "case") {
      return cell(make("div", { class: "row" }, make("span", { class: "id" }, row.name), make("span", { class: "title" }, row.title)));
    }
    const isOpen = open.has(row.key) || (row.kind === "area" && words.length > 0);
    const noun = row.kind === "area" ? "requirement" : "case";
    return cell(make("button", { type: "button", class: "row", "data-fold": row.key, "aria-expanded": isOpen },
      make("span", { class: "fold", "aria-hidden": "true" }, isOpen ? "▾" : "▸"), make("span", { class: "id" }, row.name),
      row.title && make("span", { class: "title", title: row.title }, row.title),
      make("span", { class: "of" }, counted(row.children.size, noun))));
  };

  const rowElement = (row) =>
    make("tr", { class: row.kind }, nameOf(row), columnsShown.map((index) => cellOf(row, index)));

  const grid = byId("grid");
  let table = null;
  let body = null;
  /** Rows that are not made yet: a page of a large run has tens of thousands of cells, and shows a few hundred at once. */
  let waiting = [];
  const CELLS_AT_ONCE = 1500;
  const moreRows = () => {
    const count = Math.max(12, Math.floor(CELLS_AT_ONCE / (columnsShown.length + 1)));
    body.append(...waiting.splice(0, count).map(rowElement));
  };
  /** Makes rows until there is one of this key, or all. */
  const makeRow = (key) => {
    while (waiting.some((row) => row.key === key)) moreRows();
  };
  const makeVisible = () => {
    while (waiting.length && body.getBoundingClientRect().bottom - grid.getBoundingClientRect().bottom < 400) moreRows();
  };
  const showMatrix = () => {
    const list = visible();
    const focused = document.activeElement && document.activeElement.dataset ? { ...document.activeElement.dataset } : {};
    waiting = [all, ...list];
    const had = body ? body.rows.length : 0;
    body = make("tbody", {});
    do moreRows(); while (waiting.length && body.rows.length < had);
    const fresh = make("table", { "aria-label": "results by requirement and column" }, head(), body);
    if (table) table.replaceWith(fresh);
    else grid.append(fresh);
    table = fresh;
    // The first rows are painted before the others are made.
    requestAnimationFrame(makeVisible);
    const first = body.querySelector(".cell");
    if (first) first.tabIndex = 0;
    byId("empty").hidden = list.length > 0;
    if (focused.fold !== undefined) { makeRow(focused.fold); find("fold", focused.fold)?.focus(); }
    if (focused.sort !== undefined) table.querySelector(`[data-sort="${focused.sort}"]`)?.focus();
  };
  const find = (name, value, column) =>
    [...body.querySelectorAll(`[data-${name}]`)].find(
      (element) => element.dataset[name] === value && (column === undefined || element.dataset.column === String(column)));
  grid.addEventListener("scroll", makeVisible, { passive: true });
  addEventListener("scroll", makeVisible, { passive: true });
  addEventListener("resize", makeVisible);
  addEventListener("beforeprint", () => { while (waiting.length) moreRows(); });

  grid.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.sort !== undefined) {
      const by = Number(button.dataset.sort);
      sortBy(sortedBy === by ? null : by);
    } else if (button.dataset.fold !== undefined) {
      const key = button.dataset.fold;
      if (!open.delete(key)) open.add(key);
      showMatrix();
    } else if (button.dataset.row !== undefined) {
      go({ row: button.dataset.row, column: columns[Number(button.dataset.column)].name });
    }
  });
  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td, th");
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!cell || !step || !body.contains(cell)) return;
    event.preventDefault();
    if (event.key === "ArrowDown" && waiting.length && cell.parentElement === body.lastElementChild) moreRows();
    const lines = [...body.rows];
    let x = cell.cellIndex;
    let y = lines.indexOf(cell.parentElement);
    for (;;) {
      x += step[0];
      y += step[1];
      const next = lines[y] && lines[y].cells[x];
      if (!next) return;
      const button = next.querySelector("button");
      if (!button) continue;
      for (const old of body.querySelectorAll('.cell[tabindex="0"]')) old.tabIndex = -1;
      if (button.classList.contains("cell")) button.tabIndex = 0;
      button.focus();
      button.scrollIntoView({ block: "nearest", inline: "nearest" });
      return;
    }
  });

  // ---- details ---------------------------------------------------------------------------------------------------

  const panel = byId("panel");
  const panelBody = byId("panel-body");
  const showPanel = (title, ...children) => {
    byId("panel-title").textContent = title;
    panelBody.replaceChildren(...children.flat(Infinity).filter(Boolean));
    const wasHidden = panel.hidden;
    panel.hidden = false;
    document.body.classList.add("open");
    panelBody.scrollTop = 0;
    redraw();
    if (wasHidden || !panel.contains(document.activeElement)) byId("panel-title").focus({ preventScroll: true });
  };
  const columnLine = (column) =>
    make("p", { class: "where" }, make("span", {}, `${column.platform} / ${column.backend} / world size ${column.size}`), badge(column.evidence),
      make("span", {}, `torch ${column.torch || "unknown"}, ${column.driver} driver, ${column.launcher} launcher`));

  const copyButton = (text) =>
    make("button", { type: "button", class: "quiet", on: (event) => {
      const button = event.currentTarget;
      const done = () => { button.textContent = "copied"; say("copied"); setTimeout(() => { button.textContent = "copy"; }, 1500); };
      const fallback = () => {
        const code = button.parentElement.querySelector("code");
        getSelection().selectAllChildren(code);
        if (document.execCommand("copy")) done();
      };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, fallback);
      else fallback();
    } }, "copy");

  /** Logs of one folder on one line: the folder, then a link for each file. */
  const logLinks = (paths) => {
    const folders = new Map();
    for (const path of paths) {
      const folder = path.slice(0, path.lastIndexOf("/") + 1);
      folders.set(folder, [...(folders.get(folder) || []), path]);
    }
    return [...folders].map(([folder, files]) => [folder, files.map((path) => [" ", fileLink(path, path.slice(folder.length))])]);
  };
  const card = (finding, inScenario) => {
    const status = statuses[finding.status];
    const lines = new Map(finding.lines);
    const tone = status.key === "regression" || status.key === "trouble" ? "bad" : status.failing ? "odd" : "known";
    const apart = new Set(["what", "expected", "actual", "repeat", "repro", "column", "log", ...(inScenario ? ["case", "world"] : [])]);
    const mono = (label) => /^(ranks? |step)/.test(label);
    const logs = finding.lines.filter(([label]) => label === "log").map(([, path]) => path);
    return make("article", { class: `card ${tone}`, "data-check": finding.id },
      mark(finding.status, status.word),
      make("code", { class: "id" }, finding.id),
      make("p", { class: "what" }, lines.get("what")),
      lines.has("expected") && make("dl", { class: "pair" },
        make("div", {}, make("dt", {}, "expected"), make("dd", {}, lines.get("expected"))),
        make("div", { class: "actual" }, make("dt", {}, "actual"), make("dd", {}, lines.get("actual")))),
      make("dl", { class: "lines" }, finding.lines.filter(([label]) => !apart.has(label)).map(([label, text]) =>
        [make("dt", {}, label), make("dd", { class: mono(label) ? "mono" : null }, label === "issue" ? webLink(text) : text)]),
        logs.length > 0 && [make("dt", {}, logs.length > 1 ? "logs" : "log"), make("dd", { class: "mono" }, logLinks(logs))]),
      ["repeat", "repro"].map((which) => lines.has(which) && make("div", { class: "repeat" },
        make("span", { class: "label" }, which === "repeat" ? "run it again" : "as one file for torchrun"),
        make("code", {}, lines.get(which)), copyButton(lines.get(which)))),
      runsOf(finding),
      finding.scenario !== null && !inScenario && make("div", { class: "actions" },
        make("a", { class: "quiet", href: hashOf({ check: finding.id }) }, "Timeline and ranks"),
      ));
  };
  /** How a check stood in the runs before, if it is not steady. */
  const runsOf = (finding) => {
    const past = data.trend && data.trend.checks.find((one) => finding.id.startsWith(one.id) && one.column.startsWith(columns[finding.column].name.split("/torch-")[0]));
    if (!past) return null;
    return make("dl", { class: "lines" },
      [["runs", strip(past.marks)], ["failed", `in ${past.failed}, ${past.words}`], ["since", past.since], ["changed", past.changed], ["owners", past.owners.join(" ")]]
        .filter(([, value]) => value).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  };
  /** One mark for each run, the oldest first. */
  const strip = (marks) => {
    const lines = new Map();
    for (const mark of marks) {
      const word = mark < 0 ? "no record" : statuses[mark].word;
      lines.set(word, (lines.get(word) || 0) + 1);
    }
    const words = [...lines].map(([word, count]) => `${count} ${word}`).join(", ");
    return make("span", { class: "strip", role: "img", "aria-label": `${counted(marks.length, "run")}, the oldest first: ${words}` },
      marks.map((mark, index) => {
        const night = data.trend.nights[index];
        const title = `${night.name} (${night.day}): ${mark < 0 ? "no record" : statuses[mark].word}`;
        return make("i", { class: mark < 0 ? "" : `s-${statuses[mark].key}`, title }, mark < 0 ? "·" : statuses[mark].symbol);
      }));
  };
  /** Cards, a page at a time. */
  const cards = (list, inScenario) => {
    const box = make("div", {});
    const more = (from) => {
      box.append(...list.slice(from, from + CARDS).map((finding) => card(finding, inScenario)));
      const rest = list.length - from - CARDS;
      if (rest > 0) {
        const button = make("button", { type: "button", class: "quiet", on: () => { button.remove(); more(from + CARDS); } }, `Show ${grouped(Math.min(rest, CARDS))} more of ${grouped(rest)}`);
        box.append(make("p", { class: "actions" }, button));
        box.append(button);
      }
    };
    more(0);
    return box;
  };
  const marks = (counts) =>
    make("div", { class: "marks" }, Array.from(counts, (count, status) => count > 0 && mark(status, `${grouped(count)} ${statuses[status].word}`)));

  /** What is only counted: refused and not run with their reasons, passes with their parameters. */
  const countedParts = (cells) => {
    const parts = [];
    const reasons = new Map();
    const params = new Map();
    const observed = new Map();
    let elements = 0;
    for (const cell of cells) {
      elements += cell.elements;
      for (const [status, text, count] of cell.reasons) {
        if (!reasons.has(status)) reasons.set(status, new Map());
        const of = reasons.get(status);
        of.set(text, (of.get(text) || 0) + count);
      }
      for (const [name, value, count] of cell.observed) {
        if (!observed.has(name)) observed.set(name, new Map());
        const of = observed.get(name);
        of.set(value, (of.get(value) || 0) + count);
      }
      for (const [name, values, more] of cell.passed) {
        if (!params.has(name)) params.set(name, { values: new Set(), more: 0 });
        const of = params.get(name);
        values.forEach((value) => of.values.add(value));
        of.more = Math.max(of.more, more);
      }
    }
    for (const [status, of] of reasons) {
      parts.push(make("h3", {}, `${statuses[status].symbol} ${statuses[status].word}`),
        make("ul", { class: "list" }, [...of].sort((a, b) => b[1] - a[1]).map(([text, count]) => make("li", {}, `${grouped(count)} × ${texts[text]}`))));
    }
    if (observed.size) {
      parts.push(make("h3", {}, "Observed"),
        make("dl", { class: "lines" }, [...observed].map(([name, of]) =>
          [make("dt", {}, texts[name]), make("dd", {}, [...of].map(([value, count]) => `${texts[value]} (${counted(count, "check")})`).join(", "))])));
    }
    if (params.size || elements) {
      parts.push(make("h3", {}, `Passed: ${counted(elements, "element")} compared, over all ranks`),
        make("dl", { class: "lines" }, [...params].map(([name, { values, more }]) => {
          const list = [...values].map((index) => texts[index]).sort(byName).join(", ");
          return [make("dt", {}, texts[name]), make("dd", {}, more ? `${list} and more` : list)];
        })));
    }
    return parts;
  };

  const showCell = (key, columnName) => {
    const row = rows.get(key);
    const index = columns.findIndex((column) => column.name === columnName);
    if (!row || index < 0) return false;
    selected = { row: key, column: index };
    const inside = new Set(row.units);
    const ids = new Set(row.units.map((unit) => unit.case));
    const keys = new Set([...inside].map((unit) => `${unit.case}|${unit.covers}`));
    const shownFindings = findings.filter((finding) => finding.column === index && keys.has(`${finding.case}|${finding.covers}`));
    const cells = row.units.flatMap((unit) => unit.cells.filter((cell) => cell.column === index));
    const worlds = scenarios.filter((scenario) => scenario.column === index && ids.has(scenario.case));
    showPanel(row.kind === "case" && row.title ? `${row.name}: ${row.title}` : row.name,
      columnLine(columns[index]), marks(countsOf(row, index)), cards(shownFindings), countedParts(cells),
      worlds.length > 0 && [make("h3", {}, counted(worlds.length, "scenario")),
        make("ul", { class: "list links" }, worlds.slice(0, 100).map((scenario) => make("li", {}, make("a", { href: hashOf({ scenario: scenario.id }) }, scenario.id)))),
        worlds.length > 100 && make("p", { class: "note" }, `and ${grouped(worlds.length - 100)} more`)]);
    return true;
  };

  const showKind = (kind) => {
    const shownFindings = findings.filter((finding) => finding.kind === kind && statuses[finding.status].failing);
    if (!shownFindings.length) return false;
    selected = null;
    const where = new Set(shownFindings.map((finding) => columns[finding.column].name));
    showPanel(kind, make("p", { class: "where" }, `${counted(shownFindings.length, "check")} in ${[...where].join(", ")}`), cards(shownFindings));
    return true;
  };

  const showScenario = (id, check) => {
    const place = scenarios.findIndex((scenario) => scenario.id === id);
    if (place < 0) return false;
    const scenario = scenarios[place];
    const column = columns[scenario.column];
    selected = null;
    const shownFindings = findings.filter((finding) => finding.scenario === place);
    const first = shownFindings.find((finding) => finding.id === check);
    const others = shownFindings.filter((finding) => finding !== first);
    showPanel(cases[scenario.case].title || cases[scenario.case].id,
      columnLine(column),
      first ? card(first, true) : make("code", { class: "id" }, scenario.id),
      scenario.failure && make("ul", { class: "issues" }, make("li", {}, scenario.failure)),
      timelineParts(scenario, first),
      make("p", { class: "where" }, `${counted(scenario.worlds, "world")}, took ${lasting(scenario.duration_ms)}, began ${lasting(scenario.start_ms)} into the run`),
      make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ["rank", "process", "end", "log"].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, scenario.ranks.map((rank) => make("tr", {}, make("td", {}, rank.rank), make("td", {}, rank.pid || "never came up"), make("td", {}, rank.end), make("td", { class: "mono" }, rank.log ? fileLink(rank.log, rank.log.slice(rank.log.lastIndexOf("/") + 1)) : "none"))))),
      others.length > 0 && [make("h3", {}, first ? "Also in this scenario" : "Checks lines in full"), cards(others, true)]);
    return true;
  };
  const showCheck = (id) => {
    const finding = findings.find((one) => one.id === id);
    if (!finding) return false;
    if (finding.scenario !== null) return showScenario(scenarios[finding.scenario].id, id);
    selected = null;
    showPanel("check", cards([finding], true));
    return true;
  };

  // ---- timeline --------------------------------------------------------------------------------------------------

  let drawings = [];
  const redraw = () => {
    drawings = drawings.filter(({ box }) => panelBody.contains(box));
    for (const drawing of drawings) {
      const wide = Math.max(280, drawing.box.clientWidth - 18);
      if (wide === drawing.wide) continue;
      drawing.wide = wide;
      drawing.box.replaceChildren(timeline(drawing.scenario, drawing.finding, wide));
    }
  };
  new ResizeObserver(redraw).observe(panelBody);

  const isOf = (label, finding) => Boolean(finding) && label === finding.span;
  const timelineParts = (scenario, finding) => {
    const heading = make("h3", {}, "What each rank did");
    if (scenario.omitted) return [heading, make("p", { class: "note" }, "There was no room on this page for this scenario's timeline; it is in results.jsonl.")];
    if (!scenario.ranks.some((rank) => rank.spans.length)) return [heading, make("p", { class: "note" }, "No rank left a trace.")];
    const box = make("div", { class: "timeline" });
    drawings.push({ box, scenario, finding, wide: 0 });
    const byWhat = new Map();
    for (const rank of scenario.ranks) {
      for (const [label, , end, ok] of rank.spans) {
        if (ok && end >= 0) continue;
        const what = `${scenario.labels[label]} ${end < 0 ? "never ended" : "failed"}`;
        byWhat.set(what, [...(byWhat.get(what) || []), rank.rank]);
      }
    }
    const bad = [...byWhat].map(([what, ranks]) => make("li", {}, `${rankList(ranks)}: ${what}`));
    return [heading, box,
      make("p", { class: "key" }, [["init", "init"], ["ok", "ended well"], ["failed", "✗ failed"], ["never", "never ended"], ["waits", "waits for another rank to come to the call (line on top)"]].map(([name, text]) => make("span", {}, make("i", { class: name }), text))),
      bad.length > 0 && make("ul", { class: "list" }, bad.slice(0, 12), bad.length > 12 && make("li", {}, `and ${bad.length - 12} more`))];
  };
  /** `rank 3`, `ranks 0–3, 7`. */
  const rankList = (ranks) => {
    const runs = [];
    for (const rank of ranks) {
      const last = runs[runs.length - 1];
      if (last && last[1] + 1 === rank) last[1] = rank;
      else runs.push([rank, rank]);
    }
    const parts = runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
    return `${ranks.length === 1 ? "rank" : "ranks"} ${parts.join(", ")}`;
  };
  const niceStep = (span) => {
    const raw = span / 5;
    const power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw);
  };
  const timeline = (scenario, finding, wide) => {
    const left = 52;
    const lane = 22;
    const right = 16;
    const tall = scenario.ranks.length * lane + 28;
    let last = 1000;
    for (const rank of scenario.ranks) for (const [, start, end] of rank.spans) last = Math.max(last, end < 0 ? start : end);
    const never = scenario.ranks.some((rank) => rank.spans.some(([, , end]) => end < 0));
    const until = never ? Math.max(last * 1.15, scenario.duration_ms * 1000) : last;
    const x = (us) => left + (us / until) * (wide - left - right);
    const picture = draw("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": `timeline of ${counted(scenario.ranks.length, "rank")}; unfinished and failed stretches are listed below` },
      draw("defs", {}, draw("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        draw("rect", { class: "hatch-back", width: 6, height: 6 }), draw("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 6 }))));
    const step = niceStep(until);
    for (let tick = 0; tick <= until; tick += step) {
      picture.append(draw("line", { class: "axis", x1: x(tick), x2: x(tick), y1: 0, y2: tall - 18 }),
        draw("text", { x: x(tick), y: tall - 5, "text-anchor": tick === 0 ? "start" : "middle" }, until >= 2e6 ? `${+(tick / 1e6).toFixed(2)} s` : `${+(tick / 1e3).toFixed(2)} ms`));
    }
    const lastStart = new Map();
    for (const rank of scenario.ranks) {
      for (const [label, start] of rank.spans) {
        const of = lastStart.get(label) || { at: 0, ranks: new Set() };
        lastStart.set(label, { at: Math.max(of.at, start), ranks: of.ranks.add(rank.rank) });
      }
    }
    scenario.ranks.forEach((rank, index) => {
      const top = index * lane + 6;
      picture.append(draw("text", { x: 0, y: top + 15 }, `rank ${rank.rank}`));
      for (const [label, start, end, ok] of rank.spans) {
        const name = scenario.labels[label];
        const from = x(start);
        const to = x(end < 0 ? until : end);
        const kind = end < 0 ? "never" : !ok ? "failed" : /^(init|new_group)/.test(name) ? "init" : "ok";
        const time = end < 0 ? "never ended" : `${((end - start) / 1000).toFixed(2)} ms`;
        picture.append(draw("rect", { class: isOf(name, finding) ? `${kind} marked` : kind, x: from, y: top + 4, width: Math.max(1.5, to - from - 0.5), height: lane - 8, rx: 1.5 },
          draw("title", {}, `rank ${rank.rank}: ${name}, ${time}`)));
        // Until the last rank that makes the call has come to it, the others can but wait.
        const { at, ranks } = lastStart.get(label);
        const absent = scenario.ranks.length - ranks.size;
        const waited = end < 0 && absent > 0 ? to : Math.min(to, x(at));
        if (waited - from > 1.5 && kind !== "init") {
          const why = end < 0 && absent > 0 ? `${counted(absent, "rank")} never came to it` : "until the last rank came to it";
          picture.append(draw("rect", { class: "waits", x: from, y: top + 4, width: waited - from - 0.5, height: 4 },
            draw("title", {}, `rank ${rank.rank}: ${name}, waits ${why}`)));
        }
        if (kind === "failed") picture.append(draw("text", { class: "sign", x: (from + to) / 2, y: top + 3, "text-anchor": "middle" }, "✗"));
        if (kind === "never" && to - from > 70) picture.append(draw("text", { class: "sign", x: from + 5, y: top + 15 }, "never ended"));
      }
    });
    return picture;
  };

  // ---- links -----------------------------------------------------------------------------------------------------

  const hashOf = (place) =>
    "#" + Object.entries(place).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  const readHash = () => {
    const place = {};
    for (const part of location.hash.slice(1).split("&")) {
      const at = part.indexOf("=");
      if (at < 0) continue;
      try { place[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch { /* a link cut in half */ }
    }
    return place;
  };
  const go = (place) => {
    const hash = hashOf(place);
    if (location.hash === hash) follow();
    else location.hash = hash;
  };
  const follow = () => {
    const place = readHash();
    const was = selected;
    let found = false;
    if (place.scenario !== undefined) found = showScenario(place.scenario);
    else if (place.check !== undefined) found = showCheck(place.check);
    else if (place.kind !== undefined) found = showKind(place.kind);
    else if (place.row !== undefined) {
      found = showCell(place.row, place.column);
      for (let row = rows.get(place.row); row; row = row.parent) if (row.parent) open.add(row.parent.key);
      if (found) showColumn(selected.column);
    } else if (location.hash === "#matrix") return;
    if (!found) hidePanel();
    if (place.theme === "dark" || place.theme === "light") setTheme(place.theme);
    if (was !== selected) showMatrix();
  };
  const hidePanel = () => {
    if (panel.hidden) return;
    panel.hidden = true;
    document.body.classList.remove("open");
    const back = selected;
    selected = null;
    showMatrix();
    if (back) makeRow(back.row);
    const cell = back && find("row", back.row, back.column);
    if (cell) {
      cell.tabIndex = 0;
      cell.focus();
    }
  };
  const close = () => {
    hidePanel();
    history.replaceState(null, "", location.pathname + location.search);
  };
  byId("close").addEventListener("click", close);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && !panel.hidden) close(); });
  addEventListener("hashchange", follow);

  // ---- theme -----------------------------------------------------------------------------------------------------

  const setTheme = (theme) => { document.documentElement.dataset.theme = theme; };
  const stored = () => { try { return localStorage.getItem("allranks-theme"); } catch { return null; } };
  const asked = new URLSearchParams(location.search).get("theme") || stored();
  if (asked === "dark" || asked === "light") setTheme(asked);
  byId("theme").addEventListener("click", () => {
    const set = document.documentElement.dataset.theme;
    const dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    setTheme(dark ? "light" : "dark");
    try { localStorage.setItem("allranks-theme", dark ? "light" : "dark"); } catch { /* some browsers keep nothing for files */ }
  });

  // ---- the run ---------------------------------------------------------------------------------------------------

  const { run } = data;
  const headline = byId("headline");
  headline.dataset.good = run.good;
  headline.dataset.sign = run.good ? "✓" : "✗";
  const started = new Date(run.started * 1000);
  const facts = [
    ["checks", grouped(run.counts.reduce((sum, count) => sum + count, 0))],
    ["scenarios", grouped(scenarios.length)],
    ["columns", grouped(width)],
    ["took", run.duration_ms === null ? "cut off" : lasting(run.duration_ms)],
    ["exit code", run.exit],
    ["started", Number.isNaN(started.getTime()) ? null : started.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC")],
    ["profile", run.profile],
    ["seed", run.seed],
    ["allranks", run.allranks],
    ["command", run.command],
  ];
  byId("facts").append(...facts.filter(([, value]) => value !== null).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", { class: name === "command" ? "mono" : null }, value))));
  const issues = [...run.issues];
  if (run.missing > 0) issues.push(`${counted(run.missing, "check")} planned and never recorded`);
  if (data.omitted > 0) issues.push(`${counted(data.omitted, "more check")} would be lines in full, had there been room; they are counted in the matrix and are in results.jsonl`);
  byId("issues").hidden = issues.length === 0;
  byId("issues").append(...issues.map((text) => make("li", {}, text)));
  byId("absent").hidden = run.absent.length === 0;
  byId("absent").querySelector("summary").textContent = `${counted(run.absent.length, "platform or backend", "platforms or backends")} not run, for not being here`;
  byId("absent").querySelector("ul").append(...run.absent.map((text) => make("li", {}, text)));

  const kinds = new Map();
  for (const finding of findings) {
    if (!statuses[finding.status].failing) continue;
    const what = new Map(finding.lines).get("what");
    const kind = kinds.get(finding.kind) || { count: 0, columns: new Set(), status: finding.status, whats: new Set() };
    kind.count += 1;
    kind.whats.add(what);
    kind.columns.add(finding.column);
    kind.status = Math.min(kind.status, finding.status);
    kinds.set(finding.kind, kind);
  }
  const kindList = [...kinds].sort((a, b) => a[1].status - b[1].status || b[1].count - a[1].count);
  /** What all checks of a kind have in common; where each says something else, how many things they say. */
  const sayKind = (name, whats) => {
    if (whats.length > 1) return [make("b", {}, name), ` ${counted(whats.length, "different report")}`];
    return name.endsWith(whats[0]) ? name : [make("b", {}, name), ` ${whats[0]}`];
  };
  const placesOf = (set) => {
    const names = [...set].sort((a, b) => a - b).map((index) => columns[index].name);
    return names.length <= 2 ? names.join(", ") : `${counted(names.length, "column")}: ${names[0]}, …`;
  };
  const showKinds = (limit) => {
    byId("kind-list").replaceChildren(...kindList.slice(0, limit).map(([name, kind]) =>
      make("li", {}, make("button", { type: "button", class: "kind", on: () => go({ kind: name }) },
        mark(kind.status, statuses[kind.status].word),
        make("span", { class: "what" }, sayKind(name, [...kind.whats])),
        make("span", { class: "count" }, `${counted(kind.count, "check")} in ${placesOf(kind.columns)}`)))));
    if (kindList.length > limit) {
      byId("kind-list").append(make("li", {}, make("button", { type: "button", class: "kind", on: () => showKinds(Infinity) },
        make("span", { class: "what" }, `and ${counted(kindList.length - limit, "more kind")}…`))));
    }
  };
  byId("kinds").hidden = kindList.length === 0;
  showKinds(6);

  // ---- what differs between backends, versions and drivers -----------------------------------------------------------

  if (data.sides && data.sides.rows.length) {
    const { names, alike, rows: differing } = data.sides;
    byId("sides").hidden = false;
    byId("sides-note").textContent = `${counted(alike, "requirement")} alike on every side, ${grouped(differing.length)} not.`;
    const showSides = (limit) => {
      byId("side-table").replaceChildren(
        make("thead", {}, make("tr", {}, ["requirement", ...names].map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, differing.slice(0, limit).map((row) => make("tr", {},
          make("th", { class: "name", scope: "row", title: row.sentence }, make("b", {}, row.requirement), row.sentence && ` ${row.sentence}`),
          row.cells.map((cell) => make("td", {}, cell === null ? "no check" : mark(cell[0], `${grouped(cell[1])} of ${grouped(cell[2])}`))))),
        differing.length > limit && make("tr", {}, make("td", { colspan: names.length + 1 },
          make("button", { type: "button", class: "quiet", on: () => showSides(Infinity) }, `and ${grouped(differing.length - limit)} more`)))));
    };
    showSides(8);
  }

  // ---- versions of torch, where there are several ----------------------------------------------------------------

  if (data.versions) {
    const { torch, alike, rows } = data.versions;
    byId("versions").hidden = false;
    byId("versions-note").textContent = `${counted(alike, "check")} stand alike with every version${rows.length ? "; these do not:" : "."}`;
    byId("version-table").hidden = rows.length === 0;
    byId("version-table").append(
      make("thead", {}, make("tr", {}, ["what", "checks", ...torch.map((version) => `torch ${version}`), "why"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, rows.map((row) => make("tr", {}, make("th", { class: "name", scope: "row" }, row.what), make("td", {}, grouped(row.checks)),
        row.cells.map((status) => make("td", {}, status === null ? "not there" : mark(status, statuses[status].word))),
        make("td", { class: "why" }, row.why)))));
  }

  // ---- how to initialise, where that was tried --------------------------------------------------------------------

  if (data.recipes.length) {
    byId("recipes").hidden = false;
    byId("recipe-table").append(
      make("thead", {}, make("tr", {}, ["backend", "torch", "recipe", "what fails"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, data.recipes.map((one) => make("tr", {}, make("th", { class: "name", scope: "row" }, one.backend), make("td", {}, one.torch),
        make("td", { class: "why" }, one.recipe),
        make("td", { class: "why" }, one.failing.map(([which, why]) => `${which}: ${why}`).join("; "))))));
  }

  // ---- filters ---------------------------------------------------------------------------------------------------

  byId("verdicts").append(...statuses.map((status, index) => run.counts[index] > 0 &&
    make("button", { type: "button", "aria-pressed": "false", on: (event) => {
      if (!shown.delete(index)) shown.add(index);
      event.currentTarget.setAttribute("aria-pressed", String(shown.has(index)));
      showMatrix();
    } }, make("span", { class: `mark s-${status.key}`, "aria-hidden": "true" }, status.symbol), status.word, make("b", {}, grouped(run.counts[index])))).filter(Boolean));
  let typing = 0;
  byId("filter").addEventListener("input", (event) => {
    clearTimeout(typing);
    const { value } = event.target;
    typing = setTimeout(() => {
      words = value.toLowerCase().split(/\s+/).filter(Boolean);
      showMatrix();
    }, 120);
  });
  // ---- columns: hidden, filtered, ordered by -----------------------------------------------------------------------

  const hidden = new Set();
  let columnWords = [];
  const columnText = (column) =>
    [column.name, `ws${column.size}`, column.evidence, `torch ${column.torch}`, column.driver, column.launcher].join(" ").toLowerCase();
  const failsIn = (index) => failing(countsOf(all, index));
  const applyColumns = () => {
    columnsShown = columns.map((_, index) => index).filter((index) => !hidden.has(index) && columnWords.every((word) => columnText(columns[index]).includes(word)));
    groupColumns();
    byId("columns").querySelector("summary").textContent =
      columnsShown.length === width ? `Columns (${grouped(width)})` : `Columns (${grouped(columnsShown.length)} of ${grouped(width)} shown)`;
    byId("column-list").replaceChildren(...columns.map((column, index) =>
      make("li", { hidden: !columnWords.every((word) => columnText(column).includes(word)) }, make("label", {},
        make("input", { type: "checkbox", "data-index": index, checked: !hidden.has(index) }), ` ${column.name} `, badge(column.evidence), failsIn(index) && " ✗"))));
    showMatrix();
  };
  byId("column-list").addEventListener("change", (event) => {
    const index = Number(event.target.dataset.index);
    if (event.target.checked) hidden.delete(index);
    else hidden.add(index);
    applyColumns();
    byId("column-list").querySelector(`[data-index="${index}"]`).focus();
  });
  byId("columns-all").addEventListener("click", () => { hidden.clear(); applyColumns(); });
  byId("columns-failing").addEventListener("click", () => {
    columns.forEach((_, index) => { if (failsIn(index)) hidden.delete(index); else hidden.add(index); });
    applyColumns();
  });
  byId("columns-failing").hidden = !failing(totalOf(all));
  byId("column-filter").addEventListener("input", (event) => {
    columnWords = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    applyColumns();
  });
  /** Shows a column that a link leads to. */
  const showColumn = (index) => {
    if (columnsShown.includes(index)) return;
    hidden.delete(index);
    columnWords = [];
    byId("column-filter").value = "";
    applyColumns();
  };
  byId("sort").append(make("option", { value: "" }, "name"), make("option", { value: "all" }, "failures in any column"),
    ...columns.map((column, index) => make("option", { value: index }, `failures in ${column.name}`)));
  const sortBy = (by) => {
    sortedBy = by;
    byId("sort").value = by === null ? "" : String(by);
    showMatrix();
  };
  byId("sort").addEventListener("change", (event) => {
    const { value } = event.target;
    sortBy(value === "" ? null : value === "all" ? "all" : Number(value));
  });

  // ---- from failure to failure -------------------------------------------------------------------------------------

  const failures = findings.filter((finding) => statuses[finding.status].failing);
  const step = (by) => {
    if (!failures.length) return;
    const now = failures.findIndex((finding) => finding.id === readHash().check);
    const next = now < 0 ? (by > 0 ? 0 : failures.length - 1) : (now + by + failures.length) % failures.length;
    go({ check: failures[next].id });
    say(`failure ${next + 1} of ${failures.length}`);
  };
  byId("next").hidden = failures.length === 0;
  byId("next").addEventListener("click", () => step(1));
  addEventListener("keydown", (event) => {
    const isText = event.target.closest && event.target.closest("input, select, textarea");
    if (isText || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
  });

  // ---- the runs before -----------------------------------------------------------------------------------------------

  const showTrend = ({ nights, groups, steady, turned }) => {
    byId("trend").hidden = false;
    byId("trend-title").textContent = `Over ${counted(nights.length, "run")}`;
    const since = [["broken", "newly broken"], ["fixed", "newly fixed"], ["lost", "without a result now"]]
      .filter(([key]) => turned[key] > 0).map(([key, text]) => `${grouped(turned[key])} ${text}`);
    byId("trend-note").textContent = nights.length < 2 ? "There is no run before this one."
      : `Since ${nights[nights.length - 2].name}: ${since.join(", ") || "nothing broke, nothing was fixed"}. ${counted(steady, "check")} steady.`;
    const symbols = { broken: "regression", "failing in every run": "regression", flaky: "unexpected-pass", fixed: "passed" };
    const mark = (group) => make("span", { class: `mark s-${symbols[group.course] || "not-run"}` }, `${group.symbol} ${group.words}`);
    // Where the groups do not fit on one screen: each with its cause, in a line.
    byId("trend-overview").replaceChildren(...groups.slice(0, 8).map((group) => make("li", {}, mark(group), " ", make("b", {}, grouped(group.checks)), " ",
      group.changed || `in ${group.failed}`)));
    byId("trend-list").replaceChildren(...groups.slice(0, 12).map((group) => make("li", { class: "course" },
      make("p", { class: "what" }, mark(group), " ",
        make("b", {}, counted(group.checks, "check")), group.kind && ` ${group.kind}`),
      make("dl", { class: "lines" }, [["since", group.since], ["changed", group.changed], ["runs", strip(group.marks)], ["failed", `in ${group.failed}`],
        ["columns", listed(group.columns)], ["cases", listed(group.cases)], ["example", group.example], ["owners", group.owners.join(" ")]]
        .filter(([, value]) => value).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])))),
      ...(groups.length > 12 ? [make("li", { class: "course" }, `and ${counted(groups.length - 12, "more group")}; allranks history has all`)] : []));
    const used = statuses.map((_, index) => index).filter((index) => nights.some((night) => night.counts[index] > 0));
    byId("night-table").append(
      make("thead", {}, make("tr", {}, ["run", "day", ...used.map((index) => statuses[index].word), "no record", "changed since the run before"].map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, [...nights].reverse().map((night) => make("tr", {}, make("th", { scope: "row" }, night.is_whole ? night.name : `${night.name} (not whole)`), make("td", {}, night.day),
        used.map((index) => make("td", {}, night.counts[index] ? grouped(night.counts[index]) : "")), make("td", {}, night.missing ? grouped(night.missing) : ""),
        make("td", { class: "why" }, night.changes.join("; "))))));
  };
  const listed = (list) => (list.length <= 4 ? list.join(", ") : `${list.slice(0, 4).join(", ")} and ${list.length - 4} more`);
  if (data.trend) showTrend(data.trend);

  byId("fold").addEventListener("click", (event) => {
    const anyOpen = open.size > 0;
    open.clear();
    if (!anyOpen) for (const area of areas) open.add(area.key);
    event.currentTarget.textContent = anyOpen ? "Expand all" : "Collapse all";
    showMatrix();
  });

  applyColumns();
  follow();
})();
