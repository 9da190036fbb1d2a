// The script of the page. It reads the data that the page holds, draws the list and one finding, and keeps what is chosen in the address.
//
// Text of the program that was analysed may be hostile. It goes into the page only by `el` and `svg`, which set text and attributes that
// cannot run anything; nothing here makes HTML of text, and the page's policy would not let it.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  /** The element with that id; what sort it is, its user knows.
   * @type {(id: string) => any} */
  const byId = (id) => document.getElementById(id);

  // ---------------------------------------------------------------- text

  // Characters that change how others are shown, or show as nothing: those that the tool does not write as they are, either.
  const HOSTILE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e01ef}\p{Noncharacter_Code_Point}]/gu;
  const NAMES = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
  const escaped = (c) => NAMES[c] || `\\u{${c.codePointAt(0).toString(16)}}`;

  /** The text with every hostile character as an escape, no longer than `max`. */
  function visible(text, max = 20000) {
    const cut = text.length > max;
    const shown = (cut ? text.slice(0, max) : text).replace(HOSTILE, escaped);
    return cut ? `${shown}… (${(text.length - max).toLocaleString('en')} more characters)` : shown;
  }
  /** As `visible`, but line ends and tabs stay what they are. */
  const visibleLines = (text) => text.split('\n').slice(0, 2000).map((line) => line.split('\t').map((part) => visible(part)).join('\t')).join('\n');
  const isHostile = (text) => text.search(HOSTILE) >= 0;

  /** An element. Strings among the children become visible text. */
  function el(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    fill(made, attributes, children);
    return made;
  }
  function svg(tag, attributes = {}, ...children) {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    fill(made, attributes, children);
    return made;
  }
  function fill(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : String(value));
    }
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      made.append(typeof child === 'string' || typeof child === 'number' ? document.createTextNode(visible(String(child))) : child);
    }
  }
  const counted = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

  let silence = 0;
  function say(text) {
    const said = byId('said');
    said.textContent = text;
    clearTimeout(silence);
    silence = window.setTimeout(() => { said.textContent = ''; }, 2500);
  }

  // --------------------------------------------------------------- state

  const SHAPES = { correctness: '✖', warning: '▲', performance: '◆' };
  const FIELDS = ['severity', 'rule', 'file', 'change'];
  /** What is chosen: `finding` is a fingerprint, with `~` and the finding's number where it has none or another has it, too. */
  const state = { finding: '', q: '', severity: '', rule: '', file: '', change: '' };
  const byKey = new Map();
  data.findings.forEach((finding, number) => {
    const { fingerprint } = finding;
    finding.key = fingerprint && !byKey.has(fingerprint) ? fingerprint : `${fingerprint}~${number}`;
    byKey.set(finding.key, finding);
  });
  let chosen = data.findings;

  function address(changes) {
    const all = { ...state, ...changes };
    const words = new URLSearchParams();
    for (const name of ['finding', 'q', ...FIELDS]) if (all[name]) words.set(name, all[name]);
    return `#${words}`;
  }
  function readAddress() {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const name of Object.keys(state)) state[name] = words.get(name) || '';
  }

  // ------------------------------------------------------------- filters

  function hay(finding) {
    if (finding.hay === undefined) {
      const functions = finding.events.flatMap((event) => (event.stack === undefined ? [] : data.stacks[event.stack].map((f) => data.frames[f].function || '')));
      finding.hay = [finding.rule, finding.message, finding.at, finding.fingerprint, ...(finding.origins || []).map((origin) => origin.test || ''), ...finding.events.map((e) => e.text), ...new Set(functions)].join('\n').toLowerCase();
    }
    return finding.hay;
  }
  function choose() {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const fields = FIELDS.filter((name) => state[name]);
    chosen = data.findings.filter((finding) => fields.every((name) => finding[name] === state[name]) && words.every((word) => hay(finding).includes(word)));
    const all = data.findings.length;
    byId('filters').hidden = all === 0;
    document.querySelector('.panes').toggleAttribute('hidden', all === 0 && !state.finding);
    byId('count').textContent = all === 0 ? 'There are no findings to list.' : chosen.length === all ? counted(all, 'finding') : `${chosen.length.toLocaleString('en')} of ${counted(all, 'finding')}`;
  }
  /** Values of a field with how often they come, the most frequent first. */
  function tally(name) {
    const counts = new Map();
    for (const finding of data.findings) counts.set(finding[name], (counts.get(finding[name]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  }
  const tallies = Object.fromEntries(FIELDS.map((name) => [name, tally(name)]));

  const OPTIONS_MAX = 2000;
  function fillFilters() {
    for (const name of FIELDS) {
      const select = byId(name);
      select.append(el('option', { value: '' }, 'all'));
      for (const [value, count] of tallies[name].slice(0, OPTIONS_MAX)) {
        if (value) select.append(el('option', { value }, `${tail(visible(value, 2000), 80)} (${count.toLocaleString('en')})`));
      }
      select.addEventListener('change', () => setFilters({ [name]: select.value }));
    }
    byId('change-label').hidden = !data.is_comparison;
    byId('search').addEventListener('input', () => setFilters({ q: byId('search').value }));
    byId('filters').addEventListener('submit', (event) => event.preventDefault());
    byId('filters').addEventListener('reset', (event) => { event.preventDefault(); setFilters({ q: '', severity: '', rule: '', file: '', change: '' }); });
  }
  function setFilters(changes) {
    Object.assign(state, changes);
    history.replaceState(null, '', address({}));
    update(true);
  }

  const baseName = (path) => path.split('/').pop() || path;
  /** The end of a path says more than its beginning. */
  const tail = (text, max) => (text.length > max ? `…${text.slice(1 - max)}` : text);
  /** A file by its name, and behind that its folder: where there is no room for all of it, the folder is what is cut. */
  function fileLabel(path) {
    const name = baseName(path);
    const folder = path.slice(0, path.length - name.length).replace(/(.)\/$/, '$1');
    return [visible(name, 200), folder && el('span', { class: 'folder' }, ` ${tail(visible(folder, 2000), 80)}`)];
  }
  const BARS_MAX = 8;
  function drawBars() {
    const groups = [['severity', 'By severity'], ['rule', 'By rule'], ['file', 'By file']];
    if (data.is_comparison) groups.unshift(['change', 'By change']);
    const bars = byId('bars');
    bars.replaceChildren();
    if (data.findings.length === 0) return;
    for (const [name, title] of groups) {
      const values = tallies[name];
      const most = values.length > 0 ? values[0][1] : 1;
      const rows = values.slice(0, BARS_MAX).map(([value, count]) => el('button', {
        type: 'button', class: `bar ${name === 'severity' ? value : ''}`, 'aria-pressed': String(state[name] === value && value !== ''),
        title: visible(value || 'no place is known', 300), disabled: !value,
        onclick: () => setFilters({ [name]: state[name] === value ? '' : value }),
      },
      el('span', { class: 'name' }, name === 'severity' ? `${SHAPES[value] || ''} ${value}` : !value ? 'no place is known' : name === 'file' ? fileLabel(value) : tail(visible(value, 2000), 44)),
      svg('svg', { 'aria-hidden': 'true', viewBox: '0 0 100 10', preserveAspectRatio: 'none' },
        svg('rect', { class: 'track', width: 100, height: 10 }), svg('rect', { class: 'value', width: (100 * count) / most, height: 10 })),
      el('span', { class: 'number' }, count.toLocaleString('en'))));
      const more = values.length - BARS_MAX;
      bars.append(el('section', {}, el('h3', {}, title), rows, more > 0 && el('p', { class: 'empty' }, `${more.toLocaleString('en')} more in the filter below`)));
    }
  }

  /** Where in their files the findings lie: a strip each file, a tick each line, filled by severity. */
  const STRIPS_MAX = 12;
  const TICK = 6;
  function drawStrips() {
    const files = new Map();
    for (const finding of data.findings) {
      const event = finding.events.find((one) => one.stack !== undefined && one.shown);
      const frame = event && data.frames[data.stacks[event.stack][event.shown[0]]];
      if (!finding.file || !frame || !frame.line) continue;
      if (!files.has(finding.file)) files.set(finding.file, { file: frame.file, lines: new Map() });
      const { lines } = files.get(finding.file);
      if (!lines.has(frame.line)) lines.set(frame.line, []);
      lines.get(frame.line).push(finding);
    }
    if (files.size === 0) return;
    const strips = [...files].sort((a, b) => b[1].lines.size - a[1].lines.size).slice(0, STRIPS_MAX).map(([name, { lines }]) => {
      const last = [...lines.keys()].reduce((a, b) => Math.max(a, b), 1);
      // Lines whose ticks would cover each other share one: ten thousand ticks would take longer than all the rest of the page.
      const shared = new Map();
      for (const [line, found] of [...lines].sort((a, b) => a[0] - b[0])) {
        const slot = Math.floor((990 * line) / last / TICK);
        if (!shared.has(slot)) shared.set(slot, { from: line, found: [] });
        const tick = shared.get(slot);
        tick.to = line;
        tick.found.push(...found);
      }
      const ticks = [...shared].map(([slot, { from, to, found }]) => {
        const worst = found.find((finding) => finding.severity === 'correctness') || found[0];
        const isHigh = worst.severity === 'correctness';
        return svg('a', { href: address({ finding: worst.key }) },
          svg('title', {}, `${tail(visible(name, 500), 80)}:${from}${to > from ? `–${to}` : ''}, ${counted(found.length, 'finding')}`),
          svg('rect', { class: `tick ${worst.severity}`, x: 2 + slot * TICK, y: isHigh ? 0 : 6, width: TICK, height: isHigh ? 18 : 12 }));
      });
      return el('div', { class: 'strip' }, el('span', { class: 'name', title: visible(name, 500) }, fileLabel(name)),
        svg('svg', { viewBox: '0 0 1000 18', preserveAspectRatio: 'none', role: 'group', 'aria-label': visible(`Findings in ${name}`, 300) }, svg('rect', { class: 'track', width: 1000, height: 18 }), ticks),
        el('span', { class: 'number' }, `line ${last.toLocaleString('en')}`));
    });
    byId('bars').after(el('section', { class: 'strips' }, el('h3', {}, 'Where in the source'), strips,
      el('p', { class: 'empty' }, 'Each strip goes from line 1 to the last line with a finding; each tick is a link to what was found there. High ticks are of correctness.', files.size > STRIPS_MAX && ` ${counted(files.size - STRIPS_MAX, 'more file')} not shown.`)));
  }

  // ---------------------------------------------------------------- list

  // Only the rows in view are in the page, so that ten thousand findings cost no more than twenty.
  const ROW = 76;
  const list = byId('list');
  const rows = byId('rows');
  function row(finding, at) {
    return el('li', { 'aria-setsize': chosen.length, 'aria-posinset': at + 1 },
      el('a', { href: address({ finding: finding.key }), 'aria-current': finding.key === state.finding ? 'true' : null, title: visible(finding.message, 500) },
        el('span', { class: `shape ${finding.severity}`, 'aria-hidden': 'true' }, SHAPES[finding.severity] || '•'),
        el('span', { class: 'line first' }, `${finding.level}[${visible(finding.rule, 80)}] `, finding.change && el('span', { class: 'change' }, finding.change)),
        el('span', { class: 'line' }, visible(finding.message, 200)),
        el('span', { class: 'line third' }, visible(finding.short, 200) || 'no place is known')));
  }
  let drawn = [-1, -1];
  let isPrinting = false;
  function drawRows(anew) {
    if (isPrinting) return;
    // No higher than what is in it.
    list.style.setProperty('--rows', `${Math.max(1, chosen.length) * ROW}px`);
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 10);
    const last = Math.min(chosen.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 10);
    if (!anew && first === drawn[0] && last === drawn[1]) return;
    drawn = [first, last];
    const focused = rows.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    rows.style.height = `${chosen.length * ROW}px`;
    const made = [];
    for (let at = first; at < last; at += 1) {
      const item = row(chosen[at], at);
      item.style.top = `${at * ROW}px`;
      made.push(item);
    }
    rows.replaceChildren(...made);
    if (focused !== null) {
      const again = made.find((item) => item.firstChild.getAttribute('href') === focused);
      if (again) again.firstChild.focus({ preventScroll: true });
    }
  }
  function showRow() {
    const at = chosen.findIndex((finding) => finding.key === state.finding);
    if (at < 0) return;
    if (at * ROW < list.scrollTop) list.scrollTop = at * ROW;
    else if ((at + 1) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (at + 1) * ROW - list.clientHeight;
  }
  function step(by) {
    if (chosen.length === 0) return;
    const at = chosen.findIndex((finding) => finding.key === state.finding);
    const next = at < 0 ? 0 : Math.min(chosen.length - 1, Math.max(0, at + by));
    location.hash = address({ finding: chosen[next].key });
  }

  // ------------------------------------------------------------- finding

  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Some browsers give pages from disk no clipboard.
      const field = el('textarea', { 'aria-hidden': 'true' });
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand('copy');
      field.remove();
      if (!done) { say('The browser does not let this page copy.'); return; }
    }
    say(`${what} copied.`);
  }
  function command(text, label) {
    // What is pasted into a terminal must be what is seen.
    const refused = isHostile(text);
    return el('div', { class: 'command' }, el('code', { 'aria-label': label, tabindex: '0' }, visible(text)),
      el('button', { type: 'button', disabled: refused, title: refused ? 'It has control characters, and is not copied' : null, onclick: () => copy(text, label) }, `Copy: ${label}`));
  }

  // Enough of C, C++ and Rust to tell comments, strings and words apart; a line that begins inside a comment is not known to.
  const TOKENS = /(\/\/.*|\/\*.*?(?:\*\/|$))|("(?:[^"\\]|\\.)*"?)|\b(alignas|as|async|auto|await|bool|break|case|catch|char|class|const|constexpr|continue|crate|default|delete|do|double|else|enum|extern|false|float|fn|for|goto|if|impl|inline|int|let|long|loop|match|mod|mut|namespace|new|nullptr|pub|return|self|short|signed|sizeof|static|struct|switch|template|this|throw|trait|true|try|typedef|typename|union|unsafe|unsigned|use|using|virtual|void|volatile|where|while|\w+_t)\b|\b(0[xX][0-9a-fA-F_]+|\d[\d_.]*\w*)\b/g;
  const TOKEN_CLASSES = ['s-c', 's-s', 's-k', 's-n'];
  function highlighted(line) {
    const parts = [];
    let from = 0;
    for (const found of line.matchAll(TOKENS)) {
      parts.push(document.createTextNode(visibleLines(line.slice(from, found.index))));
      const kind = TOKEN_CLASSES[found.slice(1).findIndex((group) => group !== undefined)];
      const token = document.createElement('span');
      token.className = kind;
      token.textContent = visibleLines(found[0]);
      parts.push(token);
      from = found.index + found[0].length;
    }
    parts.push(document.createTextNode(visibleLines(line.slice(from))));
    return parts;
  }
  const AROUND = 3;
  /** The lines around a frame's line, if the report has them. */
  function source(report, frame, whose) {
    if (!frame.file || !frame.line) return null;
    const file = data.reports[report].sources.find((one) => one.file === frame.file);
    const excerpt = file && file.excerpts.find((one) => one.line <= frame.line && frame.line < one.line + one.text.length);
    if (!excerpt) return null;
    const first = Math.max(excerpt.line, frame.line - AROUND);
    const last = Math.min(excerpt.line + excerpt.text.length - 1, frame.line + AROUND);
    const code = el('code');
    for (let number = first; number <= last; number += 1) {
      const here = number === frame.line;
      code.append(el('span', { class: here ? 'source-line here' : 'source-line' },
        el('span', { class: 'line-number' }, String(number)), highlighted(excerpt.text[number - excerpt.line])));
    }
    const where = visible(frame.at, 300);
    return [el('pre', { class: 'source', tabindex: '0', role: 'region', 'aria-label': `Source of ${whose}: ${where}` }, code),
      file.newer && el('p', { class: 'empty' }, 'The file was changed after the program was built, so lines may have moved.')];
  }
  const named = (frame) => (frame.function ? `${visible(frame.at, 1000)} in ${visible(frame.function, 1000)}` : visible(frame.at, 1000));
  const FRAMES_MAX = 500;
  function stack(event) {
    const frames = data.stacks[event.stack].map((number) => data.frames[number]);
    return el('details', { class: 'stack' }, el('summary', {}, `Stack, ${counted(frames.length, 'frame')}`),
      el('ol', {}, frames.slice(0, FRAMES_MAX).map((frame, at) => el('li', { class: event.shown && event.shown[0] === at ? 'mono shown' : 'mono' }, named(frame), frame.inlined && ' (inlined)')),
        frames.length > FRAMES_MAX && el('li', {}, `${counted(frames.length - FRAMES_MAX, 'more frame')}`)));
  }
  const shownFrames = (event) => (event.shown || []).map((at) => data.frames[data.stacks[event.stack][at]]);
  const places = (event) => shownFrames(event).map((frame) => `${frame.file}:${frame.line}`).join();
  function eventItem(finding, event, number, threads) {
    const frames = shownFrames(event);
    // Ten stores that one write-back covers: its lines need not be read ten times.
    const before = finding.events.slice(0, number - 1).findIndex((other) => places(other) === places(event)) + 1;
    const lines = (parts) => (before > 0 && parts ? el('details', { class: 'again' }, el('summary', {}, `Source, as at (${before})`), parts) : parts);
    return el('li', { id: `event-${number}`, class: event.role === 'crash' ? 'crash' : null },
      el('div', { class: 'event-head' },
        el('span', { class: 'event-number' }, `(${number})`), el('span', { class: 'role' }, event.role || 'event'), el('span', {}, event.text),
        event.place && el('span', { class: 'mono where' }, `[${visible(event.place, 300)}]`),
        threads > 1 && event.thread !== undefined && el('span', { class: 'where' }, `thread ${event.thread}`),
        event.index !== undefined && el('span', { class: 'where' }, `event ${event.index}`)),
      frames.map((frame, at) => [el('div', { class: 'mono where' }, at > 0 && 'for ', named(frame)), lines(source(finding.reports[0], frame, at > 0 ? `who uses event ${number}` : `event ${number}`))]),
      event.stack !== undefined && stack(event));
  }
  function originItem(origin) {
    const words = (origin.command || []).map((word) => visible(word, 500)).join(' ');
    return el('li', {}, origin.test && ['the test ', el('b', {}, visible(origin.test, 500)), origin.runner && ` of ${visible(origin.runner, 100)}`, words && ': '],
      !origin.test && 'the program ', words && el('code', {}, words), origin.pid !== undefined && !origin.test && ` (process ${origin.pid})`);
  }
  const DIFF_CLASSES = { '+': 'added', '@': 'hunk', '-': 'hunk' };
  function diff(lines) {
    const text = `${lines.join('\n')}\n`;
    const refused = lines.some((line) => isHostile(line.replaceAll('\t', '')));
    return [el('pre', { class: 'source diff', tabindex: '0', role: 'region', 'aria-label': 'Sketch of a fix, as a diff' }, el('code', {}, lines.map((line, at) => {
      const shown = el('span', { class: `source-line ${at < 2 ? 'hunk' : DIFF_CLASSES[line[0]] || ''}` });
      shown.append(...(at < 3 ? [document.createTextNode(visibleLines(line))] : [document.createTextNode(line[0]), ...highlighted(line.slice(1))]));
      return shown;
    }))),
    el('p', { class: 'empty' }, 'A sketch that nobody has compiled: the calls are libpmem’s, and your program may have its own. ', el('button', { type: 'button', disabled: refused, onclick: () => copy(text, 'diff') }, 'Copy: diff'))];
  }
  function rulePage(rule, content) {
    const page = el('details', { class: 'rule-page' }, el('summary', {}, `The rule ${visible(rule, 200)}`), content.cloneNode(true));
    // What may scroll can be reached by the keyboard.
    for (const code of page.querySelectorAll('pre')) code.tabIndex = 0;
    return page;
  }
  function section(title, ...children) {
    return [el('h4', {}, title), ...children];
  }
  function drawFinding() {
    const pane = byId('finding');
    const finding = byKey.get(state.finding);
    if (!finding) {
      pane.replaceChildren(el('p', { class: 'empty' }, state.finding ? `There is no finding ${visible(state.finding, 60)} in this report.` : data.findings.length ? 'Choose a finding from the list, or press j.' : ''));
      return;
    }
    const threads = new Set(finding.events.map((event) => event.thread).filter((thread) => thread !== undefined)).size;
    const native = finding.native;
    const explained = byId(`rule-${finding.rule}`);
    pane.replaceChildren();
    fill(pane, {}, [
      el('h3', {}, el('span', { class: `severity ${finding.severity}` }, `${SHAPES[finding.severity] || ''} ${finding.level}[${visible(finding.rule, 200)}]`), ' ', visible(finding.message, 2000)),
      el('p', { class: 'meta' }, el('span', {}, finding.severity), finding.change && el('span', { class: 'change' }, finding.change), finding.at && el('span', { class: 'mono' }, finding.at),
        finding.seen && el('span', {}, `seen ${finding.seen} times`),
        finding.fingerprint && el('span', {}, 'fingerprint ', el('a', { class: 'mono', href: `#${new URLSearchParams({ finding: finding.key })}` }, visible(finding.fingerprint, 80)))),
      data.reports.length > 1 && el('p', { class: 'meta' }, `In ${finding.reports.length === 1 ? 'the report' : 'the reports'}: ${finding.reports.slice(0, 20).map((number) => `${data.is_comparison ? ['old, ', 'new, '][number] : ''}${visible(data.reports[number].title, 200)}`).join('; ')}${finding.reports.length > 20 ? ` and ${finding.reports.length - 20} more` : ''}`),
      (finding.help || []).length > 0 && section('What to do', el('ul', {}, finding.help.map((text) => el('li', {}, text)))),
      finding.sketch && section('Sketch of a fix', diff(finding.sketch)),
      (finding.pictures || []).map((picture) => (picture.kind === 'lines' ? section('Cache lines', drawLines(picture, finding, false)) : drawThreads(picture))),
      chainOf(finding),
      section('What happened', el('ol', { class: 'events' }, finding.events.map((event, at) => eventItem(finding, event, at + 1, threads)))),
      (finding.origins || []).length > 0 && section('Seen in', el('ul', { class: 'origins' }, finding.origins.map(originItem))),
      (finding.notes || []).length > 0 && section('Notes', el('ul', {}, finding.notes.map((text) => el('li', {}, text)))),
      (finding.replay || native) && section('See it again', el('div', { class: 'commands' },
        finding.replay && command(finding.replay, 'replay'), native && command(native.command, 'natively'), native && command(native.gdb, 'debugger')),
      native && el('p', {}, `Natively, recovery ends with ${visible(native.status, 200)}${native.confirmed ? ', which was seen when the report was made.' : '; that was not confirmed when the report was made.'}`),
      native && native.stdout && [el('p', {}, 'It prints:'), el('pre', { class: 'output', tabindex: '0' }, document.createTextNode(visibleLines(native.stdout.slice(0, 20000))))]),
      explained && rulePage(finding.rule, explained.content),
    ]);
  }

  // ------------------------------------------------------------ pictures

  const STATES = {
    dirty: 'stored, not written back', 'written-back': 'written back, not fenced', durable: 'persistent', lost: 'lost in the crash', 'lost-in-part': 'lost in part', survived: 'survives the crash', untold: 'not told',
  };
  /** One shape a state, so that none is told by its colour alone. */
  function shape(name, x, y) {
    const at = (points) => points.map(([dx, dy]) => `${x + dx},${y + dy}`).join(' ');
    switch (name) {
      case 'dirty': return svg('rect', { class: name, x: x - 6, y: y - 6, width: 12, height: 12 });
      case 'written-back': return svg('polygon', { class: `${name} hollow`, points: at([[0, -8], [8, 6], [-8, 6]]) });
      case 'durable': return svg('circle', { class: name, cx: x, cy: y, r: 7 });
      case 'lost': return svg('path', { class: name, d: `M${x - 6} ${y - 6}l12 12M${x + 6} ${y - 6}l-12 12` });
      case 'lost-in-part': return svg('path', { class: name, d: `M${x - 6} ${y - 6}l12 12M${x - 7} ${y + 7}h14` });
      case 'survived': return svg('path', { class: name, d: `M${x - 7} ${y}l5 6l9 -11` });
      default: return svg('circle', { class: 'untold', cx: x, cy: y, r: 2 });
    }
  }
  /** What happens to a line after the crash: it is read, or something comes too late. */
  function mark(role, x, y) {
    if (role === 'load') return svg('path', { class: 'reads', d: `M${x - 9} ${y}q9 -10 18 0q-9 10 -18 0zM${x - 2} ${y}h4` });
    return svg('rect', { class: 'dirty hollow', x: x - 6, y: y - 6, width: 12, height: 12 });
  }
  function legend(names, reads) {
    const item = (drawn, text) => el('li', {}, svg('svg', { width: 20, height: 20, 'aria-hidden': 'true' }, drawn), text);
    return el('ul', { class: 'legend' }, names.map((name) => item(shape(name, 10, 10), STATES[name])), reads && item(mark('load', 10, 10), 'recovery reads it'));
  }
  function goToEvent(number) {
    const item = byId(`event-${number}`);
    if (!item) return;
    for (const lit of document.querySelectorAll('.events > .lit')) lit.classList.remove('lit');
    item.classList.add('lit');
    item.scrollIntoView({ block: 'center' });
  }
  const short = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);
  const ROLE_WORDS = { flush: 'write-back', 'earlier-flush': 'write-back', 'earlier-store': 'store', 'later-store': 'store', early: 'store', survivor: 'store', late: 'store', crash: 'power fails' };
  const roleWord = (role) => ROLE_WORDS[role] || role || 'event';
  const LETTERS = { '.': 'untold', d: 'dirty', w: 'written-back', p: 'durable', l: 'lost', s: 'survived', h: 'lost-in-part' };
  /** What a column is called: its events, or where in the code it is. Of a header, who uses it says more. */
  const columnName = (column) => (column.events.length > 0 ? `(${column.events.join(', ')})` : tail(visible((column.at || '').split(', for ').pop(), 200), 11));
  const TOO_LATE = { flush: 'too late', late: 'not made yet' };
  /** `all`: also what is folded. */
  function drawLines(given, finding, all) {
    const folded = given.columns.filter((column) => column.folded).length;
    const first = all ? 0 : folded;
    const columns = given.columns.slice(first);
    const picture = { ...given, rows: given.rows.map((row) => ({
      ...row, states: [...row.states].slice(first).map((letter) => LETTERS[letter]), touched: row.touched.map((at) => at - first), beside: LETTERS[row.beside],
    })) };
    const names = picture.rows.map((row) => visible(`${short(baseName(picture.files[row.file]), 24)}+0x${row.offset}`));
    const called = picture.rows.map((row) => short(visible(row.name || '', 200), 32));
    const hasNames = called.some((name) => name !== '');
    const hasBeside = picture.rows.some((row) => row.beside);
    const left = 16 + 7.5 * Math.max(...names.map((name) => name.length), ...called.map((name) => name.length), 10);
    const width = 88;
    const top = 52;
    const height = hasNames ? 42 : 34;
    const x = (column) => left + width * (column + 0.5);
    const y = (line) => top + height * (line + 0.5);
    const total = { width: left + width * (columns.length + (hasBeside ? 1 : 0)) + 12, height: top + height * picture.rows.length + 12 };
    const described = (row, line) => `${names[line]}${called[line] && `, ${visible(row.name, 200)}`}: ${columns.map((column, at) => `${roleWord(column.role)} ${columnName(column)}: ${STATES[row.states[at]]}`).join('; ')}${row.beside ? `; with nothing lost: ${STATES[row.beside]}` : ''}.`;
    const root = svg('svg', { width: total.width, height: total.height, viewBox: `0 0 ${total.width} ${total.height}`, role: 'img', 'aria-labelledby': 'picture-title picture-text' },
      svg('title', { id: 'picture-title' }, 'Cache lines over the events'),
      svg('desc', { id: 'picture-text' }, picture.rows.map(described).join(' ')));
    const crash = columns.findIndex((column) => column.part === 'crash');
    if (crash >= 0) root.append(svg('rect', { class: 'after', x: x(crash), y: 0, width: total.width - x(crash), height: total.height }));
    const threads = new Set(columns.map((column) => column.thread).filter((one) => one !== undefined)).size;
    columns.forEach((column, at) => {
      const isCrash = column.part === 'crash';
      const event = finding.events[column.events[0] - 1];
      const below = column.part === 'after' ? TOO_LATE[column.role] || 'recovery' : threads > 1 && column.thread !== undefined && !isCrash ? `thread ${column.thread}` : '';
      root.append(svg('g', { class: event ? 'event' : 'step', onclick: () => event && goToEvent(column.events[0]) },
        svg('title', {}, event ? event.text : `${roleWord(column.role)} at ${visible(column.at || '', 300)}`),
        svg('text', { class: isCrash ? 'crash-text' : event ? '' : 'faint', x: x(at), y: 16, 'text-anchor': 'middle' }, columnName(column)),
        svg('text', { class: isCrash ? 'crash-text' : event ? '' : 'faint', x: x(at), y: 31, 'text-anchor': 'middle' }, roleWord(column.role)),
        svg('text', { class: 'faint', x: x(at), y: 45, 'text-anchor': 'middle' }, below)));
      if (column.skipped > 0) root.append(svg('text', { class: 'faint', x: x(at) - width / 2, y: 45, 'text-anchor': 'middle' }, `⋯${column.skipped.toLocaleString('en')}`));
    });
    picture.rows.forEach((row, line) => {
      root.append(svg('line', { class: 'grid', x1: left, x2: total.width - 8, y1: y(line), y2: y(line) }), svg('text', { x: left - 12, y: y(line) + (called[line] ? -3 : 4), 'text-anchor': 'end' }, names[line]),
        called[line] && svg('text', { class: 'faint', x: left - 12, y: y(line) + 12, 'text-anchor': 'end' }, svg('title', {}, visible(row.name, 500)), called[line]));
      row.states.forEach((name, at) => {
        const next = columns[at + 1];
        if (name !== 'untold' && next && columns[at].part === 'run') {
          root.append(svg('line', { class: `run-line ${name}`, x1: x(at), x2: x(at + 1), y1: y(line), y2: y(line), opacity: 0.5 }));
        }
      });
      row.states.forEach((name, at) => {
        const part = columns[at].part;
        // What became of the line is drawn once, right of the crash; before it, where something happened to it or it is as it was.
        const shift = part === 'crash' ? 22 : 0;
        if (part === 'after') {
          if (row.touched.includes(at)) root.append(mark(columns[at].role, x(at), y(line)));
          return;
        }
        if (part === 'run' && !row.touched.includes(at) && at > 0 && row.states[at - 1] === name) return;
        const drawnShape = shape(name, x(at) + shift, y(line));
        drawnShape.append(svg('title', {}, STATES[name]));
        root.append(drawnShape);
      });
      if (row.beside) root.append(shape(row.beside, x(columns.length), y(line)));
    });
    if (crash >= 0) root.append(svg('line', { class: 'crash-line', x1: x(crash), x2: x(crash), y1: 50, y2: total.height - 4 }));
    if (hasBeside) {
      const edge = x(columns.length) - width / 2;
      root.append(svg('line', { class: 'lane', x1: edge, x2: edge, y1: 4, y2: total.height - 4 }),
        svg('text', { x: x(columns.length), y: 16, 'text-anchor': 'middle' }, 'comparison'), svg('text', { x: x(columns.length), y: 31, 'text-anchor': 'middle' }, 'nothing lost'));
    }
    const used = Object.keys(STATES).filter((name) => picture.rows.some((row) => row.states.includes(name) || row.beside === name));
    const reads = columns.some((column) => column.part === 'after' && column.role === 'load');
    const figure = el('figure', { class: 'picture' },
      folded > 0 && el('button', { type: 'button', class: 'unfold', 'aria-expanded': String(Boolean(all)), onclick: () => {
        const made = drawLines(given, finding, !all);
        figure.replaceWith(made);
        made.querySelector('.unfold').focus();
      } }, all ? `Fold ${counted(folded, 'earlier step')}` : `Show ${counted(folded, 'earlier step')} on these lines`),
      el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Picture of the cache lines' }, root), legend(used, reads),
      el('figcaption', {}, 'Each row is a cache line of 64 bytes, by its offset in the file; each column an event of this finding, or a step of the run on these lines, in order.',
        crash >= 0 && ' The dashed line is where the power fails; right of it is what became of the line, and what recovery does with it.',
        picture.nothing_lost && [' For comparison, a crash at the same point that loses nothing: ', visible(picture.nothing_lost, 500), '.'],
        picture.hidden > 0 && ` ${counted(picture.hidden, 'more line')} not shown.`, ' Only what the report tells is drawn.'));
    return figure;
  }

  function drawThreads(picture) {
    const texts = picture.steps.map((step) => visible(`(${step.event}) ${roleWord(step.role)}${step.at ? ` ${short(step.at, 34)}` : ''}`));
    const width = Math.max(150, 8 * Math.max(...texts.map((text) => text.length)) + 24);
    const top = 34;
    const height = 46;
    const x = (thread) => width * (thread + 0.5) + 8;
    const y = (at) => top + height * (at + 0.5);
    const total = { width: width * picture.threads.length + 16, height: top + height * picture.steps.length + 10 };
    const root = svg('svg', { width: total.width, height: total.height, viewBox: `0 0 ${total.width} ${total.height}`, role: 'img', 'aria-labelledby': 'threads-title threads-text' },
      svg('title', { id: 'threads-title' }, 'Threads beside each other, from top to bottom'),
      svg('desc', { id: 'threads-text' }, picture.steps.map((step, at) => `${step.thread === null ? '' : `Thread ${picture.threads[step.thread]}: `}${texts[at]}.`).join(' ')));
    picture.threads.forEach((thread, at) => root.append(svg('text', { x: x(at), y: 18, 'text-anchor': 'middle' }, `thread ${thread}`), svg('line', { class: 'lane', x1: x(at), x2: x(at), y1: 26, y2: total.height - 4 })));
    picture.steps.forEach((step, at) => {
      if (step.switched) {
        root.append(svg('line', { class: 'switch', x1: 8, x2: total.width - 8, y1: y(at) - height / 2, y2: y(at) - height / 2 }), svg('text', { class: 'faint', x: 8, y: y(at) - height / 2 - 3 }, 'switch'));
      }
    });
    for (const [from, to] of picture.arrows) {
      const [a, b] = [picture.steps[from], picture.steps[to]];
      if (a.thread === null || b.thread === null) continue;
      const [x1, y1, x2, y2] = [x(a.thread), y(from) + 12, x(b.thread), y(to) - 12];
      root.append(svg('path', { class: 'arrow', d: `M${x1} ${y1}L${x2} ${y2}` }));
      const turn = Math.atan2(y2 - y1, x2 - x1);
      const tip = [[0, 0], [-10, -5], [-10, 5]].map(([px, py]) => `${x2 + px * Math.cos(turn) - py * Math.sin(turn)},${y2 + px * Math.sin(turn) + py * Math.cos(turn)}`);
      root.append(svg('polygon', { class: 'arrow-head', points: tip.join(' ') }));
    }
    picture.steps.forEach((step, at) => {
      const box = 7.5 * texts[at].length + 14;
      const isCrash = step.role === 'crash';
      const middle = step.thread === null ? total.width / 2 : x(step.thread);
      if (isCrash) root.append(svg('line', { class: 'crash-line', x1: 8, x2: total.width - 8, y1: y(at), y2: y(at) }));
      root.append(svg('g', { class: 'event', onclick: () => goToEvent(step.event) }, svg('rect', { class: 'box', x: middle - box / 2, y: y(at) - 12, width: box, height: 24, rx: 5 }),
        svg('text', { class: isCrash ? 'crash-text' : '', x: middle, y: y(at) + 4, 'text-anchor': 'middle' }, texts[at])));
    });
    return [el('h4', {}, 'Threads'), el('figure', { class: 'picture' }, el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Picture of the threads' }, root),
      el('figcaption', {}, 'Each column is a thread, time goes down.', picture.arrows.length > 0 && ' Arrows lead from a store to who reads it and to what becomes of it.', picture.steps.some((step) => step.switched) && ' Dotted lines mark that another thread went on.'))];
  }

  // ----------------------------------------------------------- campaigns

  function duration(seconds) {
    if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
    return `${Math.floor(minutes / 60).toLocaleString('en')} h ${minutes % 60} min`;
  }
  const lastOf = (points) => (points.length > 0 ? points[points.length - 1][1] : 0);
  /** Numbers over time: each stays what it was until it was seen to be another. */
  function chart(title, curves, campaign) {
    const WIDTH = 320;
    const HEIGHT = 120;
    const [left, right, top, bottom] = [4, WIDTH - 4, 14, HEIGHT - 16];
    const most = Math.max(1, ...curves.flatMap((curve) => curve.points.map(([, value]) => value)));
    const whole = Math.max(campaign.seconds, 0.001);
    const x = (seconds) => left + ((right - left) * seconds) / whole;
    const y = (value) => bottom - ((bottom - top) * value) / most;
    const line = (points) => points.map(([seconds, value], at) => (at === 0 ? `M${x(seconds).toFixed(1)} ${y(value).toFixed(1)}` : `H${x(seconds).toFixed(1)}V${y(value).toFixed(1)}`)).join('');
    const says = curves.map((curve) => `${curve.name}: ${lastOf(curve.points).toLocaleString('en')} after ${duration(whole)}`).join('; ');
    return el('figure', { class: 'chart' },
      el('figcaption', {}, title !== curves[0].name && `${title}: `, curves.map((curve, at) => [at > 0 && ', ', `${visible(curve.name, 100)} `, el('b', {}, lastOf(curve.points).toLocaleString('en'))])),
      svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': visible(`${title} over time. ${says}.`, 500) },
        svg('path', { class: 'axis', d: `M${left} ${top}V${bottom}H${right}` }),
        campaign.resumed.map((seconds) => svg('line', { class: 'resumed', x1: x(seconds), x2: x(seconds), y1: top, y2: bottom })),
        curves.map((curve) => svg('path', { class: `curve ${['correctness', 'others'].includes(curve.name) ? curve.name : ''}`, d: line(curve.points) })),
        svg('text', { class: 'faint', x: left + 3, y: 10 }, most.toLocaleString('en')),
        svg('text', { class: 'faint', x: left, y: HEIGHT - 3 }, '0'), svg('text', { class: 'faint', x: right, y: HEIGHT - 3, 'text-anchor': 'end' }, duration(whole))));
  }
  /** When a curve was half as high as in the end, and when it last rose. */
  function reachedRow(curve) {
    const end = lastOf(curve.points);
    const half = curve.points.find(([, value]) => value > 0 && value * 2 >= end);
    const rose = curve.points.filter(([, value], at) => at > 0 && value > curve.points[at - 1][1]).pop();
    return el('tr', {}, el('th', { scope: 'row' }, visible(curve.name, 100)), el('td', {}, end.toLocaleString('en')), el('td', {}, half && end > 0 ? duration(half[0]) : '–'), el('td', {}, rose ? duration(rose[0]) : '–'));
  }
  const WAYS = { root: 'there from the beginning', run: 'left by a run', crash: 'left by a crash', flipped: 'bytes flipped', turned: 'a branch was turned by the solver', made: 'put together from parts of others' };
  /** What the nodes of a tree are called. */
  const NODES = {
    images: { title: 'Images', noun: 'image', name: (node) => `img:${node.number}`, says: (number) => `What the program's files held when it was started: ${number}, each below the one that it came from.`, chain: 'How its image came about', last: 'then the run that shows the finding' },
    paths: { title: 'Paths', noun: 'path', name: (node) => `tests/${String(node.number).padStart(6, '0')}`, says: (number) => `Inputs that did something new to persistent memory: ${number}, each below the last one on the way to it; between may be others.`, chain: 'How its input came about', last: 'the finding is on this path, or on one that was made from it' },
  };
  const nodesOf = (campaign) => (campaign.is_of_paths ? NODES.paths : NODES.images);
  /** One shape a way, so that none is told by its colour alone. */
  function wayShape(way, x, y) {
    if (way === 'root') return svg('rect', { class: 'way', x: x - 6, y: y - 6, width: 12, height: 12 });
    if (way === 'made') return svg('polygon', { class: 'way', points: `${x},${y - 7} ${x + 7},${y} ${x},${y + 7} ${x - 7},${y}` });
    if (way === 'flipped') return svg('polygon', { class: 'way', points: `${x},${y - 7} ${x + 7},${y + 6} ${x - 7},${y + 6}` });
    const disc = svg('circle', { class: 'way', cx: x, cy: y, r: 6 });
    return way === 'crash' ? [disc, svg('path', { class: 'way-mark', d: `M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8` })] : disc;
  }
  /** The rows from the root to the image whose test cases show a finding, or to the path that leads to it. */
  function chainTo(campaign, fingerprint) {
    const chain = [];
    let at = fingerprint ? campaign.tree.findIndex((node) => (node.findings || []).includes(fingerprint)) : -1;
    while (at >= 0 && at !== undefined) {
      chain.unshift(at);
      at = campaign.tree[at].parent;
    }
    return chain;
  }
  const TREE_ROW = 22;
  function drawTree(campaign) {
    const STEP = 20;
    const lit = new Set(chainTo(campaign, (byKey.get(state.finding) || {}).fingerprint));
    const x = (node) => 12 + STEP * Math.min(node.depth, 60);
    const y = (at) => 14 + TREE_ROW * at;
    const nodes = nodesOf(campaign);
    const texts = campaign.tree.map((node) => visible(`${nodes.name(node)} ${node.origin}${node.cases > 0 ? `, ${counted(node.cases, 'test case')}` : ''}${node.more ? `, ${counted(node.more, `more ${nodes.noun}`)} from here` : ''}`, 300));
    const wide = Math.max(300, ...campaign.tree.map((node, at) => x(node) + 20 + 7.4 * (texts[at].length + 24)));
    const root = svg('svg', { class: 'tree', width: wide, height: y(campaign.tree.length), role: 'group', 'aria-label': `${nodes.title}, each below the one that it came from` });
    campaign.tree.forEach((node, at) => {
      if (node.parent === undefined) return;
      const from = campaign.tree[node.parent];
      root.append(svg('path', { class: lit.has(at) ? 'lit' : '', d: `M${x(from)} ${y(node.parent) + 6}V${y(at)}H${x(node) - 6}` }));
    });
    campaign.tree.forEach((node, at) => {
      const found = (node.findings || []).map((name) => byKey.get(name)).filter(Boolean);
      const shapes = [...new Set(found.map((finding) => SHAPES[finding.severity]))].join('');
      const row = svg('g', { class: lit.has(at) ? 'lit' : '' }, wayShape(node.way, x(node), y(at)), svg('text', { x: x(node) + 14, y: y(at) + 4 }, texts[at]));
      if (found.length > 0) {
        row.append(svg('a', { href: address({ finding: found[0].key }), 'aria-label': `${counted(found.length, 'finding')} on ${nodes.noun} ${node.number}` },
          svg('text', { x: x(node) + 24 + 7.4 * texts[at].length, y: y(at) + 4 }, `${shapes} ${counted(found.length, 'finding')}`)));
      }
      root.append(row);
    });
    return root;
  }
  const treeLegend = (campaign) => el('ul', { class: 'legend' }, Object.keys(WAYS).filter((way) => campaign.tree.some((node) => node.way === way))
    .map((way) => el('li', {}, svg('svg', { width: 20, height: 20, 'aria-hidden': 'true' }, wayShape(way, 10, 10)), WAYS[way])));
  const RUNNING = { true: 'It goes on', false: 'It does not run now' };
  function drawCampaign(campaign) {
    const rate = campaign.executions / Math.max(campaign.seconds, 0.001);
    const all = [...campaign.findings, ...campaign.curves];
    const isEmpty = campaign.curves.every((curve) => curve.points.length === 0);
    return el('section', {}, el('h3', {}, visible(campaign.title, 300)),
      el('p', {}, `${RUNNING[campaign.running] || 'Whether it goes on is not known'}: ${counted(campaign.executions, 'execution')} in ${duration(campaign.seconds)} (${rate.toFixed(rate < 10 ? 1 : 0)} a second), kept in `, el('code', {}, visible(campaign.folder, 500)), '.'),
      isEmpty ? el('p', { class: 'empty' }, 'Nothing is written down yet of what was reached when.') : [
        el('div', { class: 'charts' }, campaign.findings.length > 0 && chart('Findings', campaign.findings, campaign), campaign.curves.map((curve) => chart(curve.name, [curve], campaign))),
        campaign.resumed.length > 0 && el('p', { class: 'empty' }, `Dotted lines mark that the tool was started again: what had been reached is counted anew from there.`),
        el('details', {}, el('summary', {}, 'The same as a table'), el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'What was reached when' }, el('table', { class: 'reached' },
          el('thead', {}, el('tr', {}, ['', 'at the end', 'half of it after', 'rose last after'].map((text) => el('th', { scope: 'col' }, text || 'figure')))), el('tbody', {}, all.map(reachedRow)))))],
      campaign.tree.length > 0 && [el('h4', {}, nodesOf(campaign).title), el('p', {}, `${nodesOf(campaign).says(counted(campaign.images, nodesOf(campaign).noun))} The way to the finding that is chosen is drawn thick.`),
        el('div', { class: 'tree-box', tabindex: '0', role: 'region', 'aria-label': `Tree of ${nodesOf(campaign).noun}s` }, drawTree(campaign)), treeLegend(campaign)]);
  }
  function drawCampaigns(isChosen) {
    if (!data.campaigns) return;
    const body = byId('campaigns-body');
    const scrolled = [...body.querySelectorAll('.tree-box')].map((box) => [box.scrollLeft, box.scrollTop]);
    const opened = [...body.querySelectorAll('details')].map((one) => one.open);
    byId('campaigns').hidden = false;
    body.replaceChildren(...data.campaigns.map(drawCampaign));
    const withTree = data.campaigns.filter((campaign) => campaign.tree.length > 0);
    body.querySelectorAll('.tree-box').forEach((box, at) => {
      const end = Math.max(-1, ...chainTo(withTree[at], (byKey.get(state.finding) || {}).fingerprint));
      if (scrolled[at]) [box.scrollLeft, box.scrollTop] = scrolled[at];
      // The image of the finding that has just been chosen is to be seen.
      if (isChosen && end >= 0) box.scrollTop = Math.max(0, TREE_ROW * end - box.clientHeight / 2);
    });
    body.querySelectorAll('details').forEach((one, at) => { one.open = Boolean(opened[at]); });
  }
  /** How the image came about on which a finding was made, or the input that shows it. */
  function chainOf(finding) {
    return (data.campaigns || []).map((campaign) => [nodesOf(campaign), chainTo(campaign, finding.fingerprint).map((at) => campaign.tree[at])]).filter(([, chain]) => chain.length > 0)
      .map(([nodes, chain]) => section(nodes.chain, el('ol', { class: 'chain' }, chain.map((node) => el('li', {}, `${visible(node.origin, 500)} `, el('span', { class: 'where' }, nodes.name(node)))), el('li', {}, nodes.last))));
  }

  /** Why there is nothing new, by the word for it. */
  const TROUBLES = {
    busy: 'What is new cannot be told at the moment. It is tried again.',
    unreachable: 'Brownout cannot be reached: it was ended, or the connection is lost. This is what it showed last; it is asked again.',
    gone: 'Brownout does not serve this page any more: this is what it showed last.',
  };
  /** What is new in a page that is served. Figures are drawn anew; a list that somebody reads is not taken away from them. */
  function follow({ now, trouble, why }) {
    const watched = byId('watched');
    watched.hidden = false;
    if (trouble) {
      watched.textContent = why ? `${TROUBLES[trouble]} (${visible(why, 500)})` : TROUBLES[trouble];
      return;
    }
    if (JSON.stringify(now.campaigns) !== JSON.stringify(data.campaigns) && !byId('campaigns-body').contains(document.activeElement)) {
      data.campaigns = now.campaigns;
      drawCampaigns(false);
    }
    if (now.version === data.watch) watched.textContent = 'Watched: the figures are drawn anew as they change.';
    else if (!watched.querySelector('button')) watched.replaceChildren(`There are other findings now (${counted(now.findings, 'finding')}).`, el('button', { type: 'button', onclick: () => location.reload() }, 'Show them'));
  }

  // -------------------------------------------------------------- costs

  const percent = (part, whole) => (whole === 0 ? '–' : `${((100 * part) / whole).toFixed(1)} %`);
  /** What sorts a row, what stands above it, and what is shown if it is not the number.
   * @type {[string, string, (row: any) => any, ((row: any, all: any) => string)?][]} */
  const COST_COLUMNS = [
    ['name', '', (row) => row.name],
    ['needless', 'needless write-backs', (row) => row.needless],
    ['share', 'of all', (row) => row.needless, (row, all) => percent(row.needless, all.needed + all.needless)],
    ['needed', 'needed write-backs', (row) => row.needed],
    ['needless_fences', 'needless fences', (row) => row.needless_fences],
    ['fence_share', 'of all', (row) => row.needless_fences, (row, all) => percent(row.needless_fences, all.fences + all.needless_fences)],
    ['fences', 'needed fences', (row) => row.fences],
  ];
  function costTable(title, rows, all) {
    let by = 'needless';
    let down = true;
    const body = el('tbody');
    const heads = COST_COLUMNS.map(([key, label]) => el('th', { scope: 'col' }, el('button', { type: 'button', onclick: () => {
      down = by === key ? !down : key !== 'name';
      by = key;
      draw();
    } }, label || title)));
    function draw() {
      const value = COST_COLUMNS.find(([key]) => key === by)[2];
      const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (down ? -1 : 1);
      heads.forEach((head, at) => head.setAttribute('aria-sort', COST_COLUMNS[at][0] !== by ? 'none' : down ? 'descending' : 'ascending'));
      body.replaceChildren(...[...rows].sort(order).map((row) => el('tr', {}, COST_COLUMNS.map(([key, , number, text]) => (key === 'name'
        ? el('th', { scope: 'row', class: 'mono' }, visible(row.name, 300)) : el('td', {}, text ? text(row, all) : number(row).toLocaleString('en')))))));
    }
    draw();
    return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Costs by ${title}` }, el('table', { class: 'costs' }, el('caption', {}, `By ${title}, ${counted(rows.length, 'row')}`), el('thead', {}, el('tr', {}, heads)), body));
  }
  /** Calls from top to bottom, as wide as the lines that are written back below them; what is needless is hatched. */
  function flame(whole, onZoom) {
    const WIDTH = 1000;
    const HIGH = 22;
    const boxes = [];
    let depth = 0;
    (function place(node, x, width, level) {
      depth = Math.max(depth, level + 1);
      boxes.push([node, x, width, level]);
      let at = x;
      for (const call of node.calls || []) {
        const share = (width * (call.needed + call.needless)) / (node.needed + node.needless);
        if (share >= 1) place(call, at, share, level + 1);
        at += share;
      }
    }(whole, 0, WIDTH, 0));
    const root = svg('svg', { class: 'flame', viewBox: `0 0 ${WIDTH} ${depth * HIGH}`, role: 'img', 'aria-labelledby': 'flame-title' },
      svg('title', { id: 'flame-title' }, 'Write-backs by calls; the tables have the same numbers'),
      svg('defs', {}, svg('pattern', { id: 'hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' }, svg('rect', { class: 'hatch-back', width: 6, height: 6 }), svg('rect', { class: 'hatch-line', width: 2, height: 6 }))));
    for (const [node, x, width, level] of boxes) {
      const needless = (width * node.needless) / (node.needed + node.needless);
      const text = `${node.name || 'all'}: ${counted(node.needless, 'needless write-back')} of ${(node.needed + node.needless).toLocaleString('en')}`;
      root.append(svg('g', { class: 'call', onclick: () => onZoom(node) }, svg('title', {}, visible(text, 500)),
        svg('rect', { class: 'needed', x, y: level * HIGH, width, height: HIGH - 2 }), needless > 0 && svg('rect', { class: 'needless', x, y: level * HIGH, width: needless, height: HIGH - 2, fill: 'url(#hatch)' }),
        width > 50 && svg('text', { x: x + 4, y: level * HIGH + 14 }, short(visible(node.name || 'all write-backs', 200), Math.floor((width - 8) / 7.3)))));
    }
    return root;
  }
  function drawCosts() {
    const { costs } = data;
    if (!costs) return;
    const { all } = costs;
    byId('costs').hidden = false;
    const graph = el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Flame graph of write-backs' });
    const back = el('button', { type: 'button', onclick: () => zoom(costs.tree) }, 'Whole graph');
    function zoom(node) {
      graph.replaceChildren(flame(node, zoom));
      back.disabled = node === costs.tree;
    }
    const hasTree = costs.tree.needed + costs.tree.needless > 0;
    if (hasTree) zoom(costs.tree);
    // Where nothing is needless, that is all there is to say.
    const isWorthIt = all.needless + all.needless_fences > 0;
    fill(byId('costs-body'), {}, [
      el('p', {}, `${counted(all.needless, 'needless write-back')} of ${(all.needed + all.needless).toLocaleString('en')} (${percent(all.needless, all.needed + all.needless)}), ${counted(all.needless_fences, 'needless fence')} of ${(all.fences + all.needless_fences).toLocaleString('en')} (${percent(all.needless_fences, all.fences + all.needless_fences)}). A write-back is needless if its line was clean, or under way already.`),
      el('details', { open: isWorthIt }, el('summary', {}, 'By call and by source line'),
        hasTree && [el('p', {}, 'Each box is a call, as wide as the lines that it and what it calls write back; hatched is what is needless. A click shows one call alone. ', back), graph],
        costTable('source line', costs.lines, all)),
      el('details', {}, el('summary', {}, 'By function, with all that it calls'), costTable('function', costs.functions, all)),
    ]);
  }

  // ------------------------------------------------------------ coverage

  const TOUCHES = { stores: 'stores', flushes: 'write-backs', fences: 'fences', transactions: 'transactions', recovery: 'by recovery', crashes: 'crash states' };
  /** More rows of a file are counted only: its lcov file has all. */
  const LINES_MAX = 2000;
  function touchedTable(file, number) {
    const { sorts } = data.touched;
    const name = visible(file.file, 300);
    const rows = file.lines.slice(0, LINES_MAX).map((line) => el('tr', {}, el('th', { scope: 'row', class: 'mono' }, String(line.line)),
      sorts.map((sort) => el('td', { class: line.times[sort] === '0' && 'missed' }, line.times[sort] || '')), el('td', { class: 'mono' }, line.text === undefined ? '' : highlighted(line.text))));
    return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Lines of file ${number}, ${name}` }, el('table', { class: 'costs' },
      el('thead', {}, el('tr', {}, ['line', ...sorts.map((sort) => TOUCHES[sort]), 'source'].map((text) => el('th', { scope: 'col' }, text)))), el('tbody', {}, rows)),
    file.lines.length > LINES_MAX && el('p', { class: 'empty' }, `${counted(file.lines.length - LINES_MAX, 'more line')} not shown`));
  }
  function drawTouched() {
    const { touched } = data;
    if (!touched) return;
    byId('touched').hidden = false;
    const lines = touched.files.flatMap((file) => file.lines);
    const having = (is) => lines.filter((line) => Object.values(line.times).some(is)).length;
    const missed = having((times) => times === '0');
    fill(byId('touched-body'), {}, [
      el('p', {}, `${counted(having((times) => times !== '0'), 'line')}, summed up over the runs that were counted. A line that is not here was not executed, or does not touch persistent memory.`,
        missed > 0 && ` ${counted(missed, 'line')} with a 0 could write back, fence or call libpmem's functions, and ${missed === 1 ? 'was' : 'were'} not seen to.`,
        touched.unknown > 0 && ` ${counted(touched.unknown, 'place')} in the code, each with its callers, ${touched.unknown === 1 ? 'has' : 'have'} no source line that is known.`),
      touched.files.map((file, at) => {
        const one = el('details', {}, el('summary', {}, el('span', { class: 'mono' }, tail(visible(file.file, 2000), 80)), ` ${counted(file.lines.length, 'line')}`));
        // Made when it is looked at: a large program has many.
        one.addEventListener('toggle', () => { if (one.open && one.children.length === 1) one.append(touchedTable(file, at + 1)); });
        return one;
      }),
    ]);
    const first = byId('touched-body').querySelector('details');
    if (first && touched.files.length === 1) first.open = true;
  }

  // ---------------------------------------------------------- the whole

  function update(filtered) {
    choose();
    const select = (name) => { byId(name).value = state[name]; };
    FIELDS.forEach(select);
    if (byId('search').value !== state.q) byId('search').value = state.q;
    if (filtered) { drawBars(); list.scrollTop = 0; }
    showRow();
    drawRows(true);
  }
  function followAddress() {
    // The link that skips the overview names a place, and chooses nothing.
    if (/^#[^=&]+$/.test(location.hash)) return;
    const before = { ...state };
    readAddress();
    update(['q', ...FIELDS].some((name) => before[name] !== state[name]));
    if (before.finding !== state.finding) {
      drawFinding();
      drawCampaigns(true);
      const pane = byId('finding');
      const { top } = pane.getBoundingClientRect();
      if (state.finding && (top < 0 || top > window.innerHeight * 0.6)) byId('findings').scrollIntoView({ block: 'start' });
      if (state.finding && window.innerWidth < 960) pane.scrollIntoView({ block: 'start' });
    }
  }

  /** What the page has below its verdict, as buttons that lead there. */
  function drawParts() {
    const all = data.findings.length;
    const parts = [['campaigns', 'The campaign'], ['costs', 'What it costs'], ['findings', counted(all, 'finding')], ['touched', 'Where memory was touched']];
    byId('parts').append(...parts.filter(([id]) => (id === 'findings' ? all > 0 : !byId(id).hidden)).map(([id, text]) => el('button', { type: 'button', onclick: () => {
      byId(id).scrollIntoView({ block: 'start' });
      byId(`${id}-heading`).focus({ preventScroll: true });
    } }, `${text} ↓`)));
  }

  const THEMES = { '': ['◐', 'Auto', 'as the system has them'], light: ['○', 'Light', 'light'], dark: ['●', 'Dark', 'dark'] };
  function setTheme(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    const [sign, word, text] = THEMES[name];
    byId('theme').firstChild.textContent = `${sign} `;
    byId('theme-name').textContent = word;
    byId('theme').setAttribute('aria-label', `${sign} ${word}: colours ${text}`);
    try { localStorage.setItem('brownout-theme', name); } catch { /* A browser may keep nothing of pages from disk. */ }
  }
  function nextTheme() {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(document.documentElement.dataset.theme || '') + 1) % names.length]);
  }

  function onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const typing = event.target.closest('input, select, textarea');
    if (typing) {
      if (event.key === 'Escape') typing.blur();
      return;
    }
    if (byId('help').open) return;
    const finding = byKey.get(state.finding);
    const actions = {
      j: () => step(1),
      k: () => step(-1),
      '/': () => { byId('search').focus(); byId('search').select(); },
      '?': () => byId('help').showModal(),
      o: () => byId('overview').scrollIntoView({ block: 'end' }),
      t: nextTheme,
      c: () => { if (finding && finding.replay && !isHostile(finding.replay)) copy(finding.replay, 'replay'); },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  const PRINTED_MAX = 1000;
  function printAll() {
    isPrinting = true;
    rows.replaceChildren(...chosen.slice(0, PRINTED_MAX).map(row), ...(chosen.length > PRINTED_MAX ? [el('li', {}, `${counted(chosen.length - PRINTED_MAX, 'more finding')} not printed`)] : []));
    for (const details of document.querySelectorAll('#finding .stack')) details.setAttribute('open', '');
  }

  let theme = '';
  try { theme = localStorage.getItem('brownout-theme') || ''; } catch { /* As above. */ }
  setTheme(Object.hasOwn(THEMES, theme) ? theme : '');
  fillFilters();
  drawCosts();
  drawTouched();
  readAddress();
  if (!state.finding && data.findings.length > 0) state.finding = data.findings[0].key;
  drawBars();
  drawStrips();
  update(false);
  drawFinding();
  drawCampaigns(true);
  drawParts();
  if (new URLSearchParams(location.hash.slice(1)).has('finding')) byId('findings').scrollIntoView({ block: 'start' });
  for (const code of document.querySelectorAll('.run dd.command code')) {
    const text = code.textContent;
    code.setAttribute('tabindex', '0');
    code.parentElement.append(el('button', { type: 'button', onclick: () => copy(text, 'command') }, 'Copy'));
  }
  list.addEventListener('scroll', () => drawRows(false), { passive: true });
  window.addEventListener('resize', () => drawRows(false));
  window.addEventListener('hashchange', followAddress);
  window.addEventListener('beforeprint', printAll);
  window.addEventListener('afterprint', () => { isPrinting = false; drawRows(true); });
  document.addEventListener('keydown', onKey);
  byId('theme').addEventListener('click', nextTheme);
  byId('help-button').addEventListener('click', () => byId('help').showModal());
  document.addEventListener('brownout-now', (/** @type {CustomEvent} */ event) => follow(event.detail));
  document.documentElement.dataset.ready = 'true';
})();
