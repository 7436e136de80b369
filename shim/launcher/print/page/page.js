// SPDX-License-Identifier: Apache-2.0
// Draws the JSON document that is in the page. verify has written it, or page.cpp from records.
// Anyone can forge a record, so every text of the document becomes a text node and nothing else.
"use strict";
{
  const CARDS = 40; // places with attempts
  const CALLS = 20; // of one place
  const FRAMES = 64; // of one stack
  const FOLDED_FRAMES = 5; // this many consecutive frames of libraries are folded
  const TABLE_ROWS = 100;
  const RANGES = 8; // of process ids in one cell
  const TREE_ROWS = 300; // rows that are visible at first
  const FOLDED_ROWS = 600; // rows that the user can unfold in the whole tree
  const GROUP_ROWS = 64; // rows that the user can unfold in one group
  const PLAIN_ROWS = 24; // guarded children without an attempt, for each process
  const ALIKE = 3; // this many siblings that look alike become one row
  const MARK_SLOTS = 200; // in one row
  const CHIPS = 8; // in one row
  const TREE_OF_RECORDS = 500; // processes of records that are drawn as a tree
  const COLUMNS = 60; // of the histogram
  const LAST_YEAR = 253402300799; // the end of 9999
  const NAMES = { cuda: "CUDA", nvml: "NVML", opencl: "OpenCL", context: "a CUDA context" };

  const data = JSON.parse(document.getElementById("document").textContent);
  const isVerdict = "verdict" in data;
  const processes = data.processes;
  const start = isVerdict ? data.started : 0;

  // --- Elements ----------------------------------------------------------------------------------

  // Returns the text in a readable form. A character that has no width or changes the direction
  // becomes its number, as in ⟨U+202E⟩.
  function readable(text, most = 300) {
    const cut = text.length > most;
    if (cut) text = text.slice(0, most).replace(/[\ud800-\udbff]$/, "") + "…";
    return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]|[\u{e0000}-\u{e0fff}]/gu,
      (one) => one === "\n" ? "⏎"
        : `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
  }

  // Children are texts, numbers, elements and lists of these; null and false are left out.
  function add(element, children) {
    for (const child of children) {
      if (child === null || child === false || child === undefined) continue;
      if (Array.isArray(child)) add(element, child);
      else element.append(child instanceof Node ? child : readable(String(child)));
    }
    return element;
  }

  // make("p.note", …) returns an element with this class. If the first child is a plain object, it
  // has the attributes.
  function make(name, ...children) {
    const [tag, ...classes] = name.split(".");
    const element = document.createElement(tag);
    if (classes.length > 0) element.className = classes.join(" ");
    const first = children[0];
    if (first !== null && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node)) {
      for (const [key, value] of Object.entries(children.shift())) element.setAttribute(key, value);
    }
    return add(element, children);
  }

  // The policy forbids style attributes; a script may set single properties.
  function styled(element, properties) {
    for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
    return element;
  }

  const code = (text) => make("code", text);
  const long = (text) => document.createTextNode(readable(text, 4000));
  const percent = (share) => `${(100 * Math.min(Math.max(share, 0), 1) || 0).toFixed(2)}%`;

  // --- Words -------------------------------------------------------------------------------------

  const grouped = (number) => number.toLocaleString("en-US");
  function counted(number, word) {
    const end = number === 1 ? "" : word.endsWith("s") ? "es" : "s";
    return `${grouped(number)} ${word}${end}`;
  }

  function duration(seconds) {
    seconds = Math.min(Math.max(seconds, 0) || 0, LAST_YEAR);
    if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
    if (seconds < 9.995) return `${seconds.toFixed(2)}\u00a0s`;
    if (seconds < 99.95) return `${seconds.toFixed(1)}\u00a0s`;
    const whole = Math.round(seconds);
    const parts = (large, unit, small, rest) => {
      const more = Math.floor((whole % large) / small);
      return `${grouped(Math.floor(whole / large))} ${unit}${more === 0 ? "" : ` ${more} ${rest}`}`;
    };
    if (whole < 3600) return parts(60, "min", 1, "s");
    if (whole < 86400) return parts(3600, "h", 60, "min");
    return parts(86400, "d", 3600, "h");
  }

  function dateOf(seconds) {
    if (!(seconds > 0)) return "unknown";
    return new Date(Math.min(seconds, LAST_YEAR) * 1000).toISOString().slice(0, 19).replace("T", " ");
  }

  // Returns numbers as ranges, for example "3, 7–12 and 4 more".
  function rangesOf(numbers) {
    numbers = [...numbers].sort((a, b) => a - b);
    const parts = [];
    let i = 0;
    while (i < numbers.length && parts.length < RANGES) {
      let next = i + 1;
      while (next < numbers.length && numbers[next] - numbers[next - 1] <= 1) ++next;
      const last = numbers[next - 1];
      parts.push(numbers[i] === last ? `${last}` : `${numbers[i]}–${last}`);
      i = next;
    }
    return parts.join(", ") + (i < numbers.length ? ` and ${grouped(numbers.length - i)} more` : "");
  }

  // Commands that differ in their numbers alone look alike: "worker.py --rank *".
  const withoutNumbers = (command) => command.replace(/[0-9*]+/g, "*");
  function inCommon(a, b) {
    if (a === b) return a;
    const others = b.split(/([0-9*]+)/);
    return a.split(/([0-9*]+)/).map((part, i) => part === others[i] ? part : "*").join("");
  }

  function baseName(path) {
    return path.slice(path.lastIndexOf("/") + 1);
  }
  // Returns the directory of a path as an element, and its last part.
  function pathOf(path) {
    const directory = path.slice(0, path.length - baseName(path).length);
    return [directory === "" ? null : make("span.directory", directory), baseName(path)];
  }

  // --- The data of the document ------------------------------------------------------------------

  const isIoctl = (call) => call.api === "ioctl";
  const isFailing = (attempt) => isVerdict && attempt.fails;
  const commandOf = (i) => i < processes.length ? processes[i].command : "";
  const nameOf = (attempt) =>
    attempt.line || (!isIoctl(attempt.calls[0]) && attempt.name) || commandOf(attempt.processes[0])
      || "unknown";
  const namesOf = (words) => words.map((word) => NAMES[word]);

  // The places with their calls, in the order of the page. For verify, the places that fail the run
  // come first; for records, the most frequent ones.
  const attempts = data.places.map((place) =>
    ({ ...place, calls: place.calls.map((i) => data.calls[i]) }));
  if (isVerdict) attempts.sort((a, b) => b.fails - a.fails);
  else attempts.sort((a, b) => b.processes.length - a.processes.length);
  const cards = attempts.slice(0, CARDS);

  // Groups processes that look alike and have the same `key` into rows.
  function rowsOf(list, key) {
    const rows = new Map();
    for (const process of list) {
      const name = `${withoutNumbers(process.command)}\n${key(process)}`;
      const row = rows.get(name);
      if (row === undefined) {
        rows.set(name, { command: process.command, first: process, list: [process] });
      } else {
        row.command = inCommon(row.command, process.command);
        row.list.push(process);
      }
    }
    return [...rows.values()];
  }
  const valuesOf = (row, field) => new Set(row.list.map((one) => one[field] ?? ""));
  // Process ids of several hosts have no common meaning.
  const pidsOf = (row) =>
    valuesOf(row, "host").size > 1 ? "" : rangesOf(row.list.map((one) => one.pid));
  function oneOrMany(values, word) {
    return values.size === 1 ? [...values][0] : counted(values.size, word);
  }

  function factsOf(process) {
    const facts = [];
    if (process.initialised_by !== null) facts.push(`initialised CUDA by ${process.initialised_by}`);
    if (process.contexts.length === 0 && process.initialised_by !== null) facts.push(process.memory ? "GPU memory taken" : "no context seen");
    if (process.contexts.length > 0) facts.push(`context on ${process.contexts.join(", ")}`);
    if (process.worked) facts.push("loaded code");
    if (process.nvml) facts.push("used NVML");
    facts.push(...process.tried, ...process.refused.map((one) => `refused: ${one}`));
    return facts.join("; ");
  }

  // --- Parts of the page -------------------------------------------------------------------------

  function section(title, ...children) {
    return make("section", make("h2", title), children);
  }
  function facts(pairs) {
    return make("dl.facts", pairs.map(([name, value]) =>
      make("div", make("dt", name), make("dd", value))));
  }
  function leftOut(count, word) {
    return count > 0 && make("p.note", `and ${counted(count, word)}, not shown`);
  }
  function alike(command, count) {
    return [count > 1 && make("span.count", `${grouped(count)} ×`), count > 1 && " ", code(command)];
  }

  // Columns whose name begins with # hold numbers.
  function table(name, columns, rows) {
    const head = columns.map((column) => column.startsWith("#")
      ? make("th.number", { scope: "col" }, column.slice(1)) : make("th", { scope: "col" }, column));
    return make("div.wide", { tabindex: "0", role: "region", "aria-label": name },
      make("table", make("thead", make("tr", head)), make("tbody", rows)));
  }
  const rowHead = (...children) => make("th", { scope: "row" }, children);

  function frame(isOwn, isNamed, path, rest, detail, source) {
    return make(`li.${isOwn ? "own" : "other"}${isNamed ? ".named" : ""}`,
      make("span.place", pathOf(path), rest), detail, source && make("code.source", long(source)));
  }

  function pythonStack(attempt) {
    const missing = attempt.python_missing;
    if (attempt.python.length === 0) {
      return missing && missing !== "no CPython" && make("p.note", `No Python stack: ${missing}`);
    }
    const own = new Set(attempt.own_python);
    const list = make("ol.frames");
    const shown = attempt.python.slice(0, FRAMES);
    const frameAt = (i) => {
      const { file, line, function: name, source } = shown[i];
      return frame(own.has(i), i === attempt.line_frame, file, line ? `:${line}` : "", [" in ", code(name)], source);
    };
    for (let i = 0; i < shown.length;) {
      let end = i;
      while (end < shown.length && !own.has(end) && end !== attempt.line_frame) ++end;
      const frames = [];
      for (const last = Math.max(end, i + 1); i < last; ++i) frames.push(frameAt(i));
      list.append(...frames.length < FOLDED_FRAMES ? frames : [
        make("li", make("details", make("summary", `${counted(frames.length, "frame")} of libraries`),
          make("ol.frames", frames)))]);
    }
    return [make("h4", "Python stack, innermost frame first"), list,
      leftOut(attempt.python.length - shown.length, "more frame")];
  }

  function nativeStack(attempt) {
    const frames = attempt.native;
    const missing = attempt.native_missing;
    if (frames.length === 0) return missing && make("p.note", `No native stack: ${missing}`);
    const own = new Set(attempt.own_native);
    const shown = frames.slice(0, FRAMES).map(({ module, offset, symbol }, i) =>
      frame(own.has(i), false, module, `+0x${offset.toString(16)}`, null, symbol));
    return make("details", make("summary", `Native stack, ${counted(frames.length, "frame")}`,
      missing && `; its callers are not available: ${missing}`),
    make("ol.frames", shown), leftOut(frames.length - shown.length, "more frame"));
  }

  function processesOf(attempt) {
    const listed = attempt.processes.filter((i) => i < processes.length).map((i) => processes[i]);
    const rows = rowsOf(listed, () => "");
    const title = `In ${counted(attempt.processes.length, "process")}`;
    const list = make("ul.commands", rows.slice(0, TABLE_ROWS).map((row) =>
      make("li", alike(row.command, row.list.length), " ", make("span.pid", pidsOf(row)))));
    return [rows.length > 3 ? make("details", make("summary", title), list) : [make("h4", title), list],
      leftOut(rows.length - TABLE_ROWS, "more command"),
      leftOut(attempt.processes.length - listed.length, "more process")];
  }

  const isDenied = (attempt) => attempt.asked.some((one) => data.deny.includes(one));

  function verdictOf(attempt) {
    if (isFailing(attempt)) return make("strong.tag.fail", "not allowed");
    const refused = attempt.calls.every((one) => one.denied);
    const kind = refused ? "strong.tag" : "strong.tag.warn";
    if (!isVerdict) return make(kind, refused ? "refused" : "allowed");
    return make(kind, isDenied(attempt) ? "allowed" : "not denied");
  }

  function callOf(call) {
    if (isIoctl(call)) {
      return [code(call.object), ", an ioctl that bypassed the guard and that the fence refused"];
    }
    return [code(call.api + (call.object === null ? "" : `("${call.object}")`)),
      call.library !== "" && [" from ", code(call.library)],
      call.denied ? ", refused" : ", allowed by the guard"];
  }
  const whenOf = (attempt) => isVerdict ? `${duration(attempt.first - start)} after the start`
    : `at ${dateOf(attempt.first)} UTC`;

  function stacksOf(calls) {
    const stacks = new Map();
    for (const call of calls) {
      const key = JSON.stringify([call.python, call.native]);
      if (!isIoctl(call) && !stacks.has(key)) stacks.set(key, [pythonStack(call), nativeStack(call)]);
    }
    const [first, ...others] = stacks.values();
    return [first, others.length > 0
      && make("details", make("summary", counted(others.length, "other stack")), others)];
  }

  function card(attempt, i) {
    const calls = attempt.calls.slice(0, CALLS);
    // Calls that differ only in their stacks read the same.
    const texts = new Set();
    const isNew = (call) => {
      const before = texts.size;
      return texts.add(JSON.stringify([call.api, call.object, call.library, call.denied])).size > before;
    };
    const first = `; first ${whenOf(attempt)}`;
    return make(`article.attempt${isFailing(attempt) ? ".fail" : ""}`, { id: `t${i + 1}` },
      make("h3", make("span.chip", i + 1), " ", nameOf(attempt)), " ", verdictOf(attempt),
      calls.filter(isNew).map((call, n) => make("p", callOf(call), n === 0 && first)),
      leftOut(attempt.calls.length - calls.length, "more call"),
      stacksOf(calls), processesOf(attempt));
  }

  function attemptSection() {
    return cards.length > 0 && section("Attempts to use the GPU", cards.map(card),
      leftOut(attempts.length - cards.length, "more place"));
  }

  function processSection() {
    const rows = rowsOf(processes.filter((one) => one.asked), factsOf);
    if (rows.length === 0) return null;
    rows.sort((a, b) => b.list.length - a.list.length);
    const more = (data.process_count ?? 0) - processes.length;
    const ruled = rows.some((row) => row.list.some((one) => one.rule !== undefined));
    const columns = ["Process", "Process id", "What it did", "User", "Host", ...ruled ? ["Rule"] : []];
    return section("Processes with attempts",
      more > 0 && make("p.note", `Of the first ${counted(processes.length, "process")}`),
      table("Processes with attempts", columns,
        rows.slice(0, TABLE_ROWS).map((row) => make("tr", rowHead(alike(row.command, row.list.length)),
          make("td.pid", pidsOf(row)), make("td", factsOf(row.first)),
          make("td", oneOrMany(valuesOf(row, "uid"), "user")),
          make("td", oneOrMany(valuesOf(row, "host"), "host")),
          ruled && make("td", oneOrMany(valuesOf(row, "rule"), "rule"))))),
      leftOut(rows.length - TABLE_ROWS, "more row"));
  }

  // --- The tree of processes over time -----------------------------------------------------------

  function treeOf() {
    const nodes = new Map();
    const node = ({ pid, ppid = 0, command }, first, last) => {
      const one = nodes.get(pid) ?? { pid, ppid: 0, command: "", first: 0, last: 0, guard: "unknown",
        driver: false, attempts: [], children: [], below: 0, notable: false };
      nodes.set(pid, one);
      if (ppid !== 0) one.ppid = ppid;
      if (command !== "") one.command = command;
      extendLifetime(one, first ?? 0, last ?? 0);
      return one;
    };
    if (isVerdict) {
      for (const one of data.tree.processes) {
        const seen = node(one, one.first, one.last);
        if (one.guarded) seen.guard = "guarded";
      }
      for (const one of data.tree.unknown) node(one, one.at, one.at);
      for (const one of data.tree.unguarded) {
        const seen = node(one, one.at, one.at);
        seen.guard = "not";
        seen.driver ||= one.has_driver && !one.only_nvml;
      }
    }
    for (const process of processes) {
      const one = node(process, process.started ?? process.first, process.last);
      if (process.policy !== null && one.guard === "unknown") one.guard = "guarded";
    }
    attempts.forEach((attempt, number) => {
      const forbidden = new Set(attempt.forbidden);
      attempt.processes.forEach((i, place) => {
        if (i < processes.length) {
          nodes.get(processes[i].pid).attempts.push(
            { at: attempt.at[place] ?? 0, number, fails: forbidden.has(i) });
        }
      });
    });
    return nodes;
  }

  function extendLifetime(node, from, to) {
    if (from > 0) node.first = node.first > 0 ? Math.min(node.first, from) : from;
    node.last = Math.max(node.last, from, to);
  }

  // Attaches each process to its parent and returns those without one. Anyone can forge a parent's
  // process id, so there may be a cycle. The first process of a cycle then has no parent.
  function linked(nodes) {
    const order = [...nodes.values()].sort((a, b) => a.first - b.first || a.pid - b.pid);
    const children = new Map(order.map((one) => [one, []]));
    const firsts = [];
    for (const one of order) {
      const parent = nodes.get(one.ppid);
      if (parent !== undefined && parent !== one) children.get(parent).push(one);
      else firsts.push(one);
    }
    const taken = new Set(firsts);
    const topDown = [...firsts];
    for (let done = 0, next = 0; done < order.length; ++done) {
      if (done === topDown.length) { // only cycles are left
        while (taken.has(order[next])) ++next;
        taken.add(order[next]);
        firsts.push(order[next]);
        topDown.push(order[next]);
      }
      for (const child of children.get(topDown[done])) {
        if (taken.has(child)) continue;
        taken.add(child);
        topDown[done].children.push(child);
        topDown.push(child);
      }
    }
    const kinds = new Map();
    for (const one of topDown.reverse()) summarise(one, kinds);
    return firsts;
  }

  // Counts the descendants of a process and gives it a `kind`. Processes that look alike, as do
  // their descendants, have the same kind. The caller has summarised the children before.
  function summarise(node, kinds) {
    node.notable = node.guard === "not" || node.attempts.length > 0;
    const below = new Set();
    for (const child of node.children) {
      node.below += 1 + child.below;
      node.notable ||= child.notable;
      below.add(child.kind);
    }
    const numbers = new Set(node.attempts.map((one) => one.number));
    const key = JSON.stringify([withoutNumbers(node.command), node.guard, [...numbers].sort(),
      [...below].sort()]);
    if (!kinds.has(key)) kinds.set(key, kinds.size);
    node.kind = kinds.get(key);
  }

  function timeline(begin, end) {
    const nodes = treeOf();
    for (const one of nodes.values()) {
      if (one.first > 0) begin = begin > 0 ? Math.min(begin, one.first) : one.first;
      end = Math.max(end, one.last);
    }
    const all = Math.max(end - begin, 0.001);
    const placeOf = (when) => Math.min(Math.max((when - begin) / all, 0), 1) || 0;
    let rows = TREE_ROWS;
    let folded = FOLDED_ROWS;

    function ticks() {
      const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60,
        120, 300, 600, 1800, 3600, 7200, 21600];
      return steps.find((one) => all / one <= 5) ?? 86400 * Math.ceil(all / (5 * 86400));
    }
    function axis(step) {
      const lane = make("span.lane");
      for (let i = 0; i * step <= all * 0.88; ++i) { // a tick at the end would exceed the page
        const at = i * step;
        const text = i === 0 ? "0" : at < 1 || at > 59.5 ? duration(at) : `${Math.round(at)} s`;
        lane.append(styled(make("span", text), { left: percent(at / all) }));
      }
      return make("div.row.axis", { "aria-hidden": "true" }, make("span.name"), make("span.duration"), lane);
    }

    function chips(node, links) {
      const numbers = [...new Set(node.attempts.map((one) => one.number))].sort((a, b) => a - b)
        .filter((number) => number < cards.length).slice(0, CHIPS);
      // A summary is a button, so its chips are no links.
      return numbers.map((number) => links
        ? make("a.chip", { href: `#t${number + 1}`, "aria-label": `attempt ${number + 1}` }, number + 1)
        : make("span.chip", number + 1));
    }
    function marks(node) {
      const slots = new Map();
      for (const one of node.attempts) {
        const slot = Math.round(placeOf(one.at) * MARK_SLOTS);
        slots.set(slot, slots.get(slot) || one.fails);
      }
      return [...slots].map(([slot, fails]) =>
        styled(make(fails ? "i.mark.fail" : "i.mark"), { left: percent(slot / MARK_SLOTS) }));
    }
    function bar(node) {
      const from = placeOf(node.first);
      return styled(make(node.guard === "not" ? "i.bar.not" : "i.bar"),
        { left: percent(from), width: percent(placeOf(node.last) - from) });
    }
    function row(node, count, depth, tag) {
      return styled(make(`${tag}.row${count > 1 ? ".many" : ""}`,
        make("span.name", count > 1 && make("span.count", `${grouped(count)} ×`),
          code(node.command || "unknown"), count === 1 && make("span.pid", node.pid),
          count > 1 && node.below > 0 && make("span.pid", "with children"),
          node.driver ? make("strong.tag.fail", "unguarded, has the driver")
            : node.guard === "not" && make("strong.tag.warn", "unguarded"),
          chips(node, count === 1)),
        make("span.duration", node.last > node.first && duration(node.last - node.first)),
        make("span.lane", { "aria-hidden": "true" }, node.first > 0 && bar(node), marks(node))),
      { "--d": Math.min(depth, 9) });
    }

    function one(node, depth) {
      rows = Math.max(rows - 1, 0);
      return make("li", row(node, 1, depth, "div"),
        node.children.length > 0 && list(node.children, depth + 1));
    }
    function many(group, depth) {
      rows -= 1;
      const all = { ...group[0], attempts: [] };
      const rest = [...group];
      for (let i = 0; i < rest.length; ++i) {
        all.attempts.push(...rest[i].attempts);
        rest.push(...rest[i].children);
      }
      for (const node of group) {
        all.command = inCommon(all.command, node.command);
        extendLifetime(all, node.first, node.last);
      }
      const summary = row(all, group.length, depth, "summary");
      const outside = rows;
      rows = folded;
      const shown = group.slice(0, Math.min(GROUP_ROWS, folded));
      const members = shown.map((node) => one(node, depth + 1));
      folded = rows;
      rows = outside;
      return make("li", make("details", summary,
        make("ul", members, restOf(group.slice(shown.length), depth + 1))));
    }
    function restOf(group, depth) {
      const count = group.reduce((sum, node) => sum + 1 + node.below, 0);
      return count > 0 && make("li.left", styled(make("div.row",
        make("span.name", `and ${counted(count, "more process")}, not shown`)), { "--d": Math.min(depth, 9) }));
    }
    function list(siblings, depth) {
      const groups = new Map();
      for (const node of siblings) {
        if (groups.has(node.kind)) groups.get(node.kind).push(node);
        else groups.set(node.kind, [node]);
      }
      const items = [];
      const left = [];
      let plain = 0;
      for (const group of groups.values()) {
        const notable = group[0].notable;
        if (rows === 0 || (!notable && plain === PLAIN_ROWS)) {
          left.push(...group);
        } else {
          if (!notable) ++plain;
          items.push(group.length < ALIKE ? group.map((node) => one(node, depth)) : many(group, depth));
        }
      }
      return make("ul", items, restOf(left, depth));
    }

    const step = ticks();
    const tree = list(linked(nodes), 0);
    tree.className = "tree";
    styled(tree, { "--step": percent(step / all) });
    return make("div.timeline", axis(step), tree);
  }

  function legend() {
    return make("p.legend", { "aria-hidden": "true" },
      make("span", make("i.bar"), " guarded"),
      data.tree.unguarded.length > 0 && make("span", make("i.bar.not"), " unguarded"),
      attempts.length > 0 && [make("span", make("i.mark.fail"), " attempt, not allowed"),
        make("span", make("i.mark"), " attempt, allowed or not denied")]);
  }

  // --- verify ------------------------------------------------------------------------------------

  function headline() {
    const names = [...new Set(attempts.filter(isFailing).map(nameOf))];
    const denied = namesOf(data.deny).join(" or ");
    if (names.length > 2) names.splice(1, names.length, `${grouped(names.length - 1)} others`);
    if (names.length > 0) return `${names.join(" and ")} asked for ${denied}`;
    const bad = data.tree.unguarded.find((one) => one.fails);
    if (bad !== undefined) return `${bad.command} has the driver and is unguarded`;
    if (data.verdict === "fail") return "The program failed";
    if (data.verdict === "incomplete") return "Attempts may be missing";
    const allowed = attempts.some(isDenied);
    return `${allowed ? "Only allowed processes" : "No process"} asked for ${denied}`;
  }

  function lead() {
    const result = data.result.replace(/^(PASS|FAIL|INCOMPLETE): /, "");
    const first = attempts.find(isFailing);
    return make("p.lead", result.charAt(0).toUpperCase() + result.slice(1), ". ",
      first && ["First attempt, ", whenOf(first), ": ", callOf(first.calls[0]), "."]);
  }

  function caution() {
    const { unguarded, unknown, doubts } = data.tree;
    const what = [unguarded.length > 0 && `${counted(unguarded.length, "program")} unguarded`,
      unknown.length > 0 && `${counted(unknown.length, "program")} of unknown kind`,
      doubts.length > 0 && "attempts may be missing"].filter(Boolean);
    return what.length > 0 && make("p.caution", make("strong", "Coverage: "), what.join(", "),
      ". ", make("a", { href: "#coverage" }, "Details"));
  }

  function coverageSection() {
    const { tree } = data;
    const claim = tree.value === "not_watched" ? "The started programs are not known"
      : `${counted(tree.started, "program")} started: ${[[tree.guarded, "guarded"],
        [tree.unguarded.length, "unguarded"], [tree.unknown.length, "unknown"]]
        .filter(([count]) => count > 0).map(([count, kind]) => `${grouped(count)} ${kind}`).join(", ")}`;
    const rows = tree.programs.slice(0, TABLE_ROWS).map((one) => make("tr", rowHead(alike(one.program, one.starts)),
      make("td", one.kind), make("td", one.reason, one.has_driver && [" ",
        make(one.fails ? "strong.tag.fail" : "strong.tag", one.only_nvml ? "has NVML" : "has the driver",
          one.fails ? ": counts as a CUDA attempt" : one.in_doubt ? ", in doubt" : ", allowed")])));
    const part = section("Coverage",
      make("p", make("strong", `${claim}.`)),
      tree.doubts.map((doubt) => make("p.caution", make("strong", "In doubt: "), long(doubt), ".")),
      tree.not_waited_for !== null && make("p.note", "Not waited for: ", long(tree.not_waited_for)),
      rows.length > 0 && [table("Programs that were not guarded", ["Program", "Kind", "Reason"], rows),
        leftOut(tree.programs.length - rows.length, "more program")]);
    part.id = "coverage";
    return part;
  }

  function verifyPage() {
    const { exit_code: exitCode, signal } = data.program;
    const word = data.verdict.toUpperCase();
    document.title = readable(`${word}: ${headline()}`);
    return [
      make(`header.${data.verdict === "pass" ? "pass" : "fail"}`, make("p.kicker", "cudaguard verify"),
        make("h1", make("span.word", word), " ", headline()), lead(), caution(),
        data.notes.map((note) => make("p.note", `${note.charAt(0).toUpperCase()}${note.slice(1)}.`)),
        make("p.command", make("code", long(data.command.join(" ")))),
        facts([["Started (UTC)", dateOf(start)], ["Duration", duration(data.ended - start)],
          ["Program", signal === null ? `exit code ${exitCode}` : `killed by signal ${signal}`],
          ["Processes", grouped(data.counts.processes)],
          ["Programs", grouped(data.tree.started)],
          ["Not guarded", grouped(data.tree.unguarded.length + data.tree.unknown.length)],
          ["--deny", namesOf(data.deny).join(", ")],
          ...data.allow.length > 0 ? [["--allow", data.allow.join(", ")]] : []])),
      attemptSection(),
      section("Timeline", legend(), timeline(start, data.ended)),
      coverageSection(),
      processSection()];
  }

  // --- Records -----------------------------------------------------------------------------------

  function groupSection(by, title, column) {
    const { count, rows } = data.groups[by];
    if (count < (by === "line" ? 1 : 2)) return null;
    const numbers = new Map(cards.map((one, i) => [one.name, i + 1]).reverse());
    const shown = rows.slice(0, by === "line" ? TABLE_ROWS : TABLE_ROWS / 5);
    return section(title, table(title, [column, "#Processes", "Attempts", "Last (UTC)"],
      shown.map((row) => {
        const number = by === "line" ? numbers.get(row.name) : undefined;
        return make("tr", rowHead(number !== undefined && [make("a.chip",
          { href: `#t${number}`, "aria-label": `attempt ${number}` }, number), " "],
        row.name === null ? (by === "rule" ? "none" : "unknown") : pathOf(row.name)),
        styled(make("td.number.share", grouped(row.asking)),
          { "--p": percent(row.asking / rows[0].asking) }),
        make("td", namesOf(row.asked).join(", ")), make("td.time", dateOf(row.last)));
      })), leftOut(count - shown.length, "more row"));
  }

  function histogram() {
    const times = data.places.flatMap((one) => one.at).filter((time) => time > 0);
    const begin = times.reduce((a, b) => Math.min(a, b), Infinity);
    const all = times.reduce((a, b) => Math.max(a, b), 0) - begin;
    if (!(all > 0)) return null;
    const counts = new Array(COLUMNS).fill(0);
    for (const time of times) counts[Math.min(Math.floor((time - begin) / all * COLUMNS), COLUMNS - 1)] += 1;
    const most = counts.reduce((a, b) => Math.max(a, b));
    return section("Over time", make("p.note", `Processes with attempts, in columns of ${duration(all / COLUMNS)};`
        + ` ${grouped(most)} in the highest`),
    make("div.columns", { "aria-hidden": "true" },
      counts.map((count) => styled(make("i"), { height: percent(count / most) }))),
    make("p.ends", make("span", dateOf(begin)), make("span", `${dateOf(begin + all)} UTC`)));
  }

  function reportPage() {
    const hosts = data.groups.host;
    const title = `${counted(data.asking, "process")}${hosts.count > 1
      ? ` on ${counted(hosts.count, "host")}` : ""} attempted to use CUDA or NVML`;
    document.title = title;
    return [
      make("header", make("p.kicker", "cudaguard report"), make("h1", title),
        make("p.command", make("code", long(data.title))),
        facts([["First record (UTC)", dateOf(data.first)], ["Last record (UTC)", dateOf(data.last)],
          ["Processes", grouped(data.process_count)], ["Hosts", grouped(hosts.count)],
          ["Users", grouped(data.groups.user.count)]])),
      groupSection("line", "Lines with attempts", "Line, or library"),
      hosts.count === 1 && data.process_count <= TREE_OF_RECORDS
        ? section("Timeline", make("p.note", "Each bar spans a process's first record to its last."),
          timeline(data.first ?? 0, data.last ?? 0))
        : histogram(),
      make("div.tables", groupSection("host", "Hosts", "Host"), groupSection("user", "Users", "User"),
        groupSection("job", "Jobs", "Job"), groupSection("exe", "Programs", "Program"),
        groupSection("rule", "Rules", "Rule")),
      attemptSection(),
      processSection()];
  }

  function footer() {
    const { read, torn, not_understood: foreign } = data.records;
    return make("footer", make("p", counted(read, "record"),
      torn > 0 && `, ${grouped(torn)} cut short (the writer was killed, or the disk is full)`,
      foreign > 0 && `, ${counted(foreign, "line")} left out that ${foreign === 1 ? "is no cudaguard record" : "are no cudaguard records"}`,
      `. cudaguard ${data.cudaguard}`));
  }

  const main = document.querySelector("main");
  main.replaceChildren();
  add(main, [isVerdict ? verifyPage() : reportPage(), footer()]);
}
