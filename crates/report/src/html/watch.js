// The script that only a served page has: it asks its server now and then for what is new, and hands that to the page's own script.
'use strict';
(() => {
  const EVERY = 2000;
  const tell = (detail) => document.dispatchEvent(new CustomEvent('brownout-now', { detail }));
  async function ask() {
    try {
      const answer = await fetch('now.json', { cache: 'no-store' });
      if (!answer.ok) throw new Error(String(answer.status));
      tell(await answer.json());
    } catch {
      tell(null);
      return;
    }
    setTimeout(ask, EVERY);
  }
  setTimeout(ask, EVERY);
})();
