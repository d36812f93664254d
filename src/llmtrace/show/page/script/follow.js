// A served page follows its job: the same address with data.json, as long as the job runs and the switch is on.

const EVERY_MS = 5000;

/** @param {App} app */
function follow(app) {
  const box = element("follow-part");
  const input = /** @type {HTMLInputElement} */ (element("follow"));
  box.hidden = !app.data.page.follow;
  input.checked = app.data.page.follow;
  const next = async () => {
    if (input.checked && app.data.page.follow && !document.hidden) await again(app);
    box.hidden = !app.data.page.follow;
    setTimeout(next, EVERY_MS);
  };
  if (app.data.page.follow) setTimeout(next, EVERY_MS);
}

/** @param {App} app */
async function again(app) {
  const address = new URL(location.href);
  address.pathname = `${address.pathname.replace(/\/$/, "")}/data.json`;
  address.hash = "";
  try {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    app.renew(/** @type {Page} */ (await answer.json()));
    element("follow-trouble").hidden = true;
  } catch {
    element("follow-trouble").hidden = false;
  }
}
