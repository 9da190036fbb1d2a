// The script that only a served page has: it asks its server now and then for what is new, and hands that to the page's own script. It goes on
// asking while the server cannot answer, or cannot be reached; only a server that does not know the page is not asked again.
'use strict';
(() => {
  const EVERY = 2000;
  const EVERY_MAX = 30000;
  let next = EVERY;
  const tell = (detail) => document.dispatchEvent(new CustomEvent('brownout-now', { detail }));
  async function ask() {
    try {
      const answer = await fetch('now.json', { cache: 'no-store' });
      if (answer.status === 503) {
        tell({ trouble: 'busy', why: (await answer.text()).trim() });
      } else if (!answer.ok) {
        tell({ trouble: 'gone' });
        return;
      } else {
        tell({ now: await answer.json() });
        next = EVERY;
      }
    } catch {
      tell({ trouble: 'unreachable' });
      next = Math.min(2 * next, EVERY_MAX);
    }
    setTimeout(ask, next);
  }
  setTimeout(ask, EVERY);
})();
