// Texts of the table, and how times and amounts are spelled: as in the terminal view.

/** @type {{code: string, texts: Record<string, string>, all: Record<string, Record<string, string>>}} */
const tongue = { code: "en", texts: {}, all: {} };

const SECOND_US = 1e6;

/** The page's language where it is forced, else the first of the browser's that there is. @param {string} forced */
function chooseLanguage(forced) {
  const wanted = forced ? [forced] : navigator.languages;
  speakLanguage(wanted.map((name) => name.slice(0, 2).toLowerCase()).find((name) => name in tongue.all) || "en");
}

/** @param {string} code */
function speakLanguage(code) {
  tongue.code = code;
  tongue.texts = tongue.all[code];
  document.documentElement.lang = code === "zh" ? "zh-CN" : code;
}

/** A text of the controls. @param {string} key @param {Record<string, Argument>} args */
function text(key, args = {}) {
  return phrased({ key, args });
}

/** @param {Words} words @returns {string} */
function said(words) {
  return typeof words === "string" ? words : phrased(words);
}

/** @param {Phrase} phrase @returns {string} */
function phrased(phrase) {
  const args = phrase.args || {};
  const form = tongue.texts[phrase.key] ?? phrase.key;
  return form.replace(/\{(\w+)(?::(\w+))?\}/g, (whole, name, how) => (name in args ? spelled(args[name], how) : whole));
}

/** @type {Record<string, (value: number) => string>} */
const SPELLINGS = {
  length: (value) => spellLength(value / 1000),
  clock: spellClock,
  date: spellDate,
  offset: (value) => spellAfter(value / 1000),
  size: spellSize,
  number: spellThousands,
};

/** @param {Argument} value @param {string | undefined} how @returns {string} */
function spelled(value, how) {
  if (typeof value === "object") return phrased(value);
  return typeof value === "number" && how && how in SPELLINGS ? SPELLINGS[how](value) : String(value);
}

/** A length that was measured: below 10 ms to a tenth of one. @param {number} us */
function spellMeasured(us) {
  return us >= 1000 && us < 10_000 ? `${Number((us / 1000).toFixed(1))} ms` : spellLength(us);
}

/** `37 us`, `62 ms`, `1.2 s`, `3 min 5 s`, by magnitude. @param {number} us */
function spellLength(us) {
  const seconds = Math.abs(us) / SECOND_US;
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} us`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  return minutes < 48 * 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** @param {number} value */
function signed(value) {
  return value < 0 ? "\u2212" : "+";
}

/** Seconds from the onset, signed, to the millisecond. @param {number} us */
function spellOffset(us) {
  const rounded = Math.round(us / 1000);
  return `${signed(rounded)}${(Math.abs(rounded) / 1000).toFixed(3)}`;
}

/** When something came, from the onset: `+6 ms` below a second, `+2.85 s` from there on. @param {number} us */
function spellAfter(us) {
  const ms = Math.round(us / 1000);
  return Math.abs(ms) < 1000 ? `${signed(ms)}${Math.abs(ms)} ms` : `${signed(us)}${(Math.abs(us) / SECOND_US).toFixed(2)} s`;
}

/** `03:14:07.412` where the reader is. @param {number} ms since 1970 */
function spellClock(ms) {
  const moment = new Date(ms);
  const parts = [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map((part) => String(part).padStart(2, "0"));
  return `${parts.join(":")}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
}

/** `2026-11-30 UTC+8`. @param {number} ms since 1970 */
function spellDate(ms) {
  const moment = new Date(ms);
  const hours = -moment.getTimezoneOffset() / 60;
  const day = [moment.getFullYear(), moment.getMonth() + 1, moment.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
  return `${day} UTC${hours ? signed(hours) + Math.abs(hours) : ""}`;
}

/** `12,345`. @param {number} value */
function spellThousands(value) {
  const [whole, part] = String(value).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/** `12.3 GiB`: powers of 1024. @param {number} bytes */
function spellSize(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let count = bytes;
  let power = 0;
  for (; Math.abs(count) >= 1024 && power < units.length - 1; power++) count /= 1024;
  return `${count.toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** A bare number in about four digits. @param {number} value */
function spellNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

/** A measurement with its unit. @param {number} value @param {Unit} unit */
function spellValue(value, unit) {
  if (!Number.isFinite(value)) return "NaN";
  if (value === 0 && (unit === "ns" || unit.startsWith("bytes"))) return "0";
  if (unit === "ns") return spellMeasured(value / 1000);
  if (unit === "bytes") return spellSize(value);
  if (unit === "bytes_per_second") return `${spellSize(value)}/s`;
  if (unit === "ratio") return `${spellNumber(value * 100)} %`;
  if (unit === "hertz") return value >= 1e9 ? `${spellNumber(value / 1e9)} GHz` : value >= 1e6 ? `${spellNumber(value / 1e6)} MHz` : `${spellNumber(value)} Hz`;
  return spellNumber(value) + (unit === "celsius" ? " \u00b0C" : unit === "watts" ? " W" : "");
}

/** The same as show/clean.py has; a test holds the two against each other. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udfff]/gu;

/** What moves, hides or reorders text is spelled out (`\u202e`), as show/clean.py does; lone surrogates too. @param {string} value */
function harmless(value) {
  return /^[\n\t\x20-\x7e]*$/.test(value) ? value : value.replaceAll("\r\n", "\n").replace(HIDDEN, spelledCode);
}

/** @param {string} sign */
function spelledCode(sign) {
  const code = sign.codePointAt(0) || 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}
