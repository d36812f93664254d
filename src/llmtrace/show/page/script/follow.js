// A served page follows its job: the same address with data.json, as long as the job runs and the switch is on.

const EVERY_MS = 5000;

/** An address below this page's own. @param {string} path */
function below(path) {
  const address = new URL(location.href);
  address.pathname = `${address.pathname.replace(/\/$/, "")}/${path}`;
  address.hash = "";
  return address.href;
}

/** @param {App} app */
function follow(app) {
  element("report").setAttribute("href", below("report.md"));
  element("perfetto").setAttribute("href", below("perfetto.json"));
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
  try {
    const answer = await fetch(below("data.json"), { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    app.renew(/** @type {Page} */ (await answer.json()));
    element("follow-trouble").hidden = true;
  } catch {
    element("follow-trouble").hidden = false;
  }
}
