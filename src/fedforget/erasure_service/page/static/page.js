// Keeps the changing parts of a page up to date, asks before what cannot be undone, and copies digests.
"use strict";
(() => {
  const EVERY = 2000, LONGEST = 30000, TIMEOUT = 10000;
  const byId = (id) => document.getElementById(id);
  const show = (id, text) => {
    const line = byId(id);
    if (!line) return;
    line.hidden = !text;
    if (line.textContent !== text) line.textContent = text;
  };

  // Make a node like another one, keeping its elements, so that focus, selection and opened details stay.
  const sameKind = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && one.id === other.id;
  function morph(node, wanted) {
    if (node.isEqualNode(wanted)) return;
    if (node.nodeType !== Node.ELEMENT_NODE) {
      node.nodeValue = wanted.nodeValue;
      return;
    }
    for (const { name } of [...node.attributes]) {
      if (name !== "open" && name !== "hidden" && !wanted.hasAttribute(name)) node.removeAttribute(name);
    }
    for (const { name, value } of [...wanted.attributes]) {
      if (name !== "hidden" && node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    const known = new Map([...node.children].filter((child) => child.id).map((child) => [child.id, child]));
    let place = node.firstChild;
    for (const child of [...wanted.childNodes]) {
      const match = child.id ? known.get(child.id) : place && sameKind(place, child) ? place : null;
      if (match && match.nodeName === child.nodeName) {
        if (match === place) place = place.nextSibling;
        else node.insertBefore(match, place);
        morph(match, child);
      } else {
        node.insertBefore(document.importNode(child, true), place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  const states = () =>
    new Map([...document.querySelectorAll("[data-announce]")].map((one) => [one.id, one.dataset.announce]));

  function replace(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const before = states(), focused = document.activeElement, region = focused && focused.closest("[data-region]");
    for (const wanted of fresh.querySelectorAll("[data-region]")) {
      const now = byId(wanted.id);
      if (now) morph(now, document.importNode(wanted, true));
    }
    showCopyButtons();
    if (region && document.activeElement !== focused) {
      const next = focused.isConnected ? focused : region.querySelector("h2[tabindex]");
      if (next) next.focus({ preventScroll: true });
    }
    const changed = [...states()].filter(([id, text]) => before.get(id) !== text).map(([, text]) => text);
    if (changed.length) byId("announcer").textContent = changed.slice(0, 5).join(". ");
  }

  function keepLive(address) {
    let timer = 0, pause = EVERY, busy = false, over = false, since = "";
    const clock = () => new Date().toLocaleTimeString([], { hour12: false });
    const later = () => {
      clearTimeout(timer);
      if (!over && !document.hidden) timer = setTimeout(refresh, pause);
    };
    async function refresh() {
      if (busy || over) return;
      busy = true;
      try {
        const answer = await fetch(address, {
          headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(TIMEOUT),
        });
        if (answer.status === 401 || answer.status === 403) {
          over = true;
          show("live-problem", "You are signed out, so this page is no longer up to date. Load it again to sign in.");
        } else if (answer.ok) {
          replace(await answer.text());
          pause = EVERY;
          since = clock();
          show("live-time", since);
          byId("live").hidden = false;
          show("live-problem", "");
        } else throw new Error(String(answer.status));
      } catch {
        pause = Math.min(2 * pause, LONGEST);
        show("live-problem", `The service does not answer${since ? ` since ${since}` : ""}. What you see is not up to date. It is tried again.`);
      }
      if (!byId("live-problem").hidden) byId("live").hidden = true;
      busy = false;
      later();
    }
    document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
    later();
  }

  function showCopyButtons() {
    for (const button of document.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(byId(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  document.addEventListener("submit", (event) => {
    const question = event.submitter && event.submitter.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  showCopyButtons();
  const main = document.querySelector("[data-live]");
  if (main) keepLive(main.dataset.live);
})();
