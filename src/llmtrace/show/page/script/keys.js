// The keyboard: everything that the mouse does.

/** @type {[string, string][]} keys as they are shown, and the text that says what they do */
const KEY_HELP = [
  ["+  \u2212", "ui.key_zoom"],
  ["\u2190  \u2192", "ui.key_pan"],
  ["\u2191  \u2193", "ui.key_rows"],
  ["0", "ui.key_fit"],
  ["w", "ui.key_whole"],
  ["c", "ui.key_close"],
  ["s", "ui.key_select"],
  ["z", "ui.key_zoom_selection"],
  ["o", "ui.key_onset"],
  ["/", "ui.key_filter"],
  ["Enter", "ui.key_unfold"],
  ["Esc", "ui.key_clear"],
  ["?", "ui.key_help"],
];

/** @param {App} app */
function listenToKeys(app) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = event.key === "Escape" ? () => app.clear() : isWriting(event) ? null : keyAct(app, event);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

/** @param {Event} event */
function isWriting(event) {
  return event.target instanceof Element && event.target.closest("input, select, textarea") !== null;
}

/** @param {App} app @param {KeyboardEvent} event @returns {(() => void) | null} */
function keyAct(app, event) {
  const inLog = event.target instanceof Element && event.target.closest("#log-body") !== null && !isControl(event);
  return (inLog && rowKeys(app.log)[event.key]) || pictureKeys(app)[event.key] || null;
}

/** @param {App} app @returns {Record<string, () => void>} */
function pictureKeys(app) {
  const { axis } = app;
  return {
    "+": () => app.timed(() => axis.zoom(CLOSER)),
    "=": () => app.timed(() => axis.zoom(CLOSER)),
    "-": () => app.timed(() => axis.zoom(1 / CLOSER)),
    ArrowLeft: () => axis.pan(-0.2),
    ArrowRight: () => axis.pan(0.2),
    0: () => app.timed(() => axis.fit()),
    w: () => app.timed(() => axis.whole()),
    c: () => app.timed(() => app.closeUp()),
    s: () => axis.select({ ...axis.view }),
    z: () => app.timed(() => app.zoomToSelection()),
    o: () => app.toOnset(),
    "/": () => app.controls.focusFilter(),
    "?": () => app.help(),
  };
}

/** @param {LogTable} log @returns {Record<string, () => void>} */
function rowKeys(log) {
  return {
    ArrowUp: () => log.step(-1),
    ArrowDown: () => log.step(1),
    PageUp: () => log.step(-20),
    PageDown: () => log.step(20),
    Home: () => log.step(-log.items.length),
    End: () => log.step(log.items.length),
    Enter: () => log.active !== null && log.toggle(log.active),
  };
}

/** @param {HTMLElement} into */
function writeKeys(into) {
  into.replaceChildren(
    ...KEY_HELP.flatMap(([keys, words]) => {
      const name = made("dt");
      name.append(...keys.split("  ").map((key) => made("kbd", "", key)));
      return [name, made("dd", "", text(words))];
    }),
  );
}
