"use strict";
// Search over titles and text. The index is a script of its own, loaded when the field is first used, so that it works
// from file:// too.
(() => {
  const field = document.getElementById("search");
  const list = document.getElementById("found");
  const top = document.body.dataset.top;
  const SHOWN = 12;
  let loading = false;
  let chosen = -1;

  function load() {
    if (loading) return;
    loading = true;
    const script = document.createElement("script");
    script.src = top + "search-index.js";
    script.addEventListener("load", search);
    document.head.append(script);
  }

  // Higher is better, 0 is no match: every word must be found, in the heading counts most.
  function rank([, page, heading, text], words) {
    const places = [[heading.toLowerCase(), 8], [page.toLowerCase(), 4], [text.toLowerCase(), 1]];
    let total = 0;
    for (const word of words) {
      let best = 0;
      for (const [place, weight] of places) {
        const at = place.indexOf(word);
        if (at < 0) continue;
        const begins = at === 0 || !/[a-z0-9]/.test(place[at - 1]);
        best = Math.max(best, weight * (place === word ? 3 : begins ? 2 : 1));
      }
      if (best === 0) return 0;
      total += best;
    }
    return total;
  }

  function excerpt(text, word) {
    const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
    return (at > 0 ? "..." : "") + text.slice(at, at + 120) + (text.length > at + 120 ? "..." : "");
  }

  function entry([url, page, heading, text], words) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const title = document.createElement("b");
    const part = document.createElement("span");
    link.href = top + url;
    title.textContent = page === heading ? page : page + ": " + heading;
    part.textContent = excerpt(text, words[0]);
    link.append(title, part);
    item.append(link);
    return item;
  }

  function search() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    chosen = -1;
    if (!words.length || !window.unbraidIndex) return show([]);
    const ranked = window.unbraidIndex.map((row) => [rank(row, words), row]).filter(([value]) => value > 0);
    ranked.sort((one, other) => other[0] - one[0]);
    const entries = ranked.slice(0, SHOWN).map(([, row]) => entry(row, words));
    if (!entries.length) {
      const nothing = document.createElement("li");
      nothing.textContent = "Nothing found.";
      entries.push(nothing);
    }
    show(entries);
  }

  function show(entries) {
    list.replaceChildren(...entries);
    list.hidden = !entries.length;
  }

  function choose(step) {
    const links = list.querySelectorAll("a");
    if (!links.length) return;
    chosen = (chosen + step + links.length) % links.length;
    links.forEach((link, i) => link.classList.toggle("chosen", i === chosen));
    links[chosen].scrollIntoView({ block: "nearest" });
  }

  field.addEventListener("focus", load);
  field.addEventListener("input", () => { load(); search(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      const links = list.querySelectorAll("a");
      if (links.length) links[Math.max(chosen, 0)].click();
    } else if (event.key === "Escape") {
      field.value = "";
      show([]);
      field.blur();
    }
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      field.focus();
    }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) show([]); });
  const current = document.querySelector('.pages [aria-current="page"]');
  if (current) current.closest("nav").scrollTop = Math.max(0, current.offsetTop - 200);
})();
